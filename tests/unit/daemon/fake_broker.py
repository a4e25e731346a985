"""A broker that says what a test wants said, and notes what it is told: real sockets, no rules."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from claudemesh.daemon.settings import Config
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire.signing import welcome_bytes
from tests.mesh import BROKER_KEYS, WITHIN_S, LocalDaemon, a_membership, local_daemon
from tests.ports import own_port

GOOD = {
    "client_message_id_dedupe": {
        "params": {
            "version": 2,
            "mode": "retention_scoped",
            "dedupe_retention_days": 30,
            "request_fingerprint": True,
        }
    },
    "concurrent_connection_policy": {"params": {"version": 1}},
}


@dataclass
class Visit:
    """One connection: the hello, and the types of all frames that came over it, in order."""

    socket: ServerConnection
    nonce: str
    number: int = 0
    hello: dict[str, Any] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, **frame: Any) -> None:  # noqa: ANN401  any frame
        await self.socket.send(json.dumps(frame))

    async def happen(self, what: str, seq: int | None, name: str = "bob", **data: object) -> None:
        numbered = {} if seq is None else {"seq": seq}
        about = {"name": name, "pubkey": "b" * 64, "session_pubkey": None, "at": 1_000, **numbered, **data}
        await self.say(type="event", name=what, data=about)


@dataclass
class FakeBroker:
    terms: str = "T1"
    lease_ttl_ms: int = 90_000
    gives_tokens: bool = True
    server_time_ms: int = 0
    answers: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    welcomes_after: dict[int, asyncio.Event] = field(default_factory=dict)  # by the number of the visit
    acks_after: dict[int, asyncio.Event] = field(default_factory=dict)
    on_hello: Callable[[Visit], tuple[int, str] | None] = lambda _: None  # a close code instead of an answer
    visits: list[Visit] = field(default_factory=list)
    url: str = ""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, is_so: Callable[[], Any]) -> Any:  # noqa: ANN401  what it found
        """Wait until something that came made it so, and return what was found."""
        async with asyncio.timeout(WITHIN_S):
            while not (found := is_so()):
                self._moved.clear()
                await self._moved.wait()
            return found

    async def visit(self, number: int, *, is_session: bool = False) -> Visit:
        """Return the so-and-so-many-th connection of the daemon itself, or of sessions, once its hello came."""

        def of_kind() -> list[Visit]:
            return [one for one in self.visits if one.hello and bool(one.hello.get("presenceOnly")) is is_session]

        await self.until(lambda: len(of_kind()) > number)
        return of_kind()[number]

    async def called(self, op: str, times: int = 1) -> list[tuple[Visit, dict[str, Any]]]:
        def calls() -> list[tuple[Visit, dict[str, Any]]]:
            return [(visit, args) for visit in self.visits for name, args in visit.calls if name == op]

        await self.until(lambda: len(calls()) >= times)
        return calls()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer; the same place again after an end."""
        self.url = self.url or f"http://127.0.0.1:{own_port()}"
        async with serve(self._talk, "127.0.0.1", int(self.url.rpartition(":")[2])):
            yield

    @asynccontextmanager
    async def daemon(
        self, state_dir: Path, config: Config | None = None, keys: KeyPair | None = None, **timings: int
    ) -> AsyncIterator[LocalDaemon]:
        joined = a_membership(state_dir.name, self.url)
        kept = keys or KeyPair.generate()
        async with local_daemon(state_dir, keys=kept, joined=joined, config=config, **timings) as daemon:
            yield daemon

    async def _talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        number = len(self.visits)
        visit = Visit(socket, f"nonce-{number}", number)
        self.visits.append(visit)
        self._moved.set()
        try:
            await _until_set_or_gone(self.welcomes_after.get(number), socket)
            await self._converse(visit)
        finally:
            visit.closed.set()
            self._moved.set()

    async def _converse(self, visit: Visit) -> None:
        socket = visit.socket
        assert socket.request is not None
        challenge = socket.request.path.partition("challenge=")[2]
        signature = BROKER_KEYS.sign(welcome_bytes(challenge, visit.nonce))
        await visit.say(type="welcome", nonce=visit.nonce, server_time_ms=self.server_time_ms, signature=signature)
        async for text in socket:
            frame = json.loads(text)
            visit.types.append(frame["type"])
            await self._answer(visit, frame)
            self._moved.set()

    async def _answer(self, visit: Visit, frame: dict[str, Any]) -> None:
        if frame["type"] == "hello":
            visit.hello = frame
            self._moved.set()
            await _until_set_or_gone(self.acks_after.get(visit.number), visit.socket)
            refusal = self.on_hello(visit)
            if refusal is not None:
                await visit.socket.close(*refusal)
                return
            token = {"resumeToken": f"token-{len(self.visits)}"} if self.gives_tokens else {}
            await visit.say(
                type="hello_ack",
                presenceId=f"P{len(self.visits)}",
                memberId="M",
                meshSlug="demo",
                leaseTtlMs=self.lease_ttl_ms,
                brokerVersion="x",
                terms=self.terms,
                **token,
            )
        elif frame["type"] == "feature_negotiation_request":
            await visit.say(type="feature_negotiation_response", supported=GOOD)
        elif frame["type"] == "call":
            op, args = frame["op"], frame.get("args", {})
            visit.calls.append((op, args))
            usual: dict[str, Any] = {"members": [], "items": [], "upto_history_id": None}
            result = self.answers[op](args) if op in self.answers else usual
            if inspect.isawaitable(result):
                result = await result
            if op == "presence" and op not in self.answers:
                result = {"seq": 0, "events": [], "is_complete": True}
            await visit.say(type="reply", n=frame["n"], result=result)


async def _until_set_or_gone(event: asyncio.Event | None, socket: ServerConnection) -> None:
    if event is None:
        return
    waits = {asyncio.create_task(event.wait()), asyncio.create_task(socket.wait_closed())}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()
