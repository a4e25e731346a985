"""The server's session on a real mesh: where it is shown, what it survives, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_types import Implementation

from claudemesh.mcp.attending import Attending
from claudemesh.mcp.events import SessionFailed, SessionShown
from claudemesh.mcp.keys import Keys
from claudemesh.mcp.mesh import Daemon
from claudemesh.mcp.parts import open_parts
from claudemesh.mcp.server import hosting
from claudemesh.runtime.home import Home
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import real_world
from tests.integration.mcp_client import ERAS, inside
from tests.mesh import local_broker, local_mesh, rejoin

WITHIN_S = 30


def is_shown(found: dict[str, Any]) -> bool:
    return any(peer["sessions"] for peer in found["peers"])


def is_gone(found: dict[str, Any]) -> bool:
    return not is_shown(found)


@pytest.mark.req("C3", "P10")
async def test_the_session_goes_where_the_mesh_of_its_home_goes(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        [left] = await broker.enrol("alice", slug="left")
        async with rejoin(left) as old, inside(tmp_path / "homes" / "alice", ERAS[0]):
            await old.until(is_shown, "/v1/peers")
            (left / "membership.json").rename(left / "kept.json")  # left, and its daemon runs on
            [joined] = await broker.enrol("alice", slug="joined")
            async with rejoin(joined) as new:
                await new.until(is_shown, "/v1/peers")
                await old.until(is_gone, "/v1/peers")


class Heard:
    """What a host was told, of which the first is too much for it."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self._is_broken = True

    async def notify(self, _: str, params: dict[str, Any]) -> None:
        if self._is_broken:
            self._is_broken = False
            raise RuntimeError("hunter2")
        self.told.put_nowait(params["meta"]["sender"])


@asynccontextmanager
async def hinted(home: Path, heard: Heard, observer: Observer) -> AsyncIterator[Client]:
    async with (
        hosting(open_parts(Home(home), None, real_world()), observer, heard.notify) as server,
        Client(server, mode=ERAS[0], client_info=Implementation(name="claude-code", version="1")) as client,
    ):
        yield client


@pytest.mark.req("C3")
async def test_what_nobody_expected_is_told_of_and_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudemesh.mcp.attending.FAILED_PAUSE_S", 0)
    heard, observer = Heard(), Observer()
    shown: asyncio.Queue[SessionShown] = asyncio.Queue()
    failed: asyncio.Queue[SessionFailed] = asyncio.Queue()
    observer.subscribe(SessionShown, shown.put_nowait)
    observer.subscribe(SessionFailed, failed.put_nowait)
    async with (
        local_mesh(tmp_path, "alice", "bob") as (_, alice, __),
        hinted(tmp_path / "homes" / "bob", heard, observer),
        asyncio.timeout(WITHIN_S),
    ):
        await shown.get()
        await alice.send("bob", "one", priority="now")
        told = await failed.get()
        assert (told.error, "hunter2" in str(told)) == ("RuntimeError", False)
        await shown.get()
        await alice.send("bob", "two", priority="now")
        assert await heard.told.get() == "alice"


@pytest.mark.req("C3")
async def test_whichever_part_fails_at_the_end_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def closing(name: str) -> Callable[..., Any]:
        async def fail(_: object) -> None:
            closed.append(name)
            raise RuntimeError(name)

        return fail

    monkeypatch.setattr(Attending, "aclose", closing("session"))
    monkeypatch.setattr(Keys, "aclose", closing("keys"))
    monkeypatch.setattr(Daemon, "close", lambda _: closed.append("daemon"))
    with pytest.raises(RuntimeError):
        async with hinted(tmp_path, Heard(), Observer()):
            pass
    assert closed == ["session", "keys", "daemon"]
