"""Writes that join a queue of which a part is acknowledged already."""

import asyncio

import pytest

from tests.edge_doubles import Edge, at
from tests.fake_upstream import FakeUpstream, problem


@pytest.mark.req("R8")
@pytest.mark.parametrize("fields", [("title", "title", "title", "title"), ("title", "status", "status", "title")])
async def test_a_write_that_joins_a_queue_of_which_a_part_is_acked_does_not_conflict_with_it(
    edge: Edge, upstream: FakeUpstream, fields: tuple[str, ...]
) -> None:
    row = upstream.row("/tasks/1")
    held = asyncio.Event()
    await edge.go_offline(upstream)
    ids = [
        (await edge.queue("PATCH", "/tasks/1", at(row, **{name: f"{n}"})))["outbox_id"]
        for n, name in enumerate(fields[:2])
    ]
    upstream.rule = lambda seen: None if b'"0"' in seen.body or held.is_set() else problem(429, "later")
    await edge.go_online(upstream)
    await edge.until_state(ids[0], "acked")
    for n, name in enumerate(fields[2:], start=2):  # its caller still knows nothing but the first row
        ids.append((await edge.queue("PATCH", "/tasks/1", at(row, **{name: f"{n}"})))["outbox_id"])
    held.set()
    await edge.ask("POST", "/replay")
    status = await edge.until_settled()
    assert (status["conflicts"], status["dead"]) == (0, 0)
    assert upstream.rows["/tasks/1"]["title"] == "3"


@pytest.mark.req("R8")
async def test_a_write_that_joins_a_queue_still_conflicts_with_anothers_write(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    held = asyncio.Event()
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", at(row, title="0"))
    second = await edge.queue("PATCH", "/tasks/1", at(row, title="1"))
    upstream.rule = lambda seen: None if b'"0"' in seen.body or held.is_set() else problem(429, "later")
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "acked")
    theirs = upstream.row("/tasks/1", title="theirs")
    joined = await edge.queue("PATCH", "/tasks/1", at(row, title="2"))
    held.set()
    await edge.ask("POST", "/replay")
    await edge.until_state(second["outbox_id"], "conflict")
    await edge.decide(second["outbox_id"], "resolve", keep="theirs")
    await edge.until_state(joined["outbox_id"], "conflict")
    assert upstream.rows["/tasks/1"]["title"] == theirs["title"] == "theirs"
