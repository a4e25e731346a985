"""Bulks: one request while the upstream is there, an envelope for each of its entries while it is not."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.edge.model import Submission
from claudemesh.edge.settings import Limits
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from tests.edge_doubles import Edge, at
from tests.fake_upstream import LOSE, FakeUpstream, problem


@pytest.mark.req("R4")
async def test_a_bulk_that_waits_is_one_envelope_for_each_task(edge: Edge, upstream: FakeUpstream) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in "abc"}
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name, row in rows.items()]}
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k")
    assert len(receipt["outbox_ids"]) == 3
    assert await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k") == receipt
    other = await edge.ask("POST", "/tasks/bulk-status-sync", {"tasks": bulk["tasks"][:1]}, key="k")
    assert other.status == 409
    upstream.row("/tasks/b", title="changed")
    await edge.go_online(upstream)
    states = [(await edge.until_state(one, "acked", "conflict"))["seen"]["state"] for one in receipt["outbox_ids"]]
    assert states == ["acked", "conflict", "acked"]
    assert sorted(path for path, _ in upstream.log if "tasks" in path) == ["PATCH /tasks/a", "PATCH /tasks/c"]
    assert (await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k"))["state"] == "conflict"


@pytest.mark.req("R4")
async def test_a_bulk_that_is_asked_again_is_done_only_when_all_of_it_is(
    edge: Edge, upstream: FakeUpstream
) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in "ab"}
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name, row in rows.items()]}
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k")
    upstream.rule = lambda seen: problem(429, "later") if seen.target == "/tasks/b" else None
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_ids"][0], "acked")
    again = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k")
    assert again["outbox_ids"] == receipt["outbox_ids"]
    assert again["state"] in {"queued", "sending"}
    upstream.rule = lambda _: None
    await edge.ask("POST", "/replay")
    await edge.until_state(receipt["outbox_ids"][1], "acked")
    done = await edge.ask("POST", "/tasks/bulk-status-sync", bulk, key="k")
    assert (done.status, done.headers["idempotent-replayed"]) == (200, "true")
    assert [(item["id"], item["http_status"]) for item in done.json["items"]] == [("a", 200), ("b", 200)]
    assert all(seen.target != "/tasks/bulk-status-sync" for seen in upstream.writes)


@pytest.mark.req("R4")
async def test_a_bulk_of_which_a_part_died_is_refused_when_it_is_asked_again(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/a")
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name in ("a", "gone")]}
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_ids"][0], "acked")
    await edge.until_state(receipt["outbox_ids"][1], "dead")
    again = await edge.ask("POST", "/tasks/bulk-status-sync", bulk, key="k")
    assert (again.status, again.json["outbox_id"]) == (409, receipt["outbox_ids"][1])


@pytest.mark.req("R4", "R8")
async def test_every_entry_of_a_bulk_needs_an_expectation_to_wait(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/a")
    bulk = {"tasks": [{"id": "a", **at(row, status="done")}, {"id": "b", "status": "done"}]}
    assert (await edge.ask("POST", "/tasks/bulk-status-sync", bulk)).status == 200
    await edge.go_offline(upstream)
    refused = await edge.ask("POST", "/tasks/bulk-status-sync", bulk, if_match='"1"')
    assert (refused.status, refused.json["reason"]) == (503, "needs_expectation")
    assert (await edge.status())["pending"] == 0


@pytest.mark.req("R4")
async def test_a_bulk_waits_behind_what_is_queued_for_one_of_its_tasks(edge: Edge, upstream: FakeUpstream) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in "ab"}
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/b", at(rows["b"], title="T"))
    upstream.rule = lambda seen: problem(429, "later") if "title" in seen.json else None
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes))
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name, row in rows.items()]}
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk)
    assert receipt["upstream"] == "reachable"
    await edge.until_state(receipt["outbox_ids"][0], "acked")
    assert await edge.state(receipt["outbox_ids"][1]) == "queued"
    upstream.rule = lambda _: None
    await edge.ask("POST", "/replay")
    await edge.until_state(receipt["outbox_ids"][1], "acked")
    assert await edge.state(first["outbox_id"]) == "acked"
    assert (upstream.rows["/tasks/b"]["title"], upstream.rows["/tasks/b"]["status"]) == ("T", "done")


@pytest.mark.req("R4")
async def test_two_bulks_whose_long_keys_begin_alike_are_two(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/a")
    bulk = {"tasks": [{"id": "a", **at(row, title="x")}]}
    await edge.go_offline(upstream)
    first = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k" * 254 + "1")
    second = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k" * 254 + "2")
    assert first["outbox_id"] != second["outbox_id"]
    assert (await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k" * 254 + "1")) == first


@pytest.mark.req("R4", "R8")
async def test_a_bulk_whose_answer_was_lost_is_found_done(edge: Edge, upstream: FakeUpstream) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in "ab"}
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name, row in rows.items()]}
    upstream.acts.append(LOSE)
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk)
    await edge.go_online(upstream)
    for one in receipt["outbox_ids"]:
        assert (await edge.until_state(one, "acked"))["seen"]["last_error"] == "already_there"
    assert [row["revision"] for row in upstream.rows.values()] == [2, 2]


@pytest.mark.req("R5", "R4")
async def test_a_bulk_is_taken_whole_or_not_at_all(relay_folder: Path, upstream: FakeUpstream) -> None:
    edge = Edge(relay_folder, upstream.url, settings={"limits": Limits(reserved_bytes=1 << 20)})
    await edge.start()
    await edge.go_offline(upstream)
    pad = "x" * 20_000
    statuses = set()
    for number in range(20):
        bulk = {"tasks": [{"id": f"{number}-{n}", "status": pad, "expected_status": "todo"} for n in range(8)]}
        before = (await edge.status())["pending"]
        reply = await edge.ask("POST", "/tasks/bulk-status-sync", bulk)
        statuses.add(reply.status)
        assert (await edge.status())["pending"] - before == (8 if reply.status == 202 else 0)
    assert statuses == {202, 507}
    await edge.stop()


@pytest.mark.req("R5", "R4")
async def test_a_disk_that_is_full_in_the_middle_of_a_bulk_keeps_nothing_of_it(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in "abc"}
    bulk = {"tasks": [{"id": name, **at(row, status="done")} for name, row in rows.items()]}
    await edge.go_offline(upstream)
    new_row = SqliteEnvelopeStore.new_row

    def no_room(self: SqliteEnvelopeStore, entry: Submission) -> tuple[Any, ...]:
        if entry.destination == "tasks/b":
            raise apsw.FullError("database or disk is full")
        return new_row(self, entry)

    with monkeypatch.context() as full:
        full.setattr(SqliteEnvelopeStore, "new_row", no_room)
        refused = await edge.ask("POST", "/tasks/bulk-status-sync", bulk, key="k")
    assert (refused.status, (await edge.status())["pending"]) == (507, 0)
    receipt = await edge.queue("POST", "/tasks/bulk-status-sync", bulk, key="k")
    await edge.go_online(upstream)
    for one in receipt["outbox_ids"]:
        await edge.until_state(one, "acked")


@pytest.mark.req("R4")
@pytest.mark.parametrize("name", ["a/../../admin", "../admin", "a\\b", "a\r\nb", "..%2Fadmin"])
async def test_an_id_of_a_bulk_that_would_go_up_is_refused_as_it_is_in_a_path(
    edge: Edge, upstream: FakeUpstream, name: str
) -> None:
    bulk = {"tasks": [{"id": name, "status": "done", "expected_status": "todo"}]}
    await edge.go_offline(upstream)
    reply = await edge.ask("POST", "/tasks/bulk-status-sync", bulk)
    assert (reply.status, reply.code) == (400, "bad_header")
