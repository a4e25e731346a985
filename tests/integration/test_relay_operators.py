"""What an operator decides about envelopes, and what waits behind them."""

import asyncio

import pytest

from tests.edge_doubles import Edge, at
from tests.fake_upstream import Act, FakeUpstream, say

NOTE = {"agent": "builder", "summary": "parser done"}


async def conflicting(edge: Edge, upstream: FakeUpstream, name: str = "1") -> tuple[str, str]:
    """Have an envelope in conflict, and one that waits behind it; return their ids."""
    row = upstream.row(f"/tasks/{name}", title="base")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", f"/tasks/{name}", at(row, title="mine"))
    behind = await edge.queue("PATCH", f"/tasks/{name}", {"note": "behind", "expected_status": "todo"})
    upstream.row(f"/tasks/{name}", title="theirs")
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "conflict")
    return first["outbox_id"], behind["outbox_id"]


# --- what an operator decides --------------------------------------------------------------------------


@pytest.mark.req("R7", "R8")
async def test_a_conflict_holds_both_values_and_only_its_own_entity(edge: Edge, upstream: FakeUpstream) -> None:
    first, behind = await conflicting(edge, upstream)
    shown = await edge.show(first)
    assert (shown["mine"]["title"], shown["theirs"]["title"]) == ("mine", "theirs")
    assert shown["seen"]["last_error"] == "revision_conflict"
    assert await edge.state(behind) == "queued"
    assert (await edge.queue("PATCH", "/tasks/1", {"x": "y", "expected_status": "todo"}))["upstream"] == "reachable"
    other = upstream.row("/tasks/2")
    assert (await edge.ask("PATCH", "/tasks/2", at(other, title="x"))).status == 200
    status = await edge.status()
    assert (status["conflicts"], status["pending"]) == (1, 2)


@pytest.mark.req("R8")
@pytest.mark.parametrize("decision", ["cancel", "mark-dead", "theirs", "mine", "retry"])
async def test_what_waits_behind_a_conflict_goes_on_when_it_is_decided(
    edge: Edge, upstream: FakeUpstream, decision: str
) -> None:
    first, behind = await conflicting(edge, upstream)
    if decision == "retry":
        upstream.rows["/tasks/1"] = {**upstream.rows["/tasks/1"], "updated_at": "2026-01-01T00:00:00.001Z"}
    if decision in {"mine", "theirs"}:
        reply = await edge.decide(first, "resolve", keep=decision, by="ada")
    else:
        reply = await edge.decide(first, decision, by="ada")
    assert reply.status == 200, reply.body
    await edge.until_state(behind, "acked")
    expected = {
        "cancel": "cancelled",
        "mark-dead": "dead",
        "theirs": "cancelled",
        "mine": "acked",
        "retry": "acked",
    }
    assert await edge.state(first) == expected[decision]
    assert upstream.rows["/tasks/1"]["title"] == ("mine" if expected[decision] == "acked" else "theirs")
    assert upstream.rows["/tasks/1"]["note"] == "behind"


@pytest.mark.req("R8")
async def test_keeping_mine_overwrites_what_was_shown_and_nothing_newer(edge: Edge, upstream: FakeUpstream) -> None:
    first, _ = await conflicting(edge, upstream)
    upstream.row("/tasks/1", title="newer still")
    count = len(edge.events)
    assert (await edge.decide(first, "resolve", keep="mine")).status == 200
    await edge.until(lambda: any(getattr(e, "error", None) == "revision_conflict" for e in edge.events[count:]))
    shown = await edge.until_state(first, "conflict")
    assert (upstream.rows["/tasks/1"]["title"], shown["theirs"]["title"]) == ("newer still", "newer still")


@pytest.mark.req("R7")
async def test_a_dead_envelope_is_retried_under_a_fresh_key_and_its_old_key_follows_it(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    dead = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.acts.append(say(400))
    await edge.go_online(upstream)
    await edge.until_state(dead["outbox_id"], "dead")
    again = (await edge.decide(dead["outbox_id"], "retry")).json["seen"]
    assert again["id"] != dead["outbox_id"]
    await edge.until_state(again["id"], "acked")
    assert upstream.applied[again["idempotency_key"]] == 1
    assert (await edge.ask("POST", "/progress/", NOTE, key="k1")).status == 201


@pytest.mark.req("R7")
async def test_what_is_being_sent_or_done_is_nobodys_to_decide(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    go = asyncio.Event()
    upstream.acts.append(Act(waits=go))
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes_of("k1")))
    for decision in ("cancel", "mark-dead", "retry"):
        assert (await edge.decide(receipt["outbox_id"], decision)).status == 409
    go.set()
    await edge.until_state(receipt["outbox_id"], "acked")
    for decision in ("cancel", "mark-dead", "retry"):
        assert (await edge.decide(receipt["outbox_id"], decision)).status == 409
    assert (await edge.decide(receipt["outbox_id"], "resolve", keep="mine")).status == 409
    assert (await edge.decide("nothing", "cancel")).status == 404
