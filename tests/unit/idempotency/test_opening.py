"""When the store is opened and closed, and which URLs name one."""

import asyncio
from pathlib import Path

import pytest

from claudemesh.asgi.messages import Message, Receive, Scope, Send
from claudemesh.idempotency import WriteIdempotencyMiddleware
from claudemesh.kernel.errors import ConfigError
from tests.unit.asgi.calling import ask
from tests.unit.idempotency.stage import WITHIN_S, Stage, answering

pytestmark = pytest.mark.req("R1")

KEY = {"Idempotency-Key": "k"}


class Life:
    """A server that starts an app and stops it."""

    def __init__(self, app: WriteIdempotencyMiddleware) -> None:
        self.told: asyncio.Queue[Message] = asyncio.Queue()
        self._asked: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(app({"type": "lifespan"}, self._asked.get, self.told.put))

    async def say(self, what: str) -> str:
        await self._asked.put({"type": f"lifespan.{what}"})
        async with asyncio.timeout(WITHIN_S):
            return str((await self.told.get())["type"])

    async def ended(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self._task


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "lifespan":
        await answering(201, b"{}")(scope, receive, send)
        return
    for what in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{what}"
        await send({"type": f"lifespan.{what}.complete"})


def is_open(path: Path) -> bool:
    """Say whether somebody has the file open: its WAL goes with the last who does."""
    return path.with_name(path.name + "-wal").exists()


async def test_a_store_is_opened_with_the_app_and_closed_before_it_says_that_it_has_stopped(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    middleware = WriteIdempotencyMiddleware(app, f"sqlite:///{path}")
    assert not path.exists()
    life = Life(middleware)
    assert await life.say("startup") == "lifespan.startup.complete"
    assert path.exists()
    assert (await ask(middleware, "POST", "/", headers=KEY)).status == 201
    assert is_open(path)
    assert await life.say("shutdown") == "lifespan.shutdown.complete"
    assert not is_open(path)
    await life.ended()


async def test_a_store_that_cannot_be_opened_stops_the_start_with_the_reason(tmp_path: Path) -> None:
    life = Life(WriteIdempotencyMiddleware(app, f"sqlite:///{tmp_path}/no/such/folder/keys.db"))
    assert await life.say("startup") == "lifespan.startup.failed"
    await life.ended()


async def test_an_app_that_knows_no_lifespan_has_its_store_from_the_first_keyed_request_on(tmp_path: Path) -> None:
    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise ValueError
        await answering(201, b"{}")(scope, receive, send)

    path = tmp_path / "keys.db"
    middleware = WriteIdempotencyMiddleware(plain, f"sqlite:///{path}")
    life = Life(middleware)
    with pytest.raises(ValueError):  # noqa: PT011  what a server takes as "knows none"
        await asyncio.gather(life.say("startup"), life.ended())
    assert not is_open(path)
    assert (await ask(middleware, "POST", "/")).status == 201
    assert not is_open(path)
    first, second = await asyncio.gather(*(ask(middleware, "POST", "/", headers=KEY) for _ in range(2)))
    assert {first.status, second.status} <= {201, 409}
    assert is_open(path)
    await middleware._close()


async def test_a_store_that_cannot_be_opened_by_a_request_is_its_answer(tmp_path: Path) -> None:
    middleware = WriteIdempotencyMiddleware(app, f"sqlite:///{tmp_path}/no/such/keys.db")
    assert (await ask(middleware, "POST", "/", headers=KEY)).refusal == (503, "store_unavailable")


async def test_a_store_that_somebody_else_opened_is_left_open() -> None:
    stage = Stage(app)
    life = Life(stage.app)  # type: ignore[arg-type]
    assert await life.say("startup") == "lifespan.startup.complete"
    assert await life.say("shutdown") == "lifespan.shutdown.complete"
    await life.ended()
    assert not stage.store.is_closed
    stage.close()


@pytest.mark.parametrize("url", ["", "keys.db", "sqlite:///", "sqlite:////", "mysql://x/y", "sqlite://keys.db"])
def test_what_names_no_store_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError):
        WriteIdempotencyMiddleware(app, url)


async def test_a_url_with_a_password_is_not_quoted() -> None:
    life = Life(WriteIdempotencyMiddleware(app, "postgresql://u:hunter2@[::1/x?y=z"))
    assert await life.say("startup") == "lifespan.startup.failed"
    await life.ended()
