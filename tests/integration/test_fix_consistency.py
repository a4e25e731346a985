"""`statehub fix-consistency` against a real hub, and through a real relay."""

from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli.statehub import fix
from claudemesh.edge.asking import Answered, Api
from claudemesh.kernel.errors import ConnectionLost, DependencyError
from tests.integration.hub_process import Hub
from tests.integration.relay_process import Relay
from tests.ports import own_address

pytestmark = pytest.mark.req("R9")

FILE = """\
---
id: WP-1
title: "A plan"
status: active
---
## T01 - First
```task
id: WP-1-T01
status: done
```
## T02 - Second
```task
id: WP-1-T02
status: todo
```
"""
IDS = ["WP-1", "WP-1-T01", "WP-1-T02"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "workplans").mkdir(parents=True)
    (folder / "workplans" / "WP-1.md").write_text(FILE)
    return folder


class Fixing:
    def __init__(self, relay: Relay, repo: Path, upstream: str) -> None:
        self._relay = relay
        self._words = ["fix-consistency", "--repo", str(repo), "--upstream", upstream]
        self.file = repo / "workplans" / "WP-1.md"

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = self._relay.told(*self._words, *words, code=code)
        assert told["matches"] is (code == 0)
        return told

    def edit(self, old: str, new: str) -> None:
        self.file.write_text(self.file.read_text().replace(old, new))


def what(told: dict[str, Any], place: str) -> list[tuple[str, str]]:
    return [(item["id"], item["what"]) for item in told[place]]


def test_the_hub_is_made_to_match_and_stays_so(hub: Hub, relay: Relay, repo: Path) -> None:
    fixed = Fixing(relay, repo, f"http://{hub.listen}")
    with hub.serving():
        other = hub.make("/tasks/", {"title": "of nobody's file", "status": "x"})
        planned = fixed("--dry-run", code=1)
        assert what(planned, "changed") == [(one, "would_create") for one in IDS]
        assert hub.listed("/workplans/") == []

        first = fixed()
        assert what(first, "changed") == [(one, "created") for one in IDS]
        titles = {row["title"]: row["status"] for row in hub.listed("/tasks/")}
        assert titles == {"of nobody's file": "x", "WP-1-T01 - First": "done", "WP-1-T02 - Second": "todo"}
        assert [row["title"] for row in hub.listed("/workplans/")] == ["WP-1 - A plan"]

        again = fixed()
        assert (again["changed"], what(again, "right")) == ([], [(one, "right") for one in IDS])

        task = hub.listed("/tasks/")[1]
        hub.ask("PATCH", f"/tasks/{task['id']}", {"status": "todo"})
        fixed.edit("Second", "Another")
        changed = fixed()
        assert [(item["id"], item["from"], item["to"]) for item in changed["changed"]] == [
            ("WP-1-T01", {"status": "todo"}, {"status": "done"}),
            ("WP-1-T02", {"title": "WP-1-T02 - Second"}, {"title": "WP-1-T02 - Another"}),
        ]
        assert hub.ask("GET", f"/tasks/{other['id']}").json["revision"] == 1
        assert len(hub.listed("/tasks/")) == 3
        lines = relay.run("fix-consistency", "--repo", str(repo), "--upstream", f"http://{hub.listen}").out
        assert lines == "0 changed, 3 right already, 0 queued, 0 could not be\nthe hub matches the files\n"


def test_what_was_deleted_at_the_hub_is_created_anew_and_once(hub: Hub, relay: Relay, repo: Path) -> None:
    fixed = Fixing(relay, repo, f"http://{hub.listen}")
    with hub.serving():
        fixed()
        for _ in range(2):
            hub.ask("DELETE", f"/tasks/{hub.listed('/tasks/')[0]['id']}")
            assert len(fixed()["changed"]) == 1
            assert sorted(row["title"] for row in hub.listed("/tasks/")) == [
                "WP-1-T01 - First",
                "WP-1-T02 - Second",
            ]


def test_what_cannot_be_is_said_and_the_rest_is_done(hub: Hub, relay: Relay, repo: Path) -> None:
    fixed = Fixing(relay, repo, f"http://{hub.listen}")
    with hub.serving():
        for _ in range(2):
            hub.make("/tasks/", {"title": "WP-1-T01 - First", "status": "todo"})
        told = fixed(code=1)
        assert what(told, "failed") == [("WP-1-T01", "cannot")]
        assert "2 rows of the hub could be it" in told["failed"][0]["reason"]
        assert what(told, "changed") == [("WP-1", "created"), ("WP-1-T02", "created")]
        second = hub.listed("/tasks/")[1]
        fixed.edit("id: WP-1-T01\n", f'id: WP-1-T01\nstate_hub_task_id: "{second["id"]}"\n')
        assert what(fixed(), "changed") == [("WP-1-T01", "changed")]


@pytest.mark.prints("statehub fix-consistency")
def test_what_was_made_with_other_words_and_is_gone_is_not_made_twice(hub: Hub, relay: Relay, repo: Path) -> None:
    fixed = Fixing(relay, repo, f"http://{hub.listen}")
    with hub.serving():
        fixed()
        task = hub.listed("/tasks/")[1]
        hub.ask("PATCH", f"/tasks/{task['id']}", {"title": "somebody gave it another name"})
        fixed.edit("Second", "Another")
        told = fixed(code=1)
        assert what(told, "failed") == [("WP-1-T02", "cannot")]
        assert "put the id of the row that is meant into the file" in told["failed"][0]["reason"]
        assert len(hub.listed("/tasks/")) == 2


def test_through_a_relay_what_is_queued_is_told_as_queued_and_never_as_done(
    hub: Hub, relay: Relay, repo: Path
) -> None:
    through = Fixing(relay, repo, f"http://{relay.listen}")
    with hub.serving():
        with relay.serving():
            through()
            task = hub.listed("/tasks/")[0]
            # A stale write of ours waits for its operator: whatever comes to that task waits behind it.
            hub.ask("PATCH", f"/tasks/{task['id']}", {"status": "blocked"})
        relay.upstream = f"http://{own_address()}"
        with relay.serving():
            said = {"status": "x", "expected_updated_at": task["updated_at"]}
            stale = relay.queue("PATCH", f"/tasks/{task['id']}", said)["outbox_id"]
        relay.upstream = f"http://{hub.listen}"
        with relay.serving():
            assert relay.told("outbox", "replay")["conflicts"] == 1
            told = through(code=1)
            assert (what(told, "queued"), told["changed"], told["failed"]) == ([("WP-1-T01", "queued")], [], [])
            assert relay.told("outbox", "show", told["queued"][0]["outbox_id"])["state"] == "queued"
            lines = relay.run("fix-consistency", "--repo", str(repo), "--upstream", f"http://{relay.listen}").out
            assert "WP-1-T01: queued, not done: status blocked -> done" in lines
            assert "what is queued is not done yet" in lines
            relay.told("outbox", "resolve", stale, "--keep", "theirs")
            assert relay.told("outbox", "replay")["pending"] == 0
            assert hub.ask("GET", f"/tasks/{task['id']}").json["status"] == "done"
            assert through()["queued"] == []


def test_a_hub_that_is_away_or_is_none_is_named(hub: Hub, relay: Relay, repo: Path) -> None:
    away = relay.run("fix-consistency", "--repo", str(repo), "--upstream", f"http://{hub.listen}", "--json")
    assert (away.code, away.json["code"]) == (3, "dependency_failed")
    assert f"http://{hub.listen} cannot be reached" in away.err
    with relay.serving():
        through = relay.run(
            "fix-consistency", "--repo", str(repo), "--upstream", f"http://{relay.listen}", "--json"
        )
        assert (through.code, "the upstream cannot be reached" in through.err) == (3, True)
    wrong = relay.run("fix-consistency", "--repo", str(repo), "--upstream", "hub:18000", "--json")
    assert (wrong.code, wrong.json["code"]) == (1, "config_invalid")


def test_a_token_is_shown_where_the_hub_wants_one(hub: Hub, relay: Relay, repo: Path) -> None:
    words = ["fix-consistency", "--repo", str(repo), "--upstream", f"http://{hub.listen}"]
    with hub.serving("--token-file", str(hub.home / "token")):
        refused = relay.run(*words, "--json")
        assert (refused.code, refused.json["code"]) == (1, "missing_token")
        assert relay.run(*words, STATEHUB_TOKEN=(hub.home / "token").read_text().strip()).code == 0
        assert relay.run(*words, "--token-file", str(hub.home / "token")).code == 0
        missing = relay.run(*words, "--token-file", str(hub.home / "none"), "--json")
        assert (missing.code, missing.json["code"]) == (1, "config_invalid")
        unsayable = relay.run(*words, "--json", STATEHUB_TOKEN="abc\ndef")  # noqa: S106  an example
        assert (unsayable.code, unsayable.json["code"]) == (1, "config_invalid")
        assert "abc" not in unsayable.err


def test_files_that_are_wrong_are_all_named_and_nothing_is_changed(hub: Hub, relay: Relay, repo: Path) -> None:
    (repo / "workplans" / "a.md").write_text("# no workplan\n")
    (repo / "workplans" / "b.md").write_bytes(b"\xff\xfe")
    (repo / "workplans" / "c.md").mkdir()
    with hub.serving():
        words = ["fix-consistency", "--upstream", f"http://{hub.listen}", "--json", "--repo"]
        ran = relay.run(*words, str(repo))
        assert (ran.code, ran.json["problems"]) == (
            1,
            [
                "workplans/b.md: is not UTF-8",
                "workplans/c.md: Is a directory",
                "workplans/a.md:1: a workplan begins with a line ---",
            ],
        )
        assert hub.listed("/workplans/") == []
        assert relay.run(*words, str(repo / "workplans")).code == 2, "it has no workplans of its own"
        assert relay.run(*words, str(repo / "nowhere")).code == 2
        assert relay.run(*words[:-1]).code == 2, "it has to be told which"


# --- what a hub may answer in between: against one that says what it is told to -----------------------


class Scripted(Api):
    """Answers a path with what is next in its list."""

    def __init__(self, **answers: list[Any]) -> None:
        super().__init__("http://hub", None, None)
        self.answers = answers
        self.asked: list[tuple[str, Any, Any]] = []

    def ask(
        self, method: str, path: str, body: object = None, headers: object = None, timeout_s: float = 1
    ) -> Answered:
        del timeout_s
        self.asked.append((f"{method} {path}", body, headers))
        name = f"{method} {path}".partition("?")[0]
        told = self.answers[name].pop(0)
        if isinstance(told, Exception):
            raise told
        return told if isinstance(told, Answered) else Answered(200, {}, told)


def page(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(rows), "next_cursor": None}


def task(status: str, revision: int) -> dict[str, Any]:
    return {"id": "a", "title": "WP-1-T01 - First", "status": status, "revision": revision}


def scripted(repo: Path, tasks: list[Any], **answers: list[Any]) -> tuple[Scripted, dict[str, Any]]:
    text = FILE.partition("## T02")[0]
    (repo / "workplans" / "WP-1.md").write_text(text)
    plan = page({"id": "w", "title": "WP-1 - A plan", "status": "active", "revision": 1})
    api = Scripted(**{"GET /workplans/": [plan, plan], "GET /tasks/": [page(*found) for found in tasks], **answers})
    return api, fix.fix(api, fix.read_wanted(repo))


STALE = Answered(412, {}, {"code": "stale_version", "status": 412})


def test_a_row_that_somebody_changes_meanwhile_is_looked_at_again(repo: Path) -> None:
    api, told = scripted(
        repo,
        [[task("todo", 1)], [task("done", 3)]],
        **{"PATCH /tasks/a": [STALE, task("done", 3)], "GET /tasks/a": [task("doing", 2)]},
    )
    assert (told["matches"], what(told, "changed")) == (True, [("WP-1-T01", "changed")])
    assert [headers["if-match"] for said, _, headers in api.asked if said.startswith("PATCH")] == ['"1"', '"2"']


def test_a_row_that_goes_on_changing_is_left_to_another_run(repo: Path) -> None:
    _, told = scripted(
        repo,
        [[task("todo", 1)], [task("todo", 9)]],
        **{"PATCH /tasks/a": [STALE] * 3, "GET /tasks/a": [task("todo", 2)] * 3},
    )
    assert (told["matches"], told["failed"][0]["reason"]) == (False, "the row goes on changing: run it again")


def test_what_the_hub_does_not_show_afterwards_is_not_done_whatever_it_answered(repo: Path) -> None:
    _, told = scripted(repo, [[task("todo", 1)], [task("todo", 3)]], **{"PATCH /tasks/a": [task("done", 2)]})
    assert (told["matches"], what(told, "changed")) == (False, [("WP-1-T01", "changed")])
    assert told["failed"][0]["reason"] == "it was changed, and the hub shows something else"


def test_an_answer_that_never_came_is_no_success(repo: Path) -> None:
    _, told = scripted(
        repo, [[task("todo", 1)], [task("todo", 1)]], **{"PATCH /tasks/a": [ConnectionLost("gone: unknown")]}
    )
    assert told["failed"][0]["reason"] == "gone: unknown; run it again, which does nothing twice"


@pytest.mark.parametrize("answer", [None, {"items": 3}, {"items": [{"id": 1}]}, ["x"]])
def test_what_is_no_hub_is_told_from_one(repo: Path, answer: object) -> None:
    api = Scripted(**{"GET /workplans/": [answer]})
    with pytest.raises(DependencyError, match="is no State Hub"):
        fix.fix(api, fix.read_wanted(repo))
