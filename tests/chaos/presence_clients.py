"""Bare clients of the wire: sessions that show that they are there, and come back when they are cut off."""

# ruff: noqa: ANN401 - changes to a hello are of any type

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException

from claudemesh.daemon import identity
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import real_world
from claudemesh.wire import frames, signing
from claudemesh.wire.invite import Membership
from tests.integration.broker_client import Peer, RunningBroker, Wire, ids, opened
from tests.integration.test_broker_hello import attest

WITHIN_S = 60.0
AT_ONCE = 25  # that come at once in the beginning: it is their return that is tested


def peer_of(state_dir: Path, url: str) -> Peer:
    """Return the member of a state directory as a bare client, under an instance of its own."""
    joined = identity.load_membership(state_dir)
    names = {field: getattr(joined, field) for field in Membership.__struct_fields__}
    running = RunningBroker(url, asyncio.Event(), real_world())
    return Peer(running, identity.load_keys(state_dir), Membership(**names))


@asynccontextmanager
async def attach(peer: Peer, keys: KeyPair, **changes: Any) -> AsyncIterator[Wire]:
    """Say hello with a session's key, vouched for unless it is said otherwise; it only shows that it is there."""
    async with opened(peer.broker) as wire:
        said = {"attestation": attest(peer.keys, keys), "session_pubkey": keys.pubkey, "presence_only": True}
        hello = peer.hello(wire.nonce, **said | {"signature": ""} | changes)
        await wire.say(msgspec.structs.replace(hello, signature=keys.sign(signing.hello_bytes(wire.nonce, hello))))
        wire.ack = await wire.expect(frames.HelloAck)
        yield wire


@dataclass
class Comer:
    """One session that is there for as long as it is let: cut off, it comes back with full jitter."""

    peer: Peer
    keys: KeyPair = field(default_factory=KeyPair.generate)
    instance_id: str = field(default_factory=ids.ulid)
    token: str | None = None
    resumed: list[bool] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    is_there: asyncio.Event = field(default_factory=asyncio.Event)

    def move(self, running: RunningBroker) -> None:
        """Go to another broker from now on."""
        self.peer = replace(self.peer, broker=running)

    async def run(self) -> None:
        attempts = 0
        while True:
            with suppress(ConnectionClosed, WebSocketException, OSError, TimeoutError, EOFError):
                await self._once()
                raise AssertionError("it ends by itself never")
            attempts = 1 if self.is_there.is_set() else attempts + 1
            self.is_there.clear()
            await asyncio.sleep(derive_backoff_ms(attempts, random.random()) / 1000)  # noqa: S311

    async def _once(self) -> None:
        async with opened(self.peer.broker) as wire:
            token, self.token = self.token, None  # a hello uses it up
            said = {"attestation": attest(self.peer.keys, self.keys), "session_pubkey": self.keys.pubkey}
            said |= {"instance_id": self.instance_id, "presence_only": True, "resume_token": token}
            hello = self.peer.hello(wire.nonce, signature="", **said)
            signature = self.keys.sign(signing.hello_bytes(wire.nonce, hello))
            await wire.say(msgspec.structs.replace(hello, signature=signature))
            answer: Any = await wire.expect(frames.HelloAck | frames.Error)  # type: ignore[arg-type]
            if isinstance(answer, frames.Error):
                self.refused.append(answer.code)
                return await self._wait_for_the_end(wire)
            self.token = answer.resume_token
            self.resumed.append(answer.resumed)
            self.is_there.set()
            while True:
                self.token = (await wire.expect(frames.LeaseRenewed)).resume_token

    async def _wait_for_the_end(self, wire: Wire) -> None:
        await wire.closed()
        raise OSError(self.refused[-1])


class Crowd:
    """Many of them."""

    def __init__(self, comers: Sequence[Comer]) -> None:
        self.comers = [*comers]
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def keys(self) -> list[str]:
        return [one.keys.pubkey for one in self.comers]

    @property
    def refused(self) -> list[str]:
        return [reason for one in self.comers for reason in one.refused]

    async def all_there(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            for one in self.comers:
                await one.is_there.wait()

    async def all_away(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            while any(one.is_there.is_set() for one in self.comers):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def leave(self, comers: Sequence[Comer]) -> None:
        """Have these fall away without a word, and not come back."""
        gone = [self._tasks.pop(id(one)) for one in comers]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)

    @asynccontextmanager
    async def coming(self) -> AsyncIterator["Crowd"]:
        try:
            for first in range(0, len(self.comers), AT_ONCE):
                some = self.comers[first : first + AT_ONCE]
                self._tasks |= {id(one): asyncio.create_task(one.run()) for one in some}
                async with asyncio.timeout(WITHIN_S):
                    for one in some:
                        await one.is_there.wait()
            yield self
            for task in self._tasks.values():
                assert not task.done(), task
        finally:
            await self.leave([one for one in self.comers if id(one) in self._tasks])
