"""A broker that speaks nonsense, or sends more than there is room for: what can be stored is, without a break."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from claudemesh.daemon.settings import Config, Disk
from claudemesh.runtime.keys import KeyPair
from tests.acceptance.test_terms_and_tokens import GOOD
from tests.mesh import WITHIN_S, LocalDaemon, a_membership, a_welcome, local_daemon

MIB = 1 << 20


def item(number: int, body: str = "", **changes: object) -> dict[str, Any]:
    return {
        "history_id": number,
        "broker_message_id": f"B{number}",
        "client_message_id": f"m{number}",
        "sender_id": "S",
        "sender_pubkey": "a" * 64,
        "sender_name": "ann",
        "kind": "dm",
        "ref": "b" * 64,
        "body": body or str(number),
        "accepted_at": 1,
        **changes,
    }


def nest(depth: int) -> object:
    return [] if depth == 0 else [nest(depth - 1)]


UNSTORABLE = [
    item(10, meta={"n": 10**30}),
    item(11, meta={"n": -(2**64)}),
    item(12, meta={"deep": nest(300)}),
    item(10**30),
    item(13, accepted_at=2**63),
    item(14, kind="smoke_signal"),
    {"history_id": 15},
    "no item at all",
]


@dataclass
class Peer:
    """A broker that says what a test wants said, and notes what it is told."""

    early: list[Any] = field(default_factory=list)  # delivered while hands are shaken
    replays: list[dict[str, Any]] = field(default_factory=list)
    heard: "asyncio.Queue[object]" = field(default_factory=asyncio.Queue)  # hellos, acks and pauses
    socket: ServerConnection | None = None

    async def talk(self, socket: ServerConnection) -> None:
        self.socket = socket
        assert socket.request is not None
        await socket.send(a_welcome(socket.request.path))
        async for text in socket:
            await self._answer(socket, json.loads(text))

    async def deliver(self, *items: Any) -> None:  # noqa: ANN401  anything at all
        assert self.socket is not None
        await self.socket.send(json.dumps({"type": "deliver", "items": items}))

    async def _answer(self, socket: ServerConnection, frame: dict[str, Any]) -> None:
        if frame["type"] == "hello":
            self.heard.put_nowait("hello")
            ack = {"presenceId": "p", "memberId": "m", "meshSlug": "d", "leaseTtlMs": 1, "brokerVersion": "x"}
            await socket.send(json.dumps({"type": "hello_ack", **ack}))
            if self.early:
                await self.deliver(*self.early)
        elif frame["type"] == "feature_negotiation_request":
            await socket.send(json.dumps({"type": "feature_negotiation_response", "supported": GOOD}))
        elif frame["type"] == "ack":
            self.heard.put_nowait(frame["ids"])
        else:
            result: dict[str, Any] = {"members": [], "items": [], "upto_history_id": None}
            if frame["op"] == "replay" and self.replays:
                result = self.replays.pop(0)
            if frame["op"] == "deliver.pause":
                self.heard.put_nowait(frame["args"])
            await socket.send(json.dumps({"type": "reply", "n": frame["n"], "result": result}))

    @asynccontextmanager
    async def daemon(self, state_dir: Path, config: Config | None = None) -> AsyncIterator[LocalDaemon]:
        async with serve(self.talk, "127.0.0.1", 0) as server:
            joined = a_membership("demo", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with local_daemon(state_dir, keys=KeyPair.generate(), joined=joined, config=config) as daemon:
                yield daemon


async def counted(daemon: LocalDaemon) -> int:
    text = (await daemon.request("GET", "/v1/metrics")).body
    (line,) = [line for line in text.splitlines() if line.startswith("cm_daemon_invalid_inbound_total ")]
    return int(float(line.split()[1]))


@pytest.mark.req("Q1")
async def test_an_item_that_nobody_can_store_is_counted_and_holds_back_nothing(tmp_path: Path) -> None:
    peer = Peer(
        early=[UNSTORABLE[0], item(2)],
        replays=[{"items": [item(1), *UNSTORABLE], "upto_history_id": None}],
    )
    async with peer.daemon(tmp_path / "demo") as daemon, asyncio.timeout(WITHIN_S):
        assert await peer.heard.get() == "hello"
        assert await peer.heard.get() == [2]
        await peer.deliver(item(3), *UNSTORABLE, item(4))
        assert await peer.heard.get() == [3, 4], "what was not stored is not acknowledged"
        await peer.deliver(*UNSTORABLE)
        await peer.deliver(item(5, meta={"n": 2**64 - 1}))
        assert await peer.heard.get() == [5]
        assert [message["body"] for message in await daemon.inbox()] == ["1", "2", "3", "4", "5"]
        log = (tmp_path / "demo" / "daemon.log").read_text()
        assert await counted(daemon) == log.count("daemon.inbound_refused") == 1 + 3 * len(UNSTORABLE)


@pytest.mark.req("D11", "Q1", "D9")
async def test_a_lost_inbox_that_has_no_room_to_come_back_says_so_and_goes_on_when_there_is(tmp_path: Path) -> None:
    def page(first: int, upto: int | None) -> dict[str, Any]:
        return {
            "items": [item(number, f"{number} " + "x" * 100_000) for number in range(first, first + 12)],
            "upto_history_id": upto,
        }

    peer = Peer(early=[item(99)], replays=[page(1, 12), page(13, None)])
    config = Config(disk=Disk(reserved_bytes=MIB))
    async with peer.daemon(tmp_path / "demo", config) as daemon, asyncio.timeout(WITHIN_S):
        assert await peer.heard.get() == "hello"
        assert await peer.heard.get() == {"paused": True, "reason": "inbox_full"}
        assert len(await daemon.inbox()) == 12
        (tmp_path / "demo" / "config.toml").write_text(f"[disk]\nreserved_bytes = {16 * MIB}\n")
        assert (await daemon.post("/v1/reload", {})).body["applied"] == ["disk.reserved_bytes"]
        assert await peer.heard.get() == {"paused": False}
        assert await peer.heard.get() == [99]
        found = [message["history_id"] for message in await daemon.inbox()]
        assert found == [*range(1, 25), 99]
        assert await counted(daemon) == 0
