"""Coalescing: a status write takes the place of one that waits, and of nothing that its caller had not seen."""

from itertools import pairwise

import pytest

from tests.edge_doubles import Edge, at
from tests.fake_upstream import LOSE, FakeUpstream, Seen


@pytest.mark.req("R7")
async def test_status_writes_that_never_went_out_become_one_with_the_oldest_expectation(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    receipts = [
        await edge.queue("PATCH", "/tasks/1", at(row, status="doing")),
        await edge.queue("PATCH", "/tasks/1", {"status": "review", "expected_status": "doing"}),
        await edge.queue("PATCH", "/tasks/1", {"status": "done", "expected_status": "review"}),
    ]
    assert (await edge.status())["pending"] == 1
    await edge.go_online(upstream)
    last = await edge.until_state(receipts[2]["outbox_id"], "acked")
    (sent,) = [seen for seen in upstream.writes if seen.method == "PATCH"]
    assert sent.json == at(row, status="done")
    for earlier, later in pairwise(receipts):
        shown = await edge.show(earlier["outbox_id"])
        assert (shown["seen"]["state"], shown["seen"]["cancelled_by"]) == ("cancelled", "coalesced")
        assert shown["seen"]["superseded_by"] == later["outbox_id"]
        assert [event["became"] for event in shown["happened"]] == ["queued", "cancelled"]
    assert [event["became"] for event in last["happened"]] == ["queued", "sending", "acked"]


@pytest.mark.req("R7")
async def test_a_status_write_is_not_coalesced_across_another_write(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    for fields in ({"status": "doing"}, {"title": "T"}, {"status": "done"}, {"status": "x", "title": "U"}):
        await edge.queue("PATCH", "/tasks/1", at(row, **fields))
    assert (await edge.status())["pending"] == 4
    await edge.go_online(upstream)
    await edge.until_settled()
    assert [sorted(body.keys() - {"expected_updated_at"}) for path, body in upstream.log if "tasks" in path] == [
        ["status"], ["title"], ["status"], ["status", "title"],
    ]  # fmt: skip


@pytest.mark.req("R7")
async def test_a_status_write_that_may_have_arrived_is_not_coalesced(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    upstream.acts.append(LOSE)
    first = await edge.queue("PATCH", "/tasks/1", at(row, status="doing"))
    second = await edge.queue("PATCH", "/tasks/1", at(row, status="done"))
    assert (await edge.status())["pending"] == 2
    await edge.go_online(upstream)
    await edge.until_state(second["outbox_id"], "acked")
    assert await edge.state(first["outbox_id"]) == "acked"
    assert (upstream.rows["/tasks/1"]["status"], upstream.rows["/tasks/1"]["revision"]) == ("done", 3)


@pytest.mark.req("R7", "R8")
async def test_a_status_write_by_an_older_view_does_not_go_out_on_the_newer_one_of_another(
    edge: Edge, upstream: FakeUpstream
) -> None:
    seen_by_one = upstream.row("/tasks/1")
    upstream.rows["/tasks/1"] |= {"status": "theirs", "revision": 2, "updated_at": "2026-11-18T00:00:00.000Z"}
    seen_by_other = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    newer = await edge.queue("PATCH", "/tasks/1", at(seen_by_other, status="doing"))
    older = await edge.queue("PATCH", "/tasks/1", at(seen_by_one, status="done"))
    assert (await edge.status())["pending"] == 2, "not coalesced"
    await edge.go_online(upstream)
    await edge.until_state(newer["outbox_id"], "acked")
    await edge.until_state(older["outbox_id"], "conflict")
    assert upstream.rows["/tasks/1"]["status"] == "doing"


@pytest.mark.req("R7")
async def test_a_status_write_that_goes_by_what_the_one_before_it_sets_takes_its_place(
    edge: Edge, upstream: FakeUpstream
) -> None:
    upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", {"status": "doing", "expected_status": "todo"})
    last = await edge.queue("PATCH", "/tasks/1", {"status": "done", "expected_status": "doing"})
    assert await edge.state(first["outbox_id"]) == "cancelled"
    await edge.go_online(upstream)
    await edge.until_state(last["outbox_id"], "acked")
    assert upstream.rows["/tasks/1"]["status"] == "done"


@pytest.mark.req("R7")
async def test_status_writes_of_two_entities_and_a_resolution_stay_apart(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    await edge.queue("PATCH", "/tasks/1", {"status": "a", "expected_status": "todo"})
    await edge.queue("PATCH", "/tasks/2", {"status": "a", "expected_status": "todo"})
    await edge.queue("PATCH", "/decisions/1", {"status": "a", "expected_status": "todo"})
    await edge.queue("POST", "/decisions/1/resolve", {"resolution": "a", "expected_status": "todo"})
    assert (await edge.status())["pending"] == 4


@pytest.mark.req("R7", "R8")
async def test_whoever_goes_by_a_status_in_between_is_in_the_same_queue_and_does_not_conflict_with_it(
    edge: Edge, upstream: FakeUpstream
) -> None:
    upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    for status, expected in (("doing", "todo"), ("review", "doing"), ("done", "doing")):
        last = await edge.queue("PATCH", "/tasks/1", {"status": status, "expected_status": expected})
    assert (await edge.status())["pending"] == 1
    await edge.queue("PATCH", "/tasks/1", {"title": "T", "expected_status": "review"})
    await edge.go_online(upstream)
    await edge.until_settled()
    assert await edge.state(last["outbox_id"]) == "acked"
    assert (upstream.rows["/tasks/1"]["status"], upstream.rows["/tasks/1"]["title"]) == ("done", "T")


@pytest.mark.req("R7")
async def test_writes_that_name_one_row_in_different_ways_stay_apart_and_are_all_applied(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    await edge.queue("PATCH", "/tasks/1", at(row, status="doing"))
    await edge.queue("PATCH", "/tasks/1", {"status": "review"}, if_match=f'"{row["revision"]}"')
    assert (await edge.status())["pending"] == 2, "nobody here knows that they are the same"
    await edge.go_online(upstream)
    await edge.until_settled()
    status = await edge.status()
    assert (status["pending"], status["conflicts"]) == (0, 0)
    assert upstream.rows["/tasks/1"]["status"] == "review"


@pytest.mark.req("R7")
@pytest.mark.parametrize("status", [["x"], {}, None, 5, True])
async def test_a_status_that_is_no_text_is_in_nobodys_way(
    status: object, edge: Edge, upstream: FakeUpstream
) -> None:
    upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    await edge.queue("PATCH", "/tasks/1", {"status": status, "expected_status": "todo"})
    await edge.queue("PATCH", "/tasks/1", {"status": "done", "expected_status": "todo"})


@pytest.mark.req("R7", "R8")
@pytest.mark.parametrize("name", ["status", "title"])
async def test_whoever_has_not_seen_what_an_operator_decided_on_does_not_go_out_on_it(
    name: str, edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    await edge.queue("PATCH", "/tasks/1", at(row, title="ours"))
    second = await edge.queue("PATCH", "/tasks/1", at(row, status="doing"))

    def meddle(seen: Seen) -> None:
        if "status" in seen.json:
            upstream.row("/tasks/1", status="theirs", title="theirs")

    upstream.rule = meddle
    await edge.go_online(upstream)
    await edge.until_state(second["outbox_id"], "conflict")
    upstream.rule = lambda _: None
    await edge.go_offline(upstream)
    assert (await edge.decide(second["outbox_id"], "resolve", keep="mine")).status == 200
    stale = await edge.queue("PATCH", "/tasks/1", at(row, **{name: "stale"}))
    await edge.go_online(upstream)
    await edge.until_state(stale["outbox_id"], "conflict")
    assert await edge.state(second["outbox_id"]) == "acked"
    assert (upstream.rows["/tasks/1"]["status"], upstream.rows["/tasks/1"]["title"]) == ("doing", "theirs")
