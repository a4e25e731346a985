"""How sessions end, each once: by its token, with its process, or with all the others."""

import asyncio
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon import sessions as sessions_of_all
from claudemesh.daemon.events import Warned
from claudemesh.daemon.sessions import Sessions
from claudemesh.kernel.errors import NotFound
from tests.unit.daemon.fake_broker import FakeBroker
from tests.unit.daemon.registering import QUICK, a_session, end, ends_or_is_back, listed, register


@pytest.mark.req("P5", "P10")
async def test_a_session_that_is_deleted_says_goodbye_on_its_own_connection(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        registered = await register(daemon, "a/b?c")
        visit = await broker.visit(0, is_session=True)
        by_digest = "sha256:" + hashlib.sha256(b"a/b?c").hexdigest()
        answer = await end(daemon, by_digest)
        assert (answer.status, answer.body) == (
            200,
            {"session_pubkey": registered.body["session_pubkey"], "told": True},
        )
        assert visit.calls == [("presence.end", {})]
        await broker.until(visit.closed.is_set)
        assert visit.socket.close_code == 1000
        assert await listed(daemon) == []
        assert (await end(daemon, by_digest)).status == 404


@pytest.mark.req("P5", "P10")
async def test_a_session_without_a_connection_is_ended_by_the_daemons_own(tmp_path: Path) -> None:
    broker = FakeBroker(on_hello=lambda visit: (1011, "no") if visit.hello.get("presenceOnly") else None)
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        registered = await register(daemon)
        assert registered.body["presence_id"] is None
        assert (await end(daemon)).body["told"] is True
        ((visit, args),) = await broker.called("presence.end")
        assert args["session_pubkey"] == registered.body["session_pubkey"]
        assert not visit.hello.get("presenceOnly")


@pytest.mark.req("P5", "P10")
async def test_a_session_that_is_ended_before_its_hello_says_none(tmp_path: Path) -> None:
    broker = FakeBroker(welcomes_after={2: asyncio.Event()})  # of its second connection
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        registered = await register(daemon)
        await (await broker.visit(0, is_session=True)).socket.close(1011)
        await broker.until(lambda: len(broker.visits) > 2)
        coming = broker.visits[2]

        async def answer_late(_: object) -> dict[str, bool]:
            broker.welcomes_after[2].set()
            await broker.until(lambda: coming.hello or coming.closed.is_set())
            return {"ended": True}

        broker.answers["presence.end"] = answer_late
        assert (await end(daemon)).body["told"] is True
        ((visit, args),) = await broker.called("presence.end")
        assert (visit.number, args["session_pubkey"]) == (0, registered.body["session_pubkey"])
        assert not coming.hello, "it would be there again, and nobody would end it"


@pytest.mark.req("P5", "P10")
async def test_a_session_that_is_ended_while_its_hello_is_out_says_goodbye_when_it_is_answered(
    tmp_path: Path,
) -> None:
    broker = FakeBroker(acks_after={2: asyncio.Event()})  # on its second connection
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        await register(daemon)
        await (await broker.visit(0, is_session=True)).socket.close(1011)
        await broker.visit(1, is_session=True)
        ending = asyncio.create_task(end(daemon))
        await daemon.until(lambda found: found["sessions"] == [], "/v1/sessions")
        broker.acks_after[2].set()
        assert (await ending).body["told"] is True
        ((visit, args),) = await broker.called("presence.end")
        assert (visit.number, args) == (2, {})
        assert len(broker.visits) == 3


@pytest.mark.req("P5", "P10")
async def test_a_session_that_has_said_goodbye_does_not_come_back() -> None:
    broker = FakeBroker()
    async with broker.serving():
        session = a_session(broker)
        living = asyncio.create_task(session.run())
        visit = await broker.visit(0, is_session=True)
        assert await session.say_goodbye()
        await visit.socket.close(1011)
        assert await ends_or_is_back(living, broker, 1)


@pytest.mark.req("P5", "P10")
async def test_an_end_that_nobody_could_be_told_of_is_told_on_the_next_connection(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving():
        pass  # it has its place, and is away again
    async with broker.daemon(tmp_path / "demo") as daemon:
        registered = await register(daemon)
        assert (registered.status, registered.body["presence_id"]) == (201, None)
        assert (await end(daemon)).body["told"] is False
        async with broker.serving():
            ((_, args),) = await broker.called("presence.end")
            assert args["session_pubkey"] == registered.body["session_pubkey"]


@pytest.mark.req("P10")
async def test_a_session_ends_with_its_process(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo", QUICK) as daemon:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
        await register(daemon, "stays")
        answer = await daemon.post("/v1/sessions/register", {"token": "goes", "pid": child.pid})
        await child.communicate(b"\n")
        ((visit, _),) = await broker.called("presence.end")
        assert visit.hello["sessionPubkey"] == answer.body["session_pubkey"]
        found = await daemon.until(lambda found: len(found["sessions"]) == 1, "/v1/sessions")
        assert found["sessions"][0]["pid"] == os.getpid()


@pytest.fixture
def all_sessions(monkeypatch: pytest.MonkeyPatch) -> list[Sessions]:
    """Hold of the daemon what looks after its sessions."""
    found: list[Sessions] = []
    usual = Sessions.run

    async def noted(sessions: Sessions) -> None:
        found.append(sessions)
        await usual(sessions)

    monkeypatch.setattr(Sessions, "run", noted)
    return found


@pytest.mark.req("P10")
async def test_a_session_that_is_deleted_while_it_is_reaped_ends_once_and_the_next_is_reaped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_sessions: list[Sessions]
) -> None:
    deleting: list[asyncio.Future[Any]] = []

    def is_alive(_: object) -> bool:
        if not deleting:
            deleting.append(asyncio.ensure_future(all_sessions[0].end("t1")))
        return False

    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo", QUICK) as daemon:
        await register(daemon, "t1")
        monkeypatch.setattr(sessions_of_all, "is_alive", is_alive)
        await broker.called("presence.end")
        await asyncio.gather(*deleting, return_exceptions=True)
        second = await register(daemon, "t2")
        told = await broker.called("presence.end", 2)
        assert [visit.hello["sessionPubkey"] for visit, _ in told][1:] == [second.body["session_pubkey"]]
        assert len(told) == 2


@pytest.mark.req("P10")
async def test_whatever_goes_wrong_with_one_look_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def is_alive(process: object) -> bool:
        looks.append(process)
        if len(looks) == 1:
            raise RuntimeError("what nobody thought of")
        return False

    broker, warned = FakeBroker(), list[Warned]()
    async with broker.serving(), broker.daemon(tmp_path / "demo", QUICK) as daemon:
        daemon.world.observer.subscribe(Warned, warned.append)
        await register(daemon)
        monkeypatch.setattr(sessions_of_all, "is_alive", is_alive)
        await broker.called("presence.end")
        assert [(one.what, one.detail) for one in warned] == [
            ("sessions", "RuntimeError('what nobody thought of')")
        ]


@pytest.mark.req("P5", "P10")
async def test_a_session_that_is_deleted_while_all_are_ended_ends_once(
    tmp_path: Path, all_sessions: list[Sessions]
) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await register(daemon, "t1")
        (sessions,) = all_sessions
        both = await asyncio.gather(sessions.end_all(), sessions.end("t1"), return_exceptions=True)
        assert both[0] is None
        assert isinstance(both[1], NotFound)
        assert len(await broker.called("presence.end")) == 1


@pytest.mark.req("P3", "P10")
async def test_a_daemon_that_stops_closes_the_connections_of_its_sessions_without_a_goodbye(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving():
        async with broker.daemon(tmp_path / "demo") as daemon:
            await register(daemon, "t1")
            await register(daemon, "t2")
            visits = [await broker.visit(number, is_session=True) for number in range(2)]
        for visit in visits:
            await broker.until(visit.closed.is_set)
            assert visit.calls == []


@pytest.mark.req("P5")
async def test_leaving_at_once_ends_the_sessions_and_the_daemons_own_presence(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        await register(daemon)
        assert (await daemon.post("/v1/presence/end", {})).status == 200
        told = await broker.called("presence.end", 2)
        assert [bool(visit.hello.get("presenceOnly")) for visit, _ in told] == [False, True]
        assert all(args == {} for _, args in told)
