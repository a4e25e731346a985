"""An app under the middleware, a store that a test can hold or break, and a client that streams or goes away."""

import asyncio
from collections.abc import Callable
from typing import Any

from claudemesh.asgi.messages import App, Message, Receive, Scope, Send
from claudemesh.idempotency import WriteIdempotencyMiddleware
from claudemesh.idempotency.model import Asked, Begun, Claim, Found, Settlement
from claudemesh.idempotency.stores.sqlite import APPLICATION_ID, MIGRATIONS, SqliteKeyStore
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from claudemesh.storage.sqlite import Database, Schema
from tests.doubles import ManualClock
from tests.unit.asgi.calling import Answer, ask, recorded, scope_of

WITHIN_S = 30
LEASE_MS = 5_000
JSON = (b"content-type", b"application/json")


class Store(SqliteKeyStore):
    """In memory. `calls` is what was asked of it; a name in `broken` fails, one in `gates` waits for its event."""

    def __init__(self, world: World) -> None:
        self.database = Database.in_memory(Schema(APPLICATION_ID, MIGRATIONS))
        super().__init__(self.database, world, "boot")
        self.calls: list[str] = []
        self.broken: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}
        self.called: dict[str, asyncio.Event] = {}
        self.is_closed = False

    async def begin(self, asked: Asked) -> Begun | Found:
        await self._note("begin")
        return await super().begin(asked)

    async def renew(self, claim: Claim, lease_ms: int) -> bool:
        await self._note("renew")
        return await super().renew(claim, lease_ms)

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        await self._note("settle")
        return await super().settle(claim, settlement)

    async def release(self, claim: Claim) -> bool:
        await self._note("release")
        return await super().release(claim)

    async def aclose(self) -> None:
        self.is_closed = True

    async def until(self, name: str) -> None:
        """Wait until it is asked for this."""
        async with asyncio.timeout(WITHIN_S):
            await self.called.setdefault(name, asyncio.Event()).wait()

    async def _note(self, name: str) -> None:
        self.calls.append(name)
        self.called.setdefault(name, asyncio.Event()).set()
        if name in self.gates:
            async with asyncio.timeout(WITHIN_S):
                await self.gates[name].wait()
        if name in self.broken:
            raise StoreUnavailable


class Stage:
    """`app` is what runs under the middleware; `runs` counts how often it did."""

    def __init__(self, app: App | None = None, **settings: Any) -> None:  # noqa: ANN401  of the middleware
        self.clock = ManualClock()
        self.world = World(self.clock, UlidSource(self.clock), roll)
        self.events = recorded(self.world.observer)
        self.store = Store(self.world)
        self.runs = 0
        self.scopes: list[Scope] = []
        self._inner = app or answering(201, b'{"id":"t1"}')
        settings = {"lease_ms": LEASE_MS, "world": self.world, **settings}
        self.app: App = WriteIdempotencyMiddleware(self._count, self.store, **settings)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.runs += 1
        self.scopes.append(scope)
        await self._inner(scope, receive, send)

    async def post(self, body: bytes | list[bytes] = b"{}", key: str | None = "k", **more: Any) -> Answer:  # noqa: ANN401
        """Ask with a key. `headers` come on top, `method` and `target` are as one likes."""
        headers = [*more.get("headers", ())]
        if key is not None:
            headers.append(("Idempotency-Key", key))
        return await ask(self.app, more.get("method", "POST"), more.get("target", "/tasks/"), body, headers)

    def close(self) -> None:
        self.store.database.close()


def answering(status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> App:
    return streaming(status, [body], *headers)


def streaming(status: int, pieces: list[bytes], *headers: tuple[bytes, bytes]) -> App:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [JSON, *headers]})
        for place, piece in enumerate(pieces, start=1):
            await send({"type": "http.response.body", "body": piece, "more_body": place < len(pieces)})

    return app


class Client:
    """A request of which a test sees every message that is sent, as it is sent; it stays until it is told to go."""

    def __init__(self, app: App, body: bytes = b"{}", key: str = "k") -> None:
        self.sent: list[Message] = []
        self.is_gone = asyncio.Event()
        self.fails: Callable[[], bool] = lambda: False  # whether sending does
        self._requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._news = asyncio.Event()
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        self.task = asyncio.create_task(app(scope_of("POST", "/tasks/", headers, body), self._receive, self._send))  # type: ignore[arg-type]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def until_sent(self, body: bytes) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.body != body:
                self._news.clear()
                await self._news.wait()

    async def done(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self.task

    async def _receive(self) -> Message:
        if self._requests:
            return self._requests.pop()
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.fails():
            raise OSError
        self.sent.append(message)
        self._news.set()
