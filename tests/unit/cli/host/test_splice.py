"""JSON of others: what is put in can be taken out again to the last byte, and what is doubtful is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.cli.host import splice
from claudemesh.cli.host.declared import Wanted
from claudemesh.cli.host.plan import Made, drop, look, put
from claudemesh.cli.host.splice import NotUnderstoodError

WANTED = Wanted("/opt/my tools/claudemesh", "demo")
OTHER = Wanted("/usr/local/bin/claudemesh", "demo")

# --- any JSON object, written in any way --------------------------------------------------------------

SPACES = st.text(" \t\n\r", max_size=3)
NAMES = st.one_of(st.text(max_size=4), st.sampled_from(["hooks", "mcpServers", "SessionStart", "claudemesh", "é"]))
SCALARS = st.one_of(
    st.sampled_from(["null", "true", "-0", "1E+2", "0.10", "12345678901234567890"]), st.text().map(json.dumps)
)


def written(opening: str, parts: list[str], spaces: list[str], closing: str) -> str:
    return opening + spaces[0] + f"{spaces[1]},{spaces[2]}".join(parts) + spaces[0] + closing


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    blank = st.lists(SPACES, min_size=3, max_size=3)
    return st.builds(written, st.just("["), st.lists(values, max_size=3), blank, st.just("]"))


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def member(name: str, before: str, after: str, value: str) -> str:
        return f"{json.dumps(name)}{before}:{after}{value}"

    members = st.lists(st.tuples(NAMES, SPACES, SPACES, values), max_size=4, unique_by=lambda one: one[0])
    blank = st.lists(SPACES, min_size=3, max_size=3)
    return st.builds(
        written, st.just("{"), members.map(lambda all_of: [member(*one) for one in all_of]), blank, st.just("}")
    )


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(lists(inner), objects(inner)), max_leaves=8)
# Files as hosts have them: our containers there already, empty or not, and of the right kind.
LIKELY = st.builds(
    lambda indent, servers, hooks, rest: json.dumps(
        {**rest, "mcpServers": servers, "hooks": hooks}, indent=indent, ensure_ascii=False
    ),
    st.sampled_from([None, 2, 4, "\t"]),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.dictionaries(
        st.sampled_from(["SessionStart", "UserPromptSubmit", "Stop"]), st.lists(st.just({"hooks": []}), max_size=2)
    ),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FILES = st.one_of(st.tuples(SPACES, objects(VALUES), SPACES).map("".join), LIKELY)


@pytest.mark.req("C7")
@pytest.mark.parametrize("part", ["server", "hooks"])
@settings(deadline=None)
@given(text=FILES)
def test_what_was_installed_is_uninstalled_to_the_last_byte(part: Any, text: str) -> None:  # noqa: ANN401 - its own name
    try:
        after = put(part, text, WANTED)
    except (NotUnderstoodError, ValueError):
        return  # refused: nothing is written
    assert after.text is not None
    json.loads(after.text)
    assert look(part, after.text, WANTED).state == "ok"
    assert put(part, after.text, WANTED).text == after.text, "twice is once"
    assert drop(part, after.text, Made(file=False, containers=after.made)).text == text


@pytest.mark.parametrize("part", ["server", "hooks"])
@settings(deadline=None)
@given(text=FILES)
def test_installing_changes_nothing_but_our_own_entries(part: Any, text: str) -> None:  # noqa: ANN401 - as above
    try:
        after = put(part, text, WANTED).text
    except ValueError:
        return
    assert after is not None
    before, now = json.loads(text), json.loads(after)
    assert {name: now.get(name) for name in before if name not in ("mcpServers", "hooks")} == {
        name: value for name, value in before.items() if name not in ("mcpServers", "hooks")
    }
    assert [name for name in now if name in before] == list(before), "their order stays"


@pytest.mark.parametrize("part", ["server", "hooks"])
@settings(deadline=None)
@given(text=FILES)
def test_another_program_is_replaced_in_place(part: Any, text: str) -> None:  # noqa: ANN401 - as above
    try:
        first = put(part, text, OTHER)
    except ValueError:
        return
    assert first.text is not None
    assert look(part, first.text, WANTED).state == "stale"
    second = put(part, first.text, WANTED)
    assert look(part, second.text, WANTED).state == "ok"
    assert second.text == put(part, text, WANTED).text, "as if it had been so from the start"


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"a": 1,}',
        '// mine\n{"a": 1}',
        '{"a": 1 /* b */}',
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        '{"b": {"a": 1, "a": 2}}',
        "\ufeff{}",
        "{} {}",
        '{"mcpServers": []}',
        '{"mcpServers": null}',
        '{"a": ' + "[" * 100_000,
    ],
)
def test_what_is_not_plainly_one_object_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        put("server", text, WANTED)


@pytest.mark.parametrize(
    "text", ['{"hooks": []}', '{"hooks": {"SessionStart": {}}}', '{"hooks": {"SessionStart": null}}']
)
def test_hooks_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        put("hooks", text, WANTED)


# --- how it looks -----------------------------------------------------------------------------------


def test_a_file_keeps_its_indentation_and_its_line_ends() -> None:
    text = '{\r\n\t"theme": "dark",\r\n\t"mcpServers": {}\r\n}\r\n'
    after, made = splice.put(text, ("mcpServers", "claudemesh"), {"command": "c"})
    assert after == (
        '{\r\n\t"theme": "dark",\r\n\t"mcpServers": {\r\n\t\t"claudemesh": {\r\n\t\t\t"command": "c"\r\n\t\t}\r\n'
        "\t}\r\n}\r\n"
    )
    assert made == []


def test_a_file_on_one_line_stays_on_one_line() -> None:
    after, made = splice.put('{"a":1}', ("mcpServers", "claudemesh"), {"command": "c"})
    assert after == '{"a":1,"mcpServers":{"claudemesh":{"command":"c"}}}'
    assert made == [("mcpServers",)]


def test_numbers_and_escapes_of_others_stay_as_they_are_written() -> None:
    text = '{\n  "a": 1.50e+3,\n  "b": "\\u00e9\\/"\n}'
    after, _ = splice.put(text, ("c",), {})
    assert after.startswith(text.removesuffix("\n}"))


def test_of_very_many_names_the_one_that_stands_twice_is_found_at_once() -> None:
    many = ",".join(f'"n{number}":1' for number in range(200_000))
    with pytest.raises(NotUnderstoodError, match="'z' stands twice"):
        splice.parse(f'{{{many},"z":1,"z":2}}')  # counted name by name it would take hours
