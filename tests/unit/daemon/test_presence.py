"""Who comes and goes is told once each, in order: over reconnects, restarts, gaps and repeats."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon import presence
from claudemesh.daemon.events import Warned
from claudemesh.daemon.feed import Feed
from claudemesh.daemon.ports import Happened
from claudemesh.daemon.presence import PresenceLog
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.kernel.errors import BrokerUnreachable, InvalidRequest, StoreFull
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import real_world
from tests.mesh import WITHIN_S, LocalDaemon
from tests.unit.daemon.fake_broker import FakeBroker

ME = ("a" * 64, None)
BOB = "b" * 64


def change(seq: int | None, what: str = "peer_joined", **more: object) -> dict[str, Any]:
    numbered = {} if seq is None else {"seq": seq}
    return {"what": what, "name": "bob", "pubkey": BOB, "session_pubkey": None, "at": 1_000, **numbered, **more}


class Broker:
    """The end of a link that keeps all changes, or the last few of them."""

    def __init__(self, *changes: dict[str, Any], latest: int | None = None, kept: int = 1_000) -> None:
        self.changes = [*changes]
        self.latest = latest
        self.kept = kept
        self.page: int | None = None
        self.asked: list[int | None] = []
        self.error: Exception | None = None

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
        assert op == "presence"
        self.asked.append(args["after"])
        if self.error is not None:
            raise self.error
        latest = self.latest if self.latest is not None else max((one["seq"] for one in self.changes), default=0)
        if args["after"] is None:
            return {"seq": latest, "events": [], "is_complete": True}
        missed = [one for one in self.changes if one["seq"] > args["after"]]
        if self.page is not None and len(missed) > self.page:
            missed = missed[: self.page]
            return {"seq": missed[-1]["seq"], "events": missed, "is_complete": True, "is_last": False}
        return {"seq": latest, "events": missed[-self.kept :], "is_complete": len(missed) <= self.kept}

    async def store(self, write: Callable[[], Awaitable[None]]) -> None:
        await write()


class Scene:
    def __init__(self, inbox: SqliteInboxStore) -> None:
        self.inbox = inbox
        self.warned: list[Warned] = []
        world = real_world()
        world.observer.subscribe(Warned, self.warned.append)
        self.log = PresenceLog(inbox, Feed(inbox, world), world, ME)

    async def told(self) -> list[int | None]:
        return [(entry.data or {}).get("seq") for entry in await self.inbox.events(0, 1_000)]

    async def happen(self, *seqs: int | None, what: str = "peer_joined", **more: object) -> None:
        await asyncio.gather(*(self.log.happened(what, change(seq, **more)) for seq in seqs))


@pytest.fixture
def scene() -> Any:  # noqa: ANN401  a generator
    inbox = SqliteInboxStore.in_memory()
    yield Scene(inbox)
    inbox.close()


def link(broker: Broker) -> Any:  # noqa: ANN401  as much of a link as is needed
    return broker


@pytest.mark.req("P5")
async def test_the_first_time_only_what_comes_from_then_on_is_told(scene: Scene) -> None:
    broker = Broker(change(1), change(2))
    await scene.log.connected(link(broker))
    await scene.happen(3)
    assert broker.asked == [None]
    assert await scene.told() == [3]


@pytest.mark.req("P5")
async def test_what_comes_twice_is_told_once(scene: Scene) -> None:
    await scene.log.connected(link(Broker()))
    await scene.happen(1, 1, 2, 2, 1)
    assert await scene.told() == [1, 2]
    assert await scene.inbox.presence_seq() == 2


@pytest.mark.req("P5")
async def test_what_is_missing_is_asked_for_and_told_in_its_place(scene: Scene) -> None:
    broker = Broker()
    await scene.log.connected(link(broker))
    broker.changes = [change(1), change(2, "peer_left"), change(3), change(4, "peer_left")]
    await scene.happen(1)
    await scene.happen(4, what="peer_left")
    assert broker.asked == [None, 1]
    assert await scene.told() == [1, 2, 3, 4]
    assert [entry.type for entry in await scene.inbox.events(0, 9)] == ["peer_joined", "peer_left"] * 2


@pytest.mark.req("P5")
async def test_what_happened_while_the_connection_was_away_is_told_on_return(scene: Scene) -> None:
    broker = Broker()
    await scene.log.connected(link(broker))
    await scene.happen(1)
    scene.log.disconnected()
    broker.changes = [change(1), change(2), change(3)]
    again = Scene(scene.inbox)  # also after a restart
    await again.log.connected(link(broker))
    await again.happen(3)
    assert broker.asked == [None, 1]
    assert await scene.told() == [1, 2, 3]


async def test_what_the_broker_no_longer_keeps_is_passed_over_and_said_to_be_missing(scene: Scene) -> None:
    broker = Broker(kept=2)
    await scene.log.connected(link(broker))
    await scene.happen(1)
    broker.changes = [change(seq) for seq in range(1, 10)]
    await scene.log.connected(link(broker))
    assert broker.asked == [None, 1], "what it answers is all there is"
    assert await scene.told() == [1, 8, 9]
    assert scene.warned == [Warned("presence_missed", "between 1 and 9")]
    await scene.happen(10)
    assert await scene.told() == [1, 8, 9, 10]


async def test_a_broker_whose_store_was_put_back_is_followed_from_where_it_is(scene: Scene) -> None:
    broker = Broker(change(9))
    await scene.log.connected(link(broker))
    await scene.happen(10)
    broker.changes, broker.latest = [], 4
    await scene.log.connected(link(broker))
    await scene.happen(5)
    assert await scene.told() == [10, 5]


@pytest.mark.req("P5")
async def test_a_daemon_is_not_told_of_itself_but_counts_it(scene: Scene) -> None:
    await scene.log.connected(link(Broker()))
    await scene.happen(1, pubkey=ME[0])
    await scene.happen(2, pubkey=ME[0], session_pubkey="5" * 64, display_name="claude")
    assert await scene.told() == [2], "its sessions are others"
    assert await scene.inbox.presence_seq() == 2


async def test_a_broker_that_numbers_nothing_is_still_listened_to(scene: Scene) -> None:
    broker = Broker()
    broker.error = InvalidRequest("presence is no operation")
    await scene.log.connected(link(broker))
    await scene.happen(None, None)
    assert await scene.told() == [None, None]


async def test_a_connection_that_ends_while_it_is_asked_leaves_the_rest_to_the_next(scene: Scene) -> None:
    broker = Broker()
    await scene.log.connected(link(broker))
    await scene.happen(1)
    broker.changes, broker.error = [change(1), change(2), change(3)], BrokerUnreachable()
    await scene.happen(3)
    assert await scene.told() == [1]
    broker.error = None
    await scene.log.connected(link(broker))
    assert await scene.told() == [1, 2, 3]


async def test_more_events_than_may_wait_are_asked_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "WAITING_MAX", 3)
    broker = Broker()
    await scene.log.connected(link(broker))
    broker.changes = [change(seq) for seq in range(1, 21)]
    await scene.happen(*range(1, 21))
    assert await scene.told() == [*range(1, 21)]


async def test_an_event_that_makes_no_sense_is_passed_over(scene: Scene) -> None:
    await scene.log.connected(link(Broker()))
    for rubbish in ({"seq": "one"}, {"seq": 0}, {"seq": 1, "name": 7}, {"seq": 1, "at": 10**18}):
        await scene.log.happened("peer_joined", rubbish)
    await scene.happen(1)
    assert await scene.told() == [1]


# --- the store ---------------------------------------------------------------------------------------


@pytest.mark.req("P5", "D11")
async def test_without_room_neither_the_event_nor_its_number_is_kept(tmp_path: Path) -> None:
    inbox = SqliteInboxStore.open(tmp_path / "inbox.db")
    await inbox.append_presence([Happened("peer_joined", 1, {"seq": 1})], 1)
    inbox.limit(0)
    with pytest.raises(StoreFull):
        await inbox.append_presence([Happened("peer_left", 1, {"seq": 2})], 2)
    assert await inbox.presence_seq() == 1
    assert len(await inbox.events(0, 9)) == 1
    inbox.close()


# --- the whole way -----------------------------------------------------------------------------------


async def read_events(daemon: LocalDaemon, count: int, stands: asyncio.Event) -> str:
    """Read the stream from now on until it told so many comings and goings; say when it stands."""
    reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
    try:
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        text = ""
        async with asyncio.timeout(WITHIN_S):
            while text.count("event: peer_") < count:
                text += (await reader.read(1 << 16)).decode()
                if ": here you are" in text:
                    stands.set()
        return text
    finally:
        writer.close()


@pytest.mark.req("D14", "P5")
async def test_a_stream_shows_who_it_was_and_when(tmp_path: Path) -> None:
    broker = FakeBroker()
    keys = KeyPair.generate()
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=keys) as daemon:
        visit = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        stands = asyncio.Event()
        reading = asyncio.create_task(read_events(daemon, 2, stands))
        await asyncio.wait_for(stands.wait(), WITHIN_S)
        await visit.happen("peer_joined", 1, pubkey=keys.pubkey)
        await visit.happen("peer_joined", 2, session_pubkey="5" * 64, display_name="claude")
        await visit.happen("peer_left", 3)
        text = await reading
    assert text.count("event: peer_joined") == 1
    assert '"session_pubkey":"' + "5" * 64 + '"' in text
    assert '"display_name":"claude","seq":2' in text
    assert '"at":"1970-01-01T00:00:01.000Z"' in text


@pytest.mark.req("P5")
async def test_what_was_missed_is_asked_for_page_by_page(scene: Scene) -> None:
    broker: Any = Broker(*(change(seq) for seq in range(1, 8)))
    await scene.inbox.append_presence([], 0)
    broker.page = 3
    await scene.log.connected(broker)
    assert await scene.told() == [*range(1, 8)]
    assert broker.asked == [0, 3, 6]


async def test_a_broker_that_never_comes_to_the_last_page_is_not_asked_for_ever(scene: Scene) -> None:
    class Endless(Broker):
        async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
            await super().call(op, args)
            return {"seq": args["after"], "events": [], "is_last": False}

    broker: Any = Endless()
    await scene.inbox.append_presence([], 5)
    await scene.log.connected(broker)
    assert broker.asked == [5]
