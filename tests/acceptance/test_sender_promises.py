"""What the sender makes of a broker's answers: the daemon's own socket on one side, the wire on the other."""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World
from claudemesh.wire.instants import parse_instant
from tests.mesh import WITHIN_S, LocalDaemon, a_membership, a_welcome, local_daemon

OFFER = {
    "client_message_id_dedupe": {
        "params": {
            "version": 2,
            "mode": "retention_scoped",
            "dedupe_retention_days": 365,
            "request_fingerprint": True,
        }
    },
    "concurrent_connection_policy": {"params": {"version": 1}},
}
ACK = {"presenceId": "p", "memberId": "m", "meshSlug": "demo", "leaseTtlMs": 1, "brokerVersion": "x"}

Item = dict[str, Any]
TAKEN = {"status": 201, "broker_message_id": "B", "history_id": 1}


@dataclass
class ScriptedBroker:
    """Takes every hello, and answers each message as `judge` says; None is a connection that ends instead."""

    judge: Callable[[Item], Item | None]
    offer: dict[str, Any]
    accepted: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    asked: list[str] = field(default_factory=list)
    members: list[Item] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    wondered: list[str] = field(default_factory=list)  # whose receipts were asked for
    moved: dict[str, str] = field(default_factory=dict)  # how far a message has come by now
    held: asyncio.Event | None = None  # no answer before it is set
    answering: list["asyncio.Task[None]"] = field(default_factory=list)

    async def talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        await socket.send(a_welcome(socket.request.path))
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "hello":
                await socket.send(json.dumps({"type": "hello_ack", **ACK}))
            elif frame["type"] == "feature_negotiation_request":
                await socket.send(json.dumps({"type": "feature_negotiation_response", "supported": self.offer}))
            elif frame["type"] == "call":
                self.calls.append(frame["op"])
                ids = frame.get("args", {}).get("ids", ())
                self.wondered += ids
                items = [{"client_message_id": id_, "state": self.moved[id_]} for id_ in ids if id_ in self.moved]
                result = {"members": self.members, "items": items, "upto_history_id": None}
                reply = {"type": "reply", "n": frame["n"], "result": result}
                self.answering.append(asyncio.create_task(self._reply(socket, reply)))
            elif frame["type"] == "send":
                self.asked += [item["client_message_id"] for item in frame["items"]]
                self.answering.append(asyncio.create_task(self._answer(socket, frame)))

    async def _reply(self, socket: ServerConnection, reply: dict[str, Any]) -> None:
        if self.held is not None:
            await self.held.wait()
        with suppress(ConnectionClosed):
            await socket.send(json.dumps(reply))

    async def _answer(self, socket: ServerConnection, frame: dict[str, Any]) -> None:
        if self.held is not None:
            await self.held.wait()
        deferred: set[str] = set()
        outcomes = [self._outcome(item, deferred) for item in frame["items"]]
        if None in outcomes:
            await socket.close()
        else:
            await socket.send(json.dumps({"type": "send_result", "n": frame["n"], "outcomes": outcomes}))

    def _outcome(self, item: Item, deferred: set[str]) -> Item | None:
        if item["ref"] in deferred:
            return {"status": 425, "code": "predecessor_deferred"}
        outcome = self.judge(item)
        if outcome is not None and outcome["status"] in (200, 201):
            self.accepted[item["ref"]].append(item["client_message_id"])
        elif outcome is not None and (outcome["status"] >= 500 or outcome["status"] in (408, 425, 429)):
            deferred.add(item["ref"])
        return outcome


@asynccontextmanager
async def sending(
    folder: Path, judge: Callable[[Item], Item | None], offer: dict[str, Any] | None = None
) -> AsyncIterator[tuple[ScriptedBroker, LocalDaemon]]:
    broker = ScriptedBroker(judge, OFFER if offer is None else offer)
    async with serve(broker.talk, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        joined = a_membership("demo", url)
        async with local_daemon(folder / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            await daemon.until(lambda health: health["connected"])
            yield broker, daemon


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    monkeypatch.setattr("tests.mesh.real_world", lambda: World(clock, UlidSource(clock), lambda: 0.0))


async def row(daemon: LocalDaemon, key: str) -> dict[str, Any]:
    """Return the row of a send once it has come to an end."""
    found = await daemon.until(
        lambda inspected: inspected["row"]["status"] not in ("pending", "inflight"), f"/v1/outbox/{key}"
    )
    settled: dict[str, Any] = found["row"]
    return settled


@pytest.mark.req("N2")
@pytest.mark.parametrize(
    ("feature", "params"),
    [
        ("concurrent_connection_policy", {"version": 1, "default_policy": "prefer_loudest"}),
        ("max_payload", {"inline_bytes": 100, "blob_bytes": 4096}),
        ("max_payload", {"inline_bytes": 600_000, "blob_bytes": "large"}),
        ("key_epoch", {"max_concurrent_epochs": 0}),
    ],
)
async def test_a_bad_optional_parameter_is_told_and_the_daemons_own_default_holds(
    tmp_path: Path, feature: str, params: dict[str, Any]
) -> None:
    async with sending(tmp_path, lambda _: TAKEN, OFFER | {feature: {"params": params}}) as (_, daemon):
        assert (await daemon.send("queue:q", "x" * 524_288, client_message_id="m1")).status == 202
        limit = 600_000 if params.get("inline_bytes") == 600_000 else 524_288
        assert (await daemon.send("queue:q", "x" * (limit + 1), client_message_id="m2")).status == 413
        warned = [line for line in (daemon.state_dir / "daemon.log").read_text().splitlines() if feature in line]
        assert warned


@pytest.mark.req("D2")
async def test_a_name_that_the_directory_has_not_is_asked_for_once(tmp_path: Path) -> None:
    async with sending(tmp_path, lambda _: TAKEN) as (broker, daemon):
        await daemon.until(lambda _: broker.calls.count("directory") == 1)
        assert (await daemon.send("bob", "x", client_message_id="m1")).status == 404
        assert broker.calls.count("directory") == 2
        broker.members = [{"member_id": "1", "name": "bob", "pubkey": "b" * 64, "role": "member"}]
        assert (await daemon.send("bob", "x", client_message_id="m1")).status == 202
        assert (await daemon.send("bob", "x", client_message_id="m2")).status == 202
        assert broker.calls.count("directory") == 3


@pytest.mark.req("D7")
@pytest.mark.parametrize("status", [None, 408, 425, 429, 500, 503])
async def test_an_answer_that_is_not_final_is_tried_again_under_the_same_id(
    tmp_path: Path, status: int | None
) -> None:
    answers = iter([None if status is None else {"status": status, "code": "for_now"}])
    async with sending(tmp_path, lambda _: next(answers, TAKEN)) as (broker, daemon):
        await daemon.send("queue:q", "x", client_message_id="m1")
        settled = await row(daemon, "m1")
        assert (settled["status"], settled["attempts"], settled["last_error"]) == ("done", 1, None)
        assert broker.asked == ["m1", "m1"]


@pytest.mark.req("Q6")
async def test_receipts_that_were_missed_are_asked_for_on_the_next_connection(tmp_path: Path) -> None:
    answers = iter([TAKEN, None])
    async with sending(tmp_path, lambda _: next(answers, TAKEN)) as (broker, daemon):
        reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"here you are")
        await daemon.send("queue:q", "x", client_message_id="m1")
        await row(daemon, "m1")
        broker.moved = {"m1": "read"}  # no hint of it comes: the connection ends with the next send
        await daemon.send("queue:q", "x", client_message_id="m2")
        async with asyncio.timeout(WITHIN_S):
            await reader.readuntil(b'"client_message_id":"m1","state":"read"')
        writer.close()


@pytest.mark.req("Q6")
async def test_receipts_that_moved_while_the_daemon_was_off_are_asked_for_after_its_start(tmp_path: Path) -> None:
    async with sending(tmp_path, lambda item: TAKEN | {"broker_message_id": item["body"]}) as (broker, daemon):
        for key in ("m1", "m2"):
            await daemon.send("queue:q", f"B {key}", client_message_id=key)
            await row(daemon, key)
        reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n")
        seen = (await reader.readuntil(b"here you are")).rpartition(b"id: ")[2].split()[0]
        writer.close()
        daemon.stopping.set()
        assert daemon.task is not None
        await daemon.task
        broker.moved = {"m1": "read"}
        async with local_daemon(daemon.state_dir, keys=daemon.keys) as again:
            reader, writer = await asyncio.open_unix_connection(str(again.state_dir / "sock"))
            writer.write(b"GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: " + seen + b"\r\n\r\n")
            async with asyncio.timeout(WITHIN_S):
                await reader.readuntil(b'"client_message_id":"m1","state":"read"')
            writer.close()
        assert broker.wondered == ["m1", "m2"], "the oldest first: beyond a bound they are the first to go"


@pytest.mark.req("D7", "F5")
@pytest.mark.parametrize("rolled", [0.0, 0.9])
async def test_a_row_that_is_told_when_to_come_back_waits_that_long_and_a_jitter_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolled: float
) -> None:
    clock = SystemClock()
    monkeypatch.setattr("tests.mesh.real_world", lambda: World(clock, UlidSource(clock), lambda: rolled))
    answer = {"status": 429, "code": "rate_limited", "retry_after_ms": 60_000}
    async with sending(tmp_path, lambda _: answer) as (_, daemon):
        before_ms = clock.wall_ms()
        await daemon.send("queue:q", "x", client_message_id="m1")
        found = await daemon.until(lambda inspected: inspected["row"]["attempts"] == 1, "/v1/outbox/m1")
        wait_ms = 60_000 + int(500 * rolled)
        assert before_ms + wait_ms <= parse_instant(found["row"]["next_attempt_at"]) <= clock.wall_ms() + wait_ms


@pytest.mark.req("D7")
@pytest.mark.parametrize("status", [400, 403, 404, 409, 413])
async def test_an_answer_that_says_never_ends_the_row_and_holds_nobody_up(tmp_path: Path, status: int) -> None:
    answers = iter([{"status": status, "code": "no_way"}])
    async with sending(tmp_path, lambda _: next(answers, TAKEN)) as (broker, daemon):
        await daemon.send("queue:q", "x", client_message_id="m1")
        settled = await row(daemon, "m1")
        assert (settled["status"], settled["last_error"]) == ("dead", "no_way")
        await daemon.send("queue:q", "x", client_message_id="m2")
        assert (await row(daemon, "m2"))["status"] == "done"
        assert broker.asked == ["m1", "m2"]


@pytest.mark.req("D7")
async def test_what_the_broker_had_but_keeps_no_more_is_done_and_counted(tmp_path: Path) -> None:
    async with sending(tmp_path, lambda _: TAKEN | {"status": 200, "history_available": False}) as (_, daemon):
        await daemon.send("queue:q", "x", client_message_id="m1")
        assert (await row(daemon, "m1"))["status"] == "done"
        metrics = (await daemon.request("GET", "/v1/metrics")).body.splitlines()
        assert "cm_daemon_dedupe_history_pruned_total 1.0" in metrics
        assert "history_pruned" in (daemon.state_dir / "daemon.log").read_text(), "and an operator is warned"


@pytest.mark.req("D7")
async def test_a_destination_that_waits_keeps_its_order_and_holds_back_no_other(tmp_path: Path) -> None:
    refusals = iter(range(3))

    def judge(item: Item) -> Item:
        is_refused = item["client_message_id"] == "a2" and next(refusals, None) is not None
        return {"status": 503, "code": "for_now"} if is_refused else TAKEN

    async with sending(tmp_path, judge) as (broker, daemon):
        broker.held = asyncio.Event()
        await daemon.send("queue:a", "x", client_message_id="a0")
        await daemon.until(lambda _: broker.asked == ["a0"])
        keys = [f"{to}{number}" for number in range(1, 6) for to in "ab"]
        sends = [{"to": f"queue:{key[0]}", "message": "x", "client_message_id": key} for key in keys]
        await daemon.post("/v1/send/batch", {"sends": sends})
        await daemon.until(lambda _: "b5" in broker.asked)
        early = [key for key in broker.asked if key.startswith("a")]
        assert early == ["a0"], "a batch is out: the next one of its destination waits for the answer"
        broker.held.set()
        await daemon.until(lambda health: health["queue_depth"] == health["inflight"] == 0)
        assert broker.accepted == {
            "a": [f"a{number}" for number in range(6)],
            "b": [f"b{number}" for number in range(1, 6)],
        }


@pytest.mark.req("D7")
async def test_a_row_that_the_broker_fails_at_while_it_takes_others_dies_in_the_end(tmp_path: Path) -> None:
    def judge(item: Item) -> Item:
        return {"status": 500, "code": "internal_error"} if item["client_message_id"] == "poison" else TAKEN

    async with sending(tmp_path, judge) as (broker, daemon):
        await daemon.send("queue:a", "x", client_message_id="poison")
        await daemon.send("queue:a", "x", client_message_id="behind")
        await daemon.until(lambda _: len(broker.asked) > 60)
        assert (await daemon.get("/v1/outbox/poison"))["row"]["status"] != "dead", "nothing else passes"
        async with asyncio.timeout(WITHIN_S):
            for number in itertools.count():  # a busy machine answers many of them in one batch
                await daemon.send("queue:b", "x", client_message_id=f"other-{number}")
                if (await daemon.get("/v1/outbox/poison"))["row"]["status"] == "dead":
                    break
        settled = await row(daemon, "poison")
        assert (settled["status"], settled["last_error"]) == ("dead", "attempts_exhausted")
        assert (await row(daemon, "behind"))["status"] == "done"


@pytest.mark.req("D1")
async def test_a_request_that_is_under_way_when_the_daemon_stops_gets_its_answer(tmp_path: Path) -> None:
    async with sending(tmp_path, lambda _: TAKEN) as (broker, daemon):
        broker.held = asyncio.Event()
        asking = asyncio.create_task(daemon.post("/v1/queue/ack", {"queue": "q", "id": "m", "token": 1}))
        await daemon.until(lambda _: "queue.ack" in broker.calls)
        daemon.stopping.set()
        async with asyncio.timeout(WITHIN_S):
            while (daemon.state_dir / "sock").exists():  # noqa: ASYNC110  it is gone when nobody new is let in
                await asyncio.sleep(0.01)
        assert not asking.done()
        broker.held.set()
        assert (await asking).status == 200
