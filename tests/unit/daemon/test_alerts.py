"""A session that is back learns that messages waited for it: in the answer, and in the stream."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.runtime.keys import KeyPair
from claudemesh.storage.sqlfile import load_queries
from tests.mesh import WITHIN_S, LocalDaemon
from tests.unit.daemon.fake_broker import FakeBroker

KEYS = KeyPair.generate()
PAIR = {"pubkey": KEYS.pubkey, "seed": KEYS.seed.hex()}


async def deliver(broker: FakeBroker, daemon: LocalDaemon, *numbers: int, to_session: str | None = None) -> None:
    """Have messages delivered, and wait until the inbox holds them."""
    named = {} if to_session is None else {"to_session": to_session}
    items = [
        {
            "history_id": number,
            "broker_message_id": f"B{number}",
            "client_message_id": f"m{number}",
            "sender_id": "S",
            "sender_pubkey": "a" * 64,
            "sender_name": "ann",
            "kind": "dm",
            "ref": "5" * 64,
            "body": "hello",
            "accepted_at": 1,
            **named,
        }
        for number in numbers
    ]
    await (await broker.visit(0)).say(type="deliver", items=items)
    await daemon.receives(max(numbers))


async def register(daemon: LocalDaemon, **more: object) -> dict[str, Any]:
    said = {"token": "t1", "pid": os.getpid(), "session_keypair": PAIR, **more}
    return (await daemon.post("/v1/sessions/register", said)).body


class Stream:
    """What a daemon's readers are told from now on."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def line(self, start: str) -> str:
        async with asyncio.timeout(WITHIN_S):
            while not (text := (await self._reader.readline()).decode()).startswith(start):
                assert text, "the stream ended"
        return text.removeprefix(start)

    async def alert(self) -> dict[str, Any]:
        await self.line("event: session_alert")
        data = json.loads(await self.line("data: "))
        return {name: data[name] for name in data if name != "at"}


@asynccontextmanager
async def listening(daemon: LocalDaemon) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
    writer.write(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    stream = Stream(reader)
    try:
        await stream.line(": here you are")
        yield stream
    finally:
        writer.close()


def an_alert(unread: int) -> dict[str, Any]:
    return {"session_pubkey": KEYS.pubkey, "unread": unread}


@pytest.mark.req("P8", "P10", "D14")
async def test_a_session_that_registers_is_told_what_waited_for_it_and_nothing_else(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon, listening(daemon) as stream:
        await deliver(broker, daemon, 1, 2, to_session=KEYS.pubkey)
        await deliver(broker, daemon, 3, to_session="6" * 64)
        await deliver(broker, daemon, 4)
        await daemon.post("/v1/inbox/read", {"ids": ["B1"]})
        assert (await register(daemon))["unread"] == 1
        assert await stream.alert() == an_alert(1)


@pytest.mark.req("P8", "P10")
async def test_a_session_is_alerted_once_each_time_it_comes_back(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon, listening(daemon) as stream:
        assert (await register(daemon))["unread"] == 0
        await deliver(broker, daemon, 1, to_session=KEYS.pubkey)
        await (await broker.visit(0, is_session=True)).socket.close(1011)
        assert await stream.alert() == an_alert(1)
        await deliver(broker, daemon, 2, to_session=KEYS.pubkey)
        assert (await register(daemon))["unread"] == 2, "it is asked, and was not away"
        assert (await register(daemon, display_name="of another name"))["unread"] == 2
        again = await broker.visit(2, is_session=True)  # nor is it away while it says who it is
        await daemon.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")
        await deliver(broker, daemon, 3, to_session=KEYS.pubkey)
        await again.socket.close(1011)
        assert await stream.alert() == an_alert(3)


@pytest.mark.req("P8")
async def test_a_session_that_was_to_stay_away_is_alerted_when_it_is_registered_again(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon, listening(daemon) as stream:
        await register(daemon)
        await (await broker.visit(0, is_session=True)).socket.close(4003, "replaced_by_newer_connection")
        await daemon.until(lambda found: found["sessions"][0]["status"] == "replaced", "/v1/sessions")
        await deliver(broker, daemon, 1, to_session=KEYS.pubkey)
        assert (await register(daemon))["unread"] == 1
        assert await stream.alert() == an_alert(1)


def test_what_waits_for_a_session_is_counted_without_reading_the_inbox(tmp_path: Path) -> None:
    SqliteInboxStore.open(tmp_path / "inbox.db").close()
    sql = load_queries(files("claudemesh.daemon.stores.sqlite") / "inbox.sql")["unread_of"]
    connection = apsw.Connection(str(tmp_path / "inbox.db"))
    plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("5" * 64,))]
    connection.close()
    assert plan == ["SEARCH inbox USING INDEX inbox_unread_of (to_session=?)"]
