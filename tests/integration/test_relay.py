"""A relay before an upstream that comes, goes and loses answers: what is forwarded, what waits, what is said."""

import asyncio
import json
from pathlib import Path

import pytest

from claudemesh.edge.events import Recovered
from claudemesh.edge.settings import Limits
from tests.edge_doubles import Edge, at
from tests.fake_upstream import DROP, LOSE, Act, FakeUpstream, Say, problem, say

NOTE = {"agent": "builder", "summary": "parser done"}


# --- forwarding and queueing -------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_online_a_write_is_forwarded_and_the_answer_is_the_upstreams(
    edge: Edge, upstream: FakeUpstream
) -> None:
    reply = await edge.ask("POST", "/progress/?dry=1", NOTE, key='"k1"')
    assert (reply.status, reply.json["summary"], reply.headers["etag"]) == (201, "parser done", '"1"')
    (arrived,) = upstream.writes
    assert (arrived.method, arrived.target, arrived.json) == ("POST", "/progress/?dry=1", NOTE)
    assert arrived.key == "k1"
    assert (await edge.status())["pending"] == 0


async def test_a_relay_tells_where_it_listens_also_when_it_was_given_a_free_port(edge: Edge) -> None:
    assert (await edge.operate("GET", "/status")).json["listen"] == edge.address


@pytest.mark.req("R4")
@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 409, 412, 418, 422, 429, 500])
async def test_other_answers_are_returned_as_they_are(edge: Edge, upstream: FakeUpstream, status: int) -> None:
    upstream.acts.append(say(status, {"code": "mine", "n": status}, retry_after="7"))
    reply = await edge.ask("POST", "/progress/", NOTE)
    assert (reply.status, reply.headers["retry-after"]) == (status, "7")
    assert status == 204 or reply.json == {"code": "mine", "n": status}
    assert (await edge.status())["pending"] == 0


@pytest.mark.req("R4")
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_without_anybody_behind_it_is_as_good_as_nobody(
    edge: Edge, upstream: FakeUpstream, status: int
) -> None:
    upstream.acts.extend([say(status), say(status)])
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    assert receipt["upstream"] == "unreachable"
    await edge.until_state(receipt["outbox_id"], "acked")
    assert upstream.applied["k1"] == 1
    await edge.until_heard(Recovered)


@pytest.mark.req("R4", "R10")
async def test_while_a_gateway_answers_for_it_the_upstream_is_away(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.rule = upstream.reads = lambda _: say(502)
    await edge.queue("POST", "/progress/", NOTE)
    assert not (await edge.status())["upstream_reachable"]
    tried = len(upstream.writes)
    await edge.queue("POST", "/progress/", NOTE)
    assert len(upstream.writes) == tried
    upstream.rule = upstream.reads = lambda _: None
    await edge.go_online(upstream)
    await edge.until_heard(Recovered)
    assert edge.heard(Recovered)[0].acked == 2


@pytest.mark.req("R4", "R10")
@pytest.mark.parametrize("how", ["refused", "reset", "lost", "timeout"])
async def test_what_does_not_get_through_is_kept_and_said_to_be_queued(
    upstream: FakeUpstream, relay_folder: Path, how: str
) -> None:
    limits = Limits(request_timeout_s=0.1 if how == "timeout" else 15)
    edge = Edge(relay_folder, upstream.url, settings={"limits": limits})
    await edge.start()
    never = asyncio.Event()
    if how == "refused":
        await upstream.close()
    else:
        upstream.acts.append({"reset": DROP, "lost": LOSE, "timeout": Act(applies=False, waits=never)}[how])
    if how == "timeout":
        upstream.reads = lambda seen: say(503) if seen.target == "/health" else None
    reply = await edge.ask("POST", "/progress/", NOTE)
    receipt = reply.json
    assert reply.status == 202
    assert receipt.keys() == {"queued", "outbox_id", "idempotency_key", "upstream", "state"}
    assert (receipt["queued"], receipt["upstream"], receipt["state"]) == (True, "unreachable", "queued")
    shown = await edge.show(receipt["outbox_id"])
    assert shown["seen"]["idempotency_key"] == receipt["idempotency_key"]
    assert shown["seen"]["attempts"] == (0 if how == "refused" else 1)
    upstream.reads = lambda _: None
    if how == "timeout":
        await edge.ask("POST", "/replay")
    else:
        await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    assert upstream.applied[receipt["idempotency_key"]] == 1
    assert {seen.key for seen in upstream.writes if seen.json == NOTE} == {receipt["idempotency_key"]}
    await edge.stop()


@pytest.mark.req("R4")
async def test_a_body_is_replayed_byte_for_byte_under_the_key_of_the_first_try(
    edge: Edge, upstream: FakeUpstream
) -> None:
    bodies = {
        "/progress/": b' {"agent":"a",\n\t"summary" : "x\\u00e9\xc3\xa9"}\r\n',
        "/messages/": b'{"to":"a","from":"b","body":"c"}\n',
        "/token-events/": b'{"agent": "a", "input_tokens": 1e2, "output_tokens": 2}',
    }
    for number, (path, body) in enumerate(bodies.items()):
        await edge.until_heard(Recovered, number)  # whose report would be lost instead
        upstream.acts.append(LOSE)
        receipt = await edge.queue("POST", path, body)
        await edge.go_online(upstream)
        await edge.until_state(receipt["outbox_id"], "acked")
        tries = upstream.writes_of(receipt["idempotency_key"])
        assert len(tries) == 2
        assert tries[0].body == tries[1].body
        assert json.loads(tries[0].body) == json.loads(body)
        assert upstream.applied[receipt["idempotency_key"]] == 1


@pytest.mark.req("R4")
async def test_a_write_without_a_body_is_replayed_without_one(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.row("/messages/1")
    upstream.acts.append(LOSE)
    receipt = await edge.queue("PATCH", "/messages/1/read", key="k1")
    await edge.go_online(upstream)
    shown = await edge.until_state(receipt["outbox_id"], "acked", "dead")
    assert shown["seen"]["state"] == "acked", shown
    assert [seen.body for seen in upstream.writes_of("k1")] == [b"", b""]
    assert upstream.applied == {"k1": 1}


@pytest.mark.req("R4")
async def test_without_a_key_one_is_made_for_each_write(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    first = await edge.queue("POST", "/progress/", NOTE)
    second = await edge.queue("POST", "/progress/", NOTE)
    assert first["idempotency_key"] != second["idempotency_key"]
    await edge.go_online(upstream)
    await edge.until_settled()
    assert upstream.applied[first["idempotency_key"]] == upstream.applied[second["idempotency_key"]] == 1


@pytest.mark.req("R4")
async def test_the_relay_shows_one_identity_for_first_try_and_replay(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.acts.append(LOSE)
    receipt = await edge.queue("POST", "/progress/", NOTE, x_source_agent="builder", x_source_host="box")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    tries = upstream.writes_of(receipt["idempotency_key"])
    assert len(tries) == 2
    for name in ("authorization", "x-source-agent", "x-source-host", "content-type"):
        assert len({seen.get(name) for seen in tries}) == 1
    assert tries[1].get("x-source-agent") == "builder"


# --- the same request again --------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_the_same_request_again_while_it_is_queued_is_told_so(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    first = await edge.queue("POST", "/progress/", NOTE, key="k1")
    again = await edge.queue("POST", "/progress/", NOTE, key='"k1"')
    assert again == first
    other = await edge.ask("POST", "/progress/", {**NOTE, "summary": "other"}, key="k1")
    assert (other.status, other.code) == (409, "key_reused")
    assert (await edge.ask("POST", "/messages/", NOTE, key="k1")).status == 409
    assert (await edge.ask("POST", "/progress/?x=1", NOTE, key="k1")).status == 409
    assert (await edge.status())["pending"] == 1


@pytest.mark.req("R4")
async def test_the_same_request_again_while_it_is_being_sent_is_told_so(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    go = asyncio.Event()
    upstream.acts.append(Act(waits=go))
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes_of("k1")))
    again = await edge.queue("POST", "/progress/", NOTE, key="k1")
    assert (again["state"], again["outbox_id"], again["queued"]) == ("sending", receipt["outbox_id"], True)
    other = await edge.ask("POST", "/progress/", {}, key="k1")
    assert other.status == 409
    go.set()
    await edge.until_state(receipt["outbox_id"], "acked")
    assert upstream.applied == {"k1": 1}


@pytest.mark.req("R4")
async def test_the_same_request_again_after_the_ack_gets_the_stored_answer(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    for _ in range(2):
        again = await edge.ask("POST", "/progress/", NOTE, key="k1")
        assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
        assert again.json["summary"] == "parser done"
        assert again.headers["etag"] == '"1"'
        await edge.go_offline(upstream)  # the second time the relay alone knows
    assert (await edge.ask("POST", "/progress/", {}, key="k1")).status == 409
    assert len(upstream.writes_of("k1")) == 1


@pytest.mark.req("R4", "R7")
async def test_the_same_request_again_after_it_was_coalesced_is_told_of_its_survivor(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", at(row, status="doing"), key="k1")
    last = await edge.queue("PATCH", "/tasks/1", at(row, status="done"), key="k2")
    again = await edge.queue("PATCH", "/tasks/1", at(row, status="doing"), key="k1")
    assert (again["outbox_id"], again["state"]) == (last["outbox_id"], "queued")
    assert (await edge.ask("PATCH", "/tasks/1", at(row, status="x"), key="k1")).status == 409
    await edge.go_online(upstream)
    await edge.until_state(last["outbox_id"], "acked")
    acked = await edge.ask("PATCH", "/tasks/1", at(row, status="doing"), key="k1")
    assert (acked.status, acked.json["status"]) == (200, "done")
    assert (await edge.show(first["outbox_id"]))["seen"]["superseded_by"] == last["outbox_id"]


@pytest.mark.req("R4")
async def test_the_same_request_again_after_it_died_or_was_cancelled_is_refused(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    dead = await edge.queue("POST", "/progress/", NOTE, key="dead")
    given_up = await edge.queue("POST", "/progress/", NOTE, key="cancelled")
    assert (await edge.decide(given_up["outbox_id"], "cancel")).status == 200
    upstream.acts.append(problem(422, "no_such_agent"))
    await edge.go_online(upstream)
    await edge.until_state(dead["outbox_id"], "dead")
    again = await edge.ask("POST", "/progress/", NOTE, key="dead")
    assert (again.status, again.code, again.json["reason"]) == (409, "key_reused", "no_such_agent")
    assert "dead" in again.json["detail"]
    again = await edge.ask("POST", "/progress/", NOTE, key="cancelled")
    assert again.status == 409
    assert "cancelled" in again.json["detail"]
    assert not upstream.applied.keys() & {"dead", "cancelled"}


@pytest.mark.req("R4", "R8")
async def test_the_same_request_again_while_it_is_in_conflict_is_told_so(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    receipt = await edge.queue("PATCH", "/tasks/1", at(row, title="mine"), key="k1")
    upstream.row("/tasks/1", title="theirs")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "conflict")
    again = await edge.queue("PATCH", "/tasks/1", at(row, title="mine"), key="k1")
    assert (again["state"], again["outbox_id"]) == ("conflict", receipt["outbox_id"])


@pytest.mark.req("R4")
async def test_one_key_at_the_same_instant_is_one_write(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    replies = await asyncio.gather(*(edge.ask("POST", "/progress/", NOTE, key="k1") for _ in range(8)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.json["outbox_id"] for reply in replies}) == 1
    await edge.go_online(upstream)
    await edge.until_settled()
    assert upstream.applied["k1"] == 1


# --- behind what waits -------------------------------------------------------------------------------


@pytest.mark.req("R4", "R7")
async def test_a_write_to_an_entity_with_queued_ones_waits_behind_them_also_online(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", at(row, title="one"))
    go = asyncio.Event()
    upstream.acts.append(Act(waits=go))
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes))
    second = await edge.queue("PATCH", "/tasks/1", at(row, title="two"))
    assert second["upstream"] == "reachable"
    elsewhere = await edge.ask("POST", "/progress/", NOTE)
    assert elsewhere.status == 201
    go.set()
    await edge.until_state(second["outbox_id"], "acked")
    assert [body["title"] for path, body in upstream.log if path == "PATCH /tasks/1"] == ["one", "two"]
    assert await edge.state(first["outbox_id"]) == "acked"
    assert (await edge.ask("PATCH", "/tasks/1", at(upstream.rows["/tasks/1"], title="three"))).status == 200


@pytest.mark.req("R4")
async def test_whoever_hangs_up_before_its_turn_holds_nobody_up(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    go = asyncio.Event()
    upstream.acts.append(Act(waits=go))
    first = asyncio.create_task(edge.ask("PATCH", "/tasks/1", at(row, title="one")))
    await upstream.until(lambda: bool(upstream.writes))
    gone = [asyncio.create_task(edge.ask("PATCH", "/tasks/1", {"title": "gone"}, key="same")) for _ in range(3)]
    assert (await edge.ask("POST", "/progress/", NOTE, key="other")).status == 201
    for task in gone:
        task.cancel()
    last = asyncio.create_task(edge.ask("PATCH", "/tasks/1", {"title": "last"}))
    assert (await edge.ask("GET", "/tasks/1")).status == 200
    go.set()
    assert (await first).status == 200
    assert (await last).status == 200
    assert (await edge.ask("POST", "/messages/", NOTE, key="same")).status in {201, 409}


@pytest.mark.req("R4")
async def test_two_spellings_of_a_row_are_one_row(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/abc")
    await edge.go_offline(upstream)
    await edge.queue("PATCH", "/tasks/abc", at(row, title="one"))
    upstream.rule = lambda _: Act(applies=False, says=Say(429), waits=None)
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes))
    second = await edge.queue("PATCH", "/tasks/%61bc", at(row, title="two"))
    assert second["state"] == "queued"


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/tasks/1"),
        ("POST", "/tasks/"),
        ("POST", "/workplans/"),
        ("POST", "/admin/sweep"),
        ("PUT", "/tasks/1"),
    ],
)
async def test_what_is_online_only_is_forwarded_online_and_refused_offline(
    edge: Edge, upstream: FakeUpstream, method: str, path: str
) -> None:
    upstream.rule = lambda _: say(200, {"did": "it"})
    assert (await edge.ask(method, path, {"a": 1})).json == {"did": "it"}
    await edge.go_offline(upstream)
    refused = await edge.ask(method, path, {"a": 1}, key="k1")
    assert (refused.status, refused.code, refused.json["reason"]) == (503, "not_queueable", "online_only")
    assert int(refused.headers["retry-after"]) > 0
    assert (await edge.status())["pending"] == 0


@pytest.mark.req("R4")
async def test_what_is_online_only_does_not_overtake_what_waits_for_its_entity(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    receipt = await edge.queue("PATCH", "/tasks/1", at(row, title="one"))
    upstream.rule = lambda seen: problem(429, "later") if seen.method == "PATCH" else None
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes))
    refused = await edge.ask("DELETE", "/tasks/1")
    assert (refused.status, refused.code) == (503, "not_queueable")
    assert refused.json["reason"] == "entity_has_queued_writes"
    assert [seen.method for seen in upstream.writes if seen.method == "DELETE"] == []
    upstream.rule = lambda _: None
    await edge.ask("POST", "/replay")
    await edge.until_state(receipt["outbox_id"], "acked")
    assert (await edge.ask("DELETE", "/tasks/1")).status == 200


@pytest.mark.req("R4")
@pytest.mark.parametrize("act", [DROP, LOSE], ids=["reset", "lost"])
async def test_what_is_online_only_and_may_have_arrived_has_an_unknown_outcome(
    edge: Edge, upstream: FakeUpstream, act: Act
) -> None:
    upstream.row("/tasks/1")
    upstream.acts.append(act)
    unknown = await edge.ask("DELETE", "/tasks/1")
    assert (unknown.status, unknown.code) == (504, "outcome_unknown")
    assert (await edge.status())["pending"] == 0


@pytest.mark.req("R4", "R8")
async def test_a_replacing_write_without_an_expectation_goes_online_only(
    edge: Edge, upstream: FakeUpstream
) -> None:
    upstream.row("/tasks/1")
    assert (await edge.ask("PATCH", "/tasks/1", {"title": "x"})).status == 200
    upstream.acts.append(DROP)
    unknown = await edge.ask("PATCH", "/tasks/1", {"title": "y"})
    assert (unknown.status, unknown.code) == (504, "outcome_unknown")
    anything = await edge.ask("PATCH", "/tasks/1", {"title": "y"}, if_match="*")
    assert (anything.status, anything.json["reason"]) == (503, "needs_expectation")
    for body in (
        {"title": "y"},
        {"title": "y", "expected_status": ""},
        {"title": "y", "expected_updated_at": None},
    ):
        refused = await edge.ask("PATCH", "/tasks/1", body)
        assert (refused.status, refused.json["reason"]) == (503, "needs_expectation")
    for kind in ("PATCH /decisions/1", "POST /decisions/1/resolve", "PATCH /workplans/1"):
        method, path = kind.split()
        refused = await edge.ask(method, path, {"resolution": "y"})
        assert (refused.status, refused.json["reason"]) == (503, "needs_expectation")
    assert (await edge.queue("PATCH", "/tasks/1", {"title": "y"}, if_match='"1"'))["queued"]
    assert (await edge.queue("PATCH", "/tasks/2", {"title": "y", "expected_status": "todo"}))["queued"]
    assert (await edge.status())["pending"] == 2


@pytest.mark.req("R5")
async def test_a_body_that_is_too_large_to_wait_is_forwarded_and_not_queued(
    edge: Edge, upstream: FakeUpstream
) -> None:
    just, more = (json.dumps({"agent": "a", "summary": "x" * size}).encode() for size in (262_115, 262_116))
    assert (len(just), len(more)) == (256 * 1024, 256 * 1024 + 1)
    assert (await edge.ask("POST", "/progress/", more)).status == 201
    await edge.go_offline(upstream)
    refused = await edge.ask("POST", "/progress/", more)
    assert (refused.status, refused.json["reason"]) == (503, "too_large")
    receipt = await edge.queue("POST", "/progress/", just)
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    assert [seen.body for seen in upstream.writes_of(receipt["idempotency_key"])] == [just]


# --- reads -------------------------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_selected_reads_are_passed_on_and_others_are_not(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.row("/tasks/1", title="x")
    reply = await edge.ask("GET", "/tasks/1")
    assert (reply.status, reply.json["title"], "x-relay-queued" in reply.headers) == (200, "x", False)
    assert (await edge.ask("GET", "/admin/keys")).status == 404
    assert all(seen.target != "/admin/keys" for seen in upstream.seen)
    await edge.go_offline(upstream)
    assert (await edge.ask("GET", "/tasks/1")).status == 503


@pytest.mark.req("R4")
async def test_the_summary_may_be_stale_and_then_says_so(edge: Edge, upstream: FakeUpstream) -> None:
    fresh = await edge.ask("GET", "/state/summary")
    assert "stale" not in fresh.json
    await edge.go_offline(upstream)
    stale = await edge.ask("GET", "/state/summary")
    assert (stale.status, stale.json["stale"], stale.json["rows"]) == (200, True, 0)
    assert stale.json["stale_since"] == stale.headers["x-relay-stale-since"]
    assert (await edge.ask("GET", "/state/summary?other=1")).status == 503
    await edge.go_online(upstream)
    assert "stale" not in (await edge.ask("GET", "/state/summary")).json


@pytest.mark.req("R4")
async def test_a_summary_that_is_nested_deeply_is_shown_as_it_was(edge: Edge, upstream: FakeUpstream) -> None:
    raw = b'{"rows":' + b"[" * 300 + b"]" * 300 + b"}"
    upstream.reads = lambda _: Act(applies=False, says=Say(200, raw=raw))
    fresh = await edge.ask("GET", "/state/summary")
    await edge.go_offline(upstream)
    stale = await edge.ask("GET", "/state/summary")
    assert (stale.status, stale.json["stale"], stale.json["rows"]) == (200, True, fresh.json["rows"])


@pytest.mark.req("R10", "R4")
async def test_a_queued_write_is_never_shown_as_done(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    reply = await edge.ask("PATCH", "/tasks/1", at(row, status="done"))
    assert reply.status == 202
    assert not {"status", "id", "revision", "updated_at"} & reply.json.keys()
    assert not {"etag", "location", "idempotent-replayed"} & reply.headers.keys()
    upstream.rule = lambda _: problem(429, "later")
    await edge.go_online(upstream)
    shown = await edge.ask("GET", "/tasks/1")
    assert (shown.json["status"], shown.headers["x-relay-queued"]) == ("todo", "true")
    summary = await edge.ask("GET", "/state/summary")
    assert summary.json == {"rows": 1}


@pytest.mark.req("R10")
async def test_a_queued_write_causes_no_other_request(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    before = len(upstream.seen)
    receipt = await edge.queue("POST", "/decisions/", {"title": "t"})
    assert len(upstream.seen) == before
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    await edge.until_heard(Recovered)
    later = [(seen.method, seen.target) for seen in upstream.seen[before:]]
    assert [one for one in later if one[0] != "GET"] == [("POST", "/decisions/"), ("POST", "/progress/")]
    assert {target for method, target in later if method == "GET"} <= {"/health"}
