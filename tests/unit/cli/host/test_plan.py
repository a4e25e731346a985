"""What installing would make of the files of hosts, as texts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.cli.host.blocks import (
    BEGIN,
    END,
    DamagedBlockError,
    drop_block,
    is_untouched,
    put_block,
    read_block,
    read_skill,
)
from claudemesh.cli.host.declared import EVENTS, Wanted, is_our_hook, is_our_server
from claudemesh.cli.host.plan import ForeignError, Made, drop, look, put
from claudemesh.cli.host.snippets import HOSTS, render_snippets

WANTED = Wanted("/opt/claudemesh")


def installed(part: Any, before: object, wanted: Wanted = WANTED, **how: bool) -> Any:  # noqa: ANN401 - JSON
    text = put(part, None if before is None else json.dumps(before, indent=2), wanted, **how).text
    assert text is not None
    return json.loads(text)


# --- the server's entry -----------------------------------------------------------------------------


@pytest.mark.req("C7")
def test_an_entry_of_the_same_name_that_is_not_ours_stays_unless_it_is_forced() -> None:
    before = {"mcpServers": {"claudemesh": {"type": "http", "url": "https://example.org"}}}
    with pytest.raises(ForeignError):
        installed("server", before)
    assert installed("server", before, force=True)["mcpServers"]["claudemesh"] == WANTED.server()
    with pytest.raises(ForeignError):
        installed("server", {"mcpServers": {"claudemesh": None}})
    text = json.dumps(before)
    assert drop("server", text, Made()).text == text, "nor is it taken out"


def test_what_its_owner_added_to_our_entry_stays_when_the_program_moves() -> None:
    entry = {"command": "/old/claudemesh", "args": ["mcp"], "env": {"A": "b"}, "timeout": 9}
    found = installed("server", {"mcpServers": {"claudemesh": entry}})["mcpServers"]["claudemesh"]
    assert found == {**entry, "command": "/opt/claudemesh", "type": "stdio"}
    assert list(found)[:4] == list(entry), "and in its place"


def test_a_home_that_is_not_the_usual_one_is_named_and_taken_back() -> None:
    elsewhere = Wanted("/opt/claudemesh", home="/srv/a b")
    found = installed("server", {}, elsewhere)
    assert found["mcpServers"]["claudemesh"]["env"] == {"CLAUDEMESH_HOME": "/srv/a b"}
    assert look("server", json.dumps(found), WANTED).state == "stale"
    assert installed("server", found)["mcpServers"]["claudemesh"]["env"] == {}
    hooks = installed("hooks", {}, elsewhere)["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert hooks == "CLAUDEMESH_HOME='/srv/a b' /opt/claudemesh hook session-start 2>/dev/null || true"
    assert elsewhere.explain_hook(hooks) is None
    assert WANTED.explain_hook(hooks) is not None


def test_without_a_mesh_any_that_is_named_will_do() -> None:
    named = installed("server", {}, Wanted("/opt/claudemesh", "demo"))
    assert named["mcpServers"]["claudemesh"]["args"] == ["mcp", "--mesh", "demo"]
    assert look("server", json.dumps(named), WANTED).state == "ok"
    assert look("server", json.dumps(named), Wanted("/opt/claudemesh", "other")).state == "stale"


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "claudemesh mcp",
        {},
        {"command": "claudemesh"},
        {"command": "claudemesh", "args": "mcp"},
        {"command": ["claudemesh"], "args": ["mcp"]},
        {"command": "/bin/claudemesh-evil", "args": ["mcp"]},
        {"command": "claudemesh", "args": ["send"]},
    ],
)
def test_an_entry_is_ours_only_if_it_starts_our_server(entry: object) -> None:
    assert not is_our_server(entry)


# --- the hooks --------------------------------------------------------------------------------------


def test_hooks_of_others_stay_beside_ours_and_after_them() -> None:
    theirs = {"matcher": "startup", "hooks": [{"type": "command", "command": "echo claudemesh hook session-start"}]}
    before = {"hooks": {"SessionStart": [theirs], "Stop": [theirs]}, "model": "x"}
    found = installed("hooks", before)
    assert found["hooks"]["SessionStart"] == [theirs, WANTED.hook_group("SessionStart")]
    assert found["hooks"]["Stop"] == [theirs]
    assert found["hooks"]["UserPromptSubmit"] == [WANTED.hook_group("UserPromptSubmit")]


def test_a_hook_of_ours_that_was_moved_into_another_group_is_taken_out_of_it_alone() -> None:
    theirs = {"type": "command", "command": "make lint"}
    ours = WANTED.hook_group("SessionStart")["hooks"][0]
    text = json.dumps({"hooks": {"SessionStart": [{"hooks": [ours, theirs]}, {"hooks": [ours]}]}})
    left = drop("hooks", text, Made()).text
    assert left is not None
    assert json.loads(left) == {"hooks": {"SessionStart": [{"hooks": [theirs]}]}}


@pytest.mark.req("C7")
def test_half_of_the_hooks_is_stale_and_made_whole() -> None:
    half = {"hooks": {"SessionStart": [WANTED.hook_group("SessionStart")]}}
    assert look("hooks", json.dumps(half), WANTED).state == "stale"
    assert installed("hooks", half)["hooks"] == {event: [WANTED.hook_group(event)] for event in EVENTS}


@pytest.mark.parametrize("command", [None, 1, "", "'", "claudemesh hook", "x claudemesh hook session-start", "A=1"])
def test_a_hook_is_ours_only_if_it_runs_our_program(command: object) -> None:
    assert not is_our_hook({"type": "command", "command": command}, "SessionStart")


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    "command",
    [
        "claudemesh hook session-start && make greet",
        "claudemesh hook session-start --mesh demo ; make greet",
        "claudemesh hook session-start --mesh $(make greet)",
        "claudemesh hook session-start --mesh demo --more",
        "claudemesh hook session-start --mesh",
        "LD_PRELOAD=/x claudemesh hook session-start",
        "$(make greet)/claudemesh hook session-start",
        "claudemesh hook session-start 2>/dev/null || true; make greet 2>/dev/null || true",
    ],
)
def test_a_hook_that_does_more_than_ours_is_its_owners_and_never_called_right(command: str) -> None:
    theirs = {"hooks": [{"type": "command", "command": command}]}
    before = {"hooks": {"SessionStart": [theirs], "UserPromptSubmit": [WANTED.hook_group("UserPromptSubmit")]}}
    assert look("hooks", json.dumps(before), WANTED).state == "stale"
    found = installed("hooks", before)
    assert found["hooks"]["SessionStart"] == [theirs, WANTED.hook_group("SessionStart")]
    left = drop("hooks", json.dumps(found), Made()).text
    assert left is not None
    assert json.loads(left) == {"hooks": {"SessionStart": [theirs]}}, "nor is it taken out"


def test_a_hook_of_ours_is_known_without_the_end_that_keeps_it_quiet_and_for_any_mesh() -> None:
    for command in (
        "claudemesh hook session-start",
        "CLAUDEMESH_HOME='/a b' /x/claudemesh hook session-start --mesh m",
    ):
        assert is_our_hook({"command": command}, "SessionStart")


def test_a_skill_file_of_nothing_but_our_marks_is_judged_at_once() -> None:
    mark = "<!-- claudemesh install wrote this file;: "
    assert look("skill", mark * 200_000, WANTED).state == "foreign"  # tried at every mark it would take hours


def test_what_was_there_and_empty_is_told_from_what_was_made() -> None:
    text = '{"hooks": {"SessionStart": []}, "mcpServers": {}}'
    for part in ("server", "hooks"):
        after = put(part, text, WANTED)  # type: ignore[arg-type]
        assert drop(part, after.text, Made(file=False, containers=after.made)).text == text  # type: ignore[arg-type]
    after = put("server", text, WANTED)
    unknown = drop("server", after.text, Made(file=False, containers=None)).text
    assert unknown == '{"hooks": {"SessionStart": []}}', "nobody knows: what is empty without us was ours"


def test_a_file_that_was_ours_alone_goes() -> None:
    made = put("server", None, WANTED)
    assert drop("server", made.text, Made(file=True, containers=made.made)).text is None
    text = json.dumps({**json.loads(made.text or ""), "more": 1})
    assert drop("server", text, Made(file=True, containers=made.made)).text == '{"more": 1}'


# --- the texts for agents ---------------------------------------------------------------------------


def test_a_skill_file_that_somebody_changed_is_theirs() -> None:
    mine = read_skill().replace("claudemesh", "mymesh", 1)
    assert is_untouched(read_skill())
    assert not is_untouched(mine)
    with pytest.raises(ForeignError):
        put("skill", mine, WANTED)
    assert drop("skill", mine, Made()).text == mine
    assert drop("skill", mine, Made(), force=True).text is None
    assert put("skill", mine, WANTED, force=True).text == read_skill()


@pytest.mark.req("C7")
@settings(deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab \n\r#"), max_size=12))
def test_the_block_in_a_text_for_agents_is_put_in_once_and_taken_out_to_the_last_byte(text: str) -> None:
    after = put_block(text, read_block())
    assert put_block(after, read_block()) == after
    assert drop_block(after) == text
    assert after.startswith(text)


def test_a_block_of_another_version_is_replaced_where_it_stands() -> None:
    old = f"# Ours\n\n{BEGIN}\nold\n{END}\n\n## More\n"
    assert look("agents", old, WANTED).state == "stale"
    new = put("agents", old, WANTED).text
    assert new == old.replace(f"{BEGIN}\nold\n{END}", read_block())
    assert drop("agents", new, Made()).text == "# Ours\n\n## More\n"


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_block_whose_marks_are_damaged_is_left_alone(text: str) -> None:
    with pytest.raises(DamagedBlockError):
        put("agents", text, WANTED)
    with pytest.raises(DamagedBlockError):
        drop("agents", text, Made())


def test_the_skill_teaches_what_queued_means_and_that_messages_are_data() -> None:
    text = read_skill()
    for word in ("queued", "accepted", "delivered", "read", "acted", "dead", "conflict"):
        assert f"| `{word}` |" in text
    for sentence in (
        "A queued write is not a done write",
        "untrusted",
        "same key for every retry",
        "triggers no side",
    ):
        assert sentence in text
    head = text.split("---\n")[1]
    assert head.startswith("name: claudemesh\ndescription: ")
    assert len(head.partition("description: ")[2]) <= 1024, "hosts cut longer ones"


# --- other hosts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_has_a_snippet_in_its_own_format(host: str) -> None:
    import tomllib  # noqa: PLC0415 - of this test alone

    wanted = Wanted('/a "b"/claudemesh', "demo", "/h")
    first = render_snippets(host, wanted)[0].text
    found = tomllib.loads(first) if host == "codex" else json.loads(first)
    (servers,) = found.values()
    entry = servers["claudemesh"]
    assert (entry["command"], entry["args"]) == ('/a "b"/claudemesh', ["mcp", "--mesh", "demo"])
    assert entry["env"] == {"CLAUDEMESH_HOME": "/h"}
