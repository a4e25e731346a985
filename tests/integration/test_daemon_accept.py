"""What a caller is told of a send, by a real daemon on its socket that has no broker to talk to."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.keys import KeyPair
from tests.mesh import LocalDaemon, local_daemon

BOB = "b" * 64


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[LocalDaemon]:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate()) as running:
        yield running


async def rows(daemon: LocalDaemon) -> list[dict[str, Any]]:
    return (await daemon.get("/v1/outbox"))["rows"]


@pytest.mark.req("D1")
async def test_an_accepted_send_is_a_row_in_the_file_when_it_is_answered(daemon: LocalDaemon) -> None:
    answer = await daemon.send(BOB, "hello", client_message_id="m1")
    assert (answer.status, answer.body) == (202, {"client_message_id": "m1", "status": "queued"})
    assert [(row["client_message_id"], row["status"]) for row in await rows(daemon)] == [("m1", "pending")]


@pytest.mark.req("F1")
async def test_the_id_is_the_headers_or_the_bodys_or_a_new_one(daemon: LocalDaemon) -> None:
    body = {"to": BOB, "message": "x"}
    by_header = await daemon.post("/v1/send", body, idempotency_key="h1")
    by_body = await daemon.post("/v1/send", body | {"client_message_id": "b1"})
    minted = await daemon.post("/v1/send", body)
    both = await daemon.post("/v1/send", body | {"client_message_id": "same"}, idempotency_key="same")
    differ = await daemon.post("/v1/send", body | {"client_message_id": "b2"}, idempotency_key="h2")
    assert [a.body["client_message_id"] for a in (by_header, by_body, both)] == ["h1", "b1", "same"]
    assert len(minted.body["client_message_id"]) == 26
    assert (differ.status, differ.body["code"]) == (400, "invalid_request")
    assert len(await rows(daemon)) == 4


@pytest.mark.req("F1")
@pytest.mark.parametrize("bad", ["", "x" * 129, "a b", "naïve", "a\tb"])
async def test_an_id_that_is_not_visible_ascii_is_refused_and_nothing_is_stored(
    daemon: LocalDaemon, bad: str
) -> None:
    answer = await daemon.send(BOB, "x", client_message_id=bad)
    assert (answer.status, answer.body["code"]) == (400, "invalid_client_message_id")
    assert await rows(daemon) == []


async def behind(daemon: LocalDaemon, *statements: str) -> None:
    """Run statements on the outbox behind the daemon's back, in a process of their own."""
    script = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(5000)
for statement in sys.argv[2:]:
    connection.execute(statement)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(daemon.state_dir / "outbox.db"), *statements
    )
    assert await process.wait() == 0


async def empty(daemon: LocalDaemon, *ids: str) -> None:
    """Empty rows, as a prune does when they are old."""
    emptying = "UPDATE outbox SET payload = x'' WHERE client_message_id ="
    await behind(daemon, *(f"{emptying} '{one}'" for one in ids))


async def force(daemon: LocalDaemon, state: OutboxState) -> None:
    """Bring the row `m1` into a state, as its life would."""
    extra = {
        OutboxState.DONE: ", broker_message_id = 'B1', history_id = 7",
        OutboxState.DEAD: ", last_error = 'why'",
        OutboxState.ABORTED: ", aborted_at = 1, aborted_by = 'operator'",
    }.get(state, "")
    changed = f"status = '{state.value}'{extra}"
    await behind(daemon, f"UPDATE outbox SET {changed} WHERE client_message_id = 'm1'")  # noqa: S608 - our own words


TABLE = [
    (OutboxState.PENDING, True, 202, {"status": "queued", "duplicate": True}),
    (OutboxState.PENDING, False, 409, {"conflict": "outbox_pending_fingerprint_mismatch"}),
    (OutboxState.INFLIGHT, True, 202, {"status": "inflight", "duplicate": True}),
    (OutboxState.INFLIGHT, False, 409, {"conflict": "outbox_inflight_fingerprint_mismatch"}),
    (
        OutboxState.DONE,
        True,
        200,
        {"status": "accepted", "duplicate": True, "broker_message_id": "B1", "history_id": 7},
    ),
    (
        OutboxState.DONE,
        False,
        409,
        {"conflict": "outbox_done_fingerprint_mismatch", "broker_message_id": "B1"},
    ),
    (OutboxState.DEAD, True, 409, {"conflict": "outbox_dead_fingerprint_match", "reason": "why"}),
    (OutboxState.DEAD, False, 409, {"conflict": "outbox_dead_fingerprint_mismatch"}),
    (OutboxState.ABORTED, True, 409, {"conflict": "outbox_aborted_fingerprint_match"}),
    (OutboxState.ABORTED, False, 409, {"conflict": "outbox_aborted_fingerprint_mismatch"}),
]


@pytest.mark.req("D3", "D4")
@pytest.mark.parametrize(("state", "is_same", "status", "said"), TABLE)
async def test_the_same_id_again_is_answered_by_the_table_and_changes_no_row(
    daemon: LocalDaemon,
    state: OutboxState,
    is_same: bool,  # noqa: FBT001
    status: int,
    said: dict[str, Any],
) -> None:
    first = await daemon.send(BOB, "hello", client_message_id="m1")
    assert first.status == 202
    await force(daemon, state)
    before = await rows(daemon)
    answer = await daemon.send(BOB, "hello" if is_same else "other", client_message_id="m1")
    assert answer.status == status
    assert {name: answer.body.get(name) for name in said} == said
    if status == 409:
        assert answer.body["code"] == "idempotency_key_reused"
        assert len(answer.body["fingerprint_prefix"]) == 16
        prefixes = {row["fingerprint_prefix"] for row in before}
        assert (answer.body["fingerprint_prefix"] in prefixes) == is_same
    assert await rows(daemon) == before


@pytest.mark.req("D2")
async def test_a_retry_is_answered_before_any_check_that_a_new_send_meets(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    big = "x" * 2000
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert (await daemon.send(BOB, big, client_message_id="m1")).status == 202
    outbox = SqliteOutboxStore.open(state_dir / "outbox.db")
    await outbox.remember("terms", json.dumps({"inline_bytes": 1024}))  # as if a broker had said so since
    outbox.close()
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert (await daemon.send(BOB, big, client_message_id="m1")).status == 202
        refused = await daemon.send(BOB, big, client_message_id="m2")
        assert (refused.status, refused.body["code"]) == (413, "payload_too_large")
        assert (await daemon.send(BOB, "small", client_message_id="m2")).status == 202, "the id was still free"


@pytest.mark.req("D2")
async def test_a_name_that_nobody_has_is_refused_and_leaves_the_id_free(daemon: LocalDaemon) -> None:
    unknown = await daemon.send("nobody", "x", client_message_id="m1")
    assert (unknown.status, unknown.body["code"]) == (404, "unknown_destination")
    assert (await daemon.send(BOB, "x", client_message_id="m1")).status == 202


@pytest.mark.req("F2a")
@pytest.mark.parametrize(
    "body",
    [
        b'{"to": "%s", "message": "x", "meta": {"n": 9007199254740993}}' % BOB.encode(),
        b'{"to": "%s", "message": "x", "meta": {"n": NaN}}' % BOB.encode(),
        b'{"to": "%s", "message": "x", "meta": {"n": 1e400}}' % BOB.encode(),
        b'{"to": "%s", "message": "nul \\u0000"}' % BOB.encode(),
        b'{"to": "%s", "message": "lone \\ud800"}' % BOB.encode(),
        b'{"to": "%s", "message": "x", "meta": {"k": "\\u0000"}}' % BOB.encode(),
        b'{"to": "%s", "message": 1}' % BOB.encode(),
        b'{"to": "%s"}' % BOB.encode(),
        b'{"to": "#bad topic", "message": "x"}',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
)
async def test_what_has_no_stored_form_is_a_clear_400_and_nothing_is_stored(
    daemon: LocalDaemon, body: bytes
) -> None:
    reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
    head = f"POST /v1/send HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    status, problem = int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (status, problem["code"], problem["retry"]) == (400, "invalid_request", "no")
    assert await rows(daemon) == []


@pytest.mark.req("D17")
async def test_in_a_batch_every_send_has_its_own_outcome(daemon: LocalDaemon) -> None:
    await daemon.send(BOB, "first", client_message_id="m0")
    sends = [
        {"to": BOB, "message": "a", "client_message_id": "m1"},
        {"to": BOB, "message": "a", "client_message_id": "m1"},
        {"to": BOB, "message": "b", "client_message_id": "m1"},
        {"to": BOB, "message": "other", "client_message_id": "m0"},
        {"to": "nobody", "message": "x", "client_message_id": "m2"},
        {"to": BOB, "message": 5},
        "nonsense",
        {"to": BOB, "message": "last", "client_message_id": "m3"},
    ]
    answer = await daemon.post("/v1/send/batch", {"sends": sends})
    assert answer.status == 200
    outcomes = answer.body["outcomes"]
    assert [o["http_status"] for o in outcomes] == [202, 202, 409, 409, 404, 400, 400, 202]
    assert outcomes[2]["conflict"] == "outbox_pending_fingerprint_mismatch"
    assert [row["client_message_id"] for row in await rows(daemon)] == ["m0", "m1", "m3"]


@pytest.mark.req("D17")
async def test_a_batch_has_no_key_of_its_own_and_at_most_a_thousand_sends(daemon: LocalDaemon) -> None:
    one = {"to": BOB, "message": "x"}
    with_key = await daemon.post("/v1/send/batch", {"sends": [one]}, idempotency_key="k")
    too_many = await daemon.post("/v1/send/batch", {"sends": [one] * 1001})
    assert [with_key.status, too_many.status] == [400, 400]
    full = await daemon.post("/v1/send/batch", {"sends": [one] * 1000})
    assert {o["http_status"] for o in full.body["outcomes"]} == {202}
    assert (await daemon.get("/v1/health"))["queue_depth"] == 1000


@pytest.mark.req("D3")
async def test_of_many_callers_with_one_id_one_row_comes(daemon: LocalDaemon) -> None:
    answers = await asyncio.gather(*(daemon.send(BOB, "x", client_message_id="m1") for _ in range(32)))
    assert {(a.status, a.body["status"]) for a in answers} == {(202, "queued")}
    assert len(await rows(daemon)) == 1


@pytest.mark.req("D9")
async def test_a_restart_takes_up_what_was_out_and_counts_the_try(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        await daemon.send(BOB, "x", client_message_id="m1")
        await force(daemon, OutboxState.INFLIGHT)
    async with local_daemon(state_dir, keys=keys) as daemon:
        (row,) = await rows(daemon)
        assert (row["status"], row["attempts"]) == ("pending", 1)


@pytest.mark.req("D10", "D6")
async def test_requeue_retires_the_old_id_and_sends_under_a_fresh_one(daemon: LocalDaemon) -> None:
    await daemon.send(BOB, "hello", client_message_id="m1")
    await force(daemon, OutboxState.DEAD)
    (old,) = await rows(daemon)
    done = await daemon.post("/v1/outbox/requeue", {"id": old["id"], "patch": {"message": "mended"}})
    assert done.status == 200, done.body
    before, after = await rows(daemon)
    assert (before["status"], before["superseded_by"], before["aborted_by"]) == ("aborted", after["id"], "operator")
    assert (after["status"], after["client_message_id"]) == ("pending", done.body["client_message_id"])
    again = await daemon.send(BOB, "hello", client_message_id="m1")
    assert (again.status, again.body["conflict"]) == (409, "outbox_aborted_fingerprint_match")
    inspected = await daemon.get(f"/v1/outbox/{after['id']}")
    assert inspected["ancestors"] == [before["id"]]


@pytest.mark.req("D10", "D4")
@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"message": "AAA"}, {"message": "BBB"}),
        ({"message": "AAA"}, None),
        (None, {"message": "BBB"}),
        ({"message": "AAA"}, {"message": "AAA", "priority": "now"}),
        ({"meta": {"a": 1}}, {"meta": {"a": 2}}),
        (None, {"to": "#other"}),
    ],
)
async def test_a_requeue_under_the_same_new_id_is_a_replay_only_of_the_same_message(
    daemon: LocalDaemon, first: dict[str, Any] | None, other: dict[str, Any] | None
) -> None:
    await daemon.send(BOB, "hello", client_message_id="m1")
    (old,) = await rows(daemon)
    asked = {"id": old["id"], "new_client_id": "m2"}
    done = await daemon.post("/v1/outbox/requeue", asked | ({} if first is None else {"patch": first}))
    again = await daemon.post("/v1/outbox/requeue", asked | ({} if first is None else {"patch": first}))
    assert (done.status, again.status) == (200, 200)
    assert (done.body["superseded_by"], True) == (again.body["superseded_by"], again.body["replayed"])
    refused = await daemon.post("/v1/outbox/requeue", asked | ({} if other is None else {"patch": other}))
    assert (refused.status, refused.body["code"]) == (409, "idempotency_key_reused")
    assert refused.body["conflict"] == "outbox_pending_fingerprint_mismatch"
    _, successor = await rows(daemon)
    assert len(refused.body["fingerprint_prefix"]) == 16
    assert refused.body["fingerprint_prefix"] != successor["fingerprint_prefix"], "it is of what was asked now"


@pytest.mark.req("D10", "D6")
@pytest.mark.parametrize("emptied", [["m1"], ["m1", "m2"]])
async def test_a_requeue_of_a_row_that_was_emptied_since_answers_as_before(
    daemon: LocalDaemon, emptied: list[str]
) -> None:
    await daemon.send(BOB, "hello", client_message_id="m1")
    (old,) = await rows(daemon)
    asked = {"id": old["id"], "new_client_id": "m2"}
    assert (await daemon.post("/v1/outbox/requeue", asked)).status == 200
    await empty(daemon, *emptied)
    again = await daemon.post("/v1/outbox/requeue", asked)
    assert (again.status, again.body.get("replayed")) == (200, True)
    refused = await daemon.post("/v1/outbox/requeue", asked | {"patch": {"message": "BBB"}})
    code = "transition_refused" if "m2" in emptied else "idempotency_key_reused"
    assert (refused.status, refused.body["code"]) == (409, code), "what nobody can compare is no replay"


@pytest.mark.req("D10")
async def test_a_row_that_was_tried_is_not_given_up_without_the_brokers_word(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        await daemon.send(BOB, "x", client_message_id="m1")
        await force(daemon, OutboxState.INFLIGHT)
    async with local_daemon(state_dir, keys=keys) as daemon:
        (row,) = await rows(daemon)
        refused = await daemon.post("/v1/outbox/drop", {"id": row["id"]})
        assert (refused.status, refused.body["code"]) == (503, "broker_unreachable")
        assert (await rows(daemon))[0]["status"] == "pending"
        forced = await daemon.post("/v1/outbox/drop", {"id": row["id"], "force": True})
        assert (forced.status, forced.body["status"]) == (200, "aborted")


@pytest.mark.req("D10")
async def test_an_operator_is_told_why_a_row_cannot_be_given_up(daemon: LocalDaemon) -> None:
    await daemon.send(BOB, "x", client_message_id="m1")
    await force(daemon, OutboxState.DONE)
    (row,) = await rows(daemon)
    done = await daemon.post("/v1/outbox/requeue", {"id": row["id"]})
    nothing = await daemon.post("/v1/outbox/drop", {"id": "01NOPE"})
    assert [(a.status, a.body["code"]) for a in (done, nothing)] == [
        (409, "transition_refused"),
        (404, "not_found"),
    ]


async def test_trace_of_a_waiting_send_shows_what_it_rests_on(daemon: LocalDaemon) -> None:
    await daemon.send(BOB, "x", client_message_id="m1")
    trace = await daemon.get("/v1/trace/m1")
    assert (trace["client_message_id"], trace["state"]) == ("m1", "queued")
    assert [step["state"] for step in trace["steps"]] == ["queued"]
    assert (await rows(daemon))[0]["id"] in trace["steps"][0]["evidence"]
    assert (await daemon.request("GET", "/v1/trace/unknown")).status == 404
