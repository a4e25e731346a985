"""What workplan files say, and what has to change at a hub for it: both without asking anybody."""

from typing import Any

import pytest

from claudemesh.cli.statehub.consistency import (
    Cannot,
    Change,
    Create,
    Right,
    Wanted,
    derive_key,
    plan,
    task_titles,
    wanted_of,
)
from claudemesh.cli.statehub.workplans import Task, WrongFile, parse_workplan, read_workplans

pytestmark = pytest.mark.req("R9")

FILE = """\
---
id: WP-1
type: workplan
title: "A plan: with a colon"   # and a comment
status: active
owner: ada # who
created: '2026-06-23, at ''noon'''
topic: ~
state_hub_workstream_id: "189508bd-b3cb-4caf-ac95-30bf2823201d"
---
# WP-1 - A plan
```
## no heading, and no task
id: X
```
## T01 - Write it ##

```task
id: WP-1-T01
status: done
# a remark
priority: high

state_hub_task_id: "07aa2d43"
```
## Learn C#
  ~~~task
id: WP-1-T02
status: todo
title: "Say \\"it\\" in C\\\\D"
  ~~~
"""


def test_a_workplan_and_its_tasks_are_read_from_its_file() -> None:
    found = parse_workplan("workplans/a.md", FILE)
    assert (found.id, found.title, found.status) == ("WP-1", "A plan: with a colon", "active")
    assert (found.hub_id, found.repo) == ("189508bd-b3cb-4caf-ac95-30bf2823201d", None)
    assert found.tasks == (
        Task(id="WP-1-T01", heading="T01 - Write it", status="done", hub_id="07aa2d43", where="workplans/a.md:18"),
        Task(id="WP-1-T02", heading='Say "it" in C\\D', status="todo", hub_id=None, where="workplans/a.md:27"),
    )


def test_line_ends_of_other_systems_change_nothing() -> None:
    assert parse_workplan("workplans/a.md", "\ufeff" + FILE.replace("\n", "\r\n")) == parse_workplan(
        "workplans/a.md", FILE
    )


HEAD = "---\nid: W\ntitle: T\nstatus: s\n---\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a.md:1: a workplan begins with a line ---"),
        ("# Title\n", "a.md:1: a workplan begins with a line ---"),
        ("---\nid: W\n", "a.md:1: the part that begins with --- has no second ---"),
        ("---\nid: W\ntitle: T\n---\n", "a.md:1: status is missing"),
        ("---\nid: W\ntitle:\nstatus: s\n---\n", "a.md:3: title is missing"),
        ("---\nid: W\ntitle: null\nstatus: s\n---\n", "a.md:3: title is missing"),
        ("---\nid: W\nid: V\n---\n", "a.md:3: id stands in line 2 already"),
        ("---\nid: W/V\ntitle: T\nstatus: s\n---\n", "a.md:2: an id is of letters"),
        ("---\nid: W\ntags:\n  - a\n---\n", "a.md:4: this is not `key: value`"),
        ("---\nid: W\ntags: [a, b]\n---\n", "a.md:3: a list, a table or a text of several lines"),
        ("---\nid: W\ntitle: |\n  x\n---\n", "a.md:3: a list, a table or a text of several lines"),
        ("---\nid: W\ntitle: a: b\n---\n", "a.md:3: a value with a colon in it stands in quotes"),
        ("---\nid:W\n---\n", "a.md:2: this is not `key: value`"),
        ('---\nid: "W\n---\n', "a.md:2: the quotes do not end where the value ends"),
        ('---\nid: "W" or "V"\n---\n', "a.md:2: the quotes do not end where the value ends"),
        ('---\nid: "W\\n"\n---\n', "a.md:2: in double quotes only"),
        (f"---\nid: W\ntitle: T\nstatus: {'s' * 65}\n---\n", "a.md:4: status is 1 to 64 printable characters"),
        (f"---\nid: W\ntitle: {'t' * 1001}\nstatus: s\n---\n", "a.md:3: title is 1 to 1000 printable"),
        ('---\nid: W\ntitle: "a\u202eb"\nstatus: s\n---\n', "a.md:3: title is 1 to 1000 printable"),
        (HEAD + "```task\nid: W-1\n```\n", "a.md:6: status is missing"),
        (HEAD + "```task\nid: W-1\nstatus: s\n", "a.md:6: the block that begins here has no end"),
        (HEAD + "```\nid: W-1\n", "a.md:6: the block that begins here has no end"),
        (HEAD + "```task\nstatus: s\n- x\n```\n", "a.md:8: this is not `key: value`"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_file_and_line(text: str, told: str) -> None:
    with pytest.raises(WrongFile) as wrong:
        parse_workplan("a.md", text)
    assert str(wrong.value).startswith(told)


def test_all_that_is_wrong_with_all_files_is_said_at_once() -> None:
    task = "```task\nid: W-1\nstatus: s\n```\n"
    files = [("a.md", HEAD + task), ("b.md", "x"), ("c.md", HEAD + task), ("d.md", "---\n---\n")]
    found, problems = read_workplans(files)
    assert len(found) == 2
    assert problems == [
        "b.md:1: a workplan begins with a line ---",
        "d.md:1: id is missing",
        "c.md:1: W stands at a.md:1 already",
        "c.md:6: W-1 stands at a.md:6 already",
    ]


# --- names and keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "titles"),
    [
        ("T01 - Write it", ("WP-1-T01 - Write it", "WP-1-T01 - T01 - Write it", "WP-1-T01 T01 - Write it")),
        (
            "WP-1-T01 - Write",
            ("WP-1-T01 - Write", "WP-1-T01 - WP-1-T01 - Write", "WP-1-T01 WP-1-T01 - Write"),
        ),
        ("01 - Write it", ("WP-1-T01 - 01 - Write it", "WP-1-T01 01 - Write it")),
        ("Write it", ("WP-1-T01 - Write it", "WP-1-T01 Write it")),
        ("", ("WP-1-T01",)),
    ],
)
def test_a_task_is_called_by_its_id_and_its_heading(heading: str, titles: tuple[str, ...]) -> None:
    assert task_titles(Task(id="WP-1-T01", heading=heading, status="s", hub_id=None, where="")) == titles


def test_the_key_of_a_creation_is_of_the_repository_and_the_id_and_of_nothing_that_changes() -> None:
    (workplan, _) = read_workplans([("a.md", FILE)])
    (moved, _) = read_workplans([("b.md", FILE.replace("status: done", "status: todo").replace("T01 - W", "w"))])
    keys = [one.key for one in wanted_of(workplan, "here")]
    assert keys == [one.key for one in wanted_of(moved, "here")]
    assert len(set(keys)) == 3
    assert set(keys).isdisjoint(one.key for one in wanted_of(workplan, "there"))
    named, _ = read_workplans([("a.md", FILE.replace("type: workplan", "repo: there"))])
    assert [one.key for one in wanted_of(named, "here")] == [one.key for one in wanted_of(workplan, "there")]
    assert derive_key("a", "tasks", "b") != derive_key("a", "workplans", "b")


# --- the plan ----------------------------------------------------------------------------------------


def want(number: int = 1, **changed: Any) -> Wanted:  # noqa: ANN401  any field
    said: dict[str, Any] = {
        "kind": "tasks",
        "id": f"W-{number}",
        "titles": (f"W-{number} - x", f"W-{number} x"),
        "status": "todo",
        "hub_id": None,
        "where": "a.md:1",
        "key": "k",
    }
    return Wanted(**{**said, **changed})


def row(row_id: str, title: str, status: str = "todo", revision: int = 1) -> dict[str, Any]:
    return {"id": row_id, "title": title, "status": status, "revision": revision}


def planned(*wanted: Wanted, tasks: list[dict[str, Any]]) -> list[Any]:
    return plan(wanted, {"tasks": tasks, "workplans": [row("w", "W-1 - x")]})


def test_what_is_missing_is_created_and_what_is_right_stays() -> None:
    create, right = planned(want(), want(2), tasks=[row("b", "W-2 x")])
    assert isinstance(create, Create)
    assert create.body == {"title": "W-1 - x", "status": "todo"}
    assert isinstance(right, Right), "one of its names is as good as another"


def test_only_what_differs_is_changed() -> None:
    (status,) = planned(want(), tasks=[row("a", "W-1 - x", "done")])
    assert isinstance(status, Change)
    assert (status.row["id"], status.body) == ("a", {"status": "todo"})
    (title,) = planned(want(hub_id="a"), tasks=[row("a", "old")])
    assert isinstance(title, Change)
    assert title.body == {"title": "W-1 - x"}


def test_the_id_that_a_file_names_counts_more_than_a_title() -> None:
    (found,) = planned(want(hub_id="b"), tasks=[row("a", "W-1 - x"), row("b", "other", "todo")])
    assert (found.row["id"], found.body) == ("b", {"title": "W-1 - x"})


def test_where_the_hub_does_not_have_that_id_the_title_is_looked_for_and_that_is_told() -> None:
    found, missing = planned(want(hub_id="gone"), want(2, hub_id="gone"), tasks=[row("a", "W-1 - x")])
    assert isinstance(found, Right)
    assert isinstance(missing, Create)
    assert found.note == missing.note == "the hub has no row gone, which the file names"


def test_a_row_whose_heading_was_changed_is_known_by_its_own_id() -> None:
    (found,) = planned(
        want(), tasks=[row("a", "W-1 - an old heading"), row("b", "W-11 - another"), row("c", "xW-1 -")]
    )
    assert isinstance(found, Change)
    assert (found.row["id"], found.body) == ("a", {"title": "W-1 - x"})


def test_if_several_rows_could_be_it_none_is_touched() -> None:
    (found,) = planned(want(), tasks=[row("a", "W-1 - x"), row("b", "W-1 x", "done")])
    assert isinstance(found, Cannot)
    assert found.reason == "2 rows of the hub could be it (a, b): name one in the file"
    (named,) = planned(want(hub_id="b"), tasks=[row("a", "W-1 - x"), row("b", "W-1 x", "done")])
    assert isinstance(named, Change)


def test_one_row_is_only_one_of_them() -> None:
    first, second = planned(want(hub_id="a"), want(2, hub_id="a"), tasks=[row("a", "W-1 - x")])
    assert isinstance(first, Right)
    assert isinstance(second, Cannot)
    assert second.reason == "the hub's row a is that of W-1 already"


def test_done_once_there_is_nothing_left_to_do() -> None:
    wanted = wanted_of(read_workplans([("a.md", FILE)])[0], "here")
    rows: dict[Any, list[Any]] = {"tasks": [], "workplans": []}
    for number, action in enumerate(plan(wanted, rows)):
        assert isinstance(action, Create)
        rows[action.wanted.kind].append({"id": str(number), "revision": 1, **action.body})
    assert {type(action) for action in plan(wanted, rows)} == {Right}
