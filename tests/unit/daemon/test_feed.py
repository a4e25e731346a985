"""The stream of events: what was just committed reaches whoever is up to date; everybody else reads the store."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from claudemesh.daemon.feed import Feed
from claudemesh.daemon.ports import Happened, TimelineEntry
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.world import real_world
from claudemesh.wire.frames import DeliverItem

FOREVER_S = 60.0


class Counted(SqliteInboxStore):
    """The real store, which counts how often it is asked for events."""

    looks = 0

    async def events(self, after_seq: int, limit: int) -> list[TimelineEntry]:
        self.looks += 1
        return await super().events(after_seq, limit)


@pytest.fixture
async def inbox() -> AsyncIterator[Counted]:
    store = Counted(SqliteInboxStore.in_memory()._database)
    yield store
    store.close()


def item(key: str) -> DeliverItem:
    return DeliverItem(
        history_id=1,
        broker_message_id=f"B-{key}",
        client_message_id=key,
        sender_id="S",
        sender_pubkey="k" * 64,
        sender_name="alice",
        kind=Kind.DM,
        ref="b" * 64,
        body=key,
        accepted_at=1,
    )


def keys(page: Sequence[TimelineEntry]) -> list[str]:
    return [entry.message.client_message_id if entry.message else entry.type for entry in page]


async def until_waiting(
    stream: AsyncIterator[Sequence[TimelineEntry]], inbox: Counted
) -> "asyncio.Task[Sequence[TimelineEntry]]":
    """Return the next page to come, once the stream waits: this store answers in the order it is asked."""
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await inbox.bounds()
    assert not task.done()
    return task


@pytest.mark.req("Q4", "Q7")
async def test_a_stream_that_is_up_to_date_is_told_without_asking_the_store_again(inbox: Counted) -> None:
    feed = Feed(inbox, real_world())
    stream = feed.follow(0, FOREVER_S)
    page = await until_waiting(stream, inbox)
    for key in ("m1", "m2", "m3"):
        feed.received(await inbox.receive([item(key), item(key + "b")], 10))
        assert keys(await page) == [key, key + "b"]
        page = await until_waiting(stream, inbox)
    assert inbox.looks == 1
    page.cancel()


@pytest.mark.req("Q4", "Q7")
async def test_a_stream_that_was_busy_reads_all_that_it_missed_from_the_store_in_order(inbox: Counted) -> None:
    feed = Feed(inbox, real_world())
    stream = feed.follow(0, FOREVER_S)
    feed.received(await inbox.receive([item("m1")], 10))
    assert keys(await anext(stream)) == ["m1"]
    for number in range(2, 10):
        feed.received(await inbox.receive([item(f"m{number}")], 10))
    assert keys(await anext(stream)) == [f"m{number}" for number in range(2, 10)]
    assert feed._newest[-1].seq == 9, "no more is held than what came last"
    assert len(feed._newest) == 1


@pytest.mark.req("Q7")
async def test_what_another_wrote_in_between_is_not_passed_over(inbox: Counted) -> None:
    feed = Feed(inbox, real_world())
    stream = feed.follow(0, FOREVER_S)
    feed.received(await inbox.receive([item("m1")], 10))
    assert keys(await anext(stream)) == ["m1"]
    page = await until_waiting(stream, inbox)
    await inbox.receive([item("m2")], 10)  # its caller was cancelled before it could tell
    await inbox.restore([item("r1")], 10, None)  # that is told to nobody
    feed.received(await inbox.receive([item("m3")], 10))
    assert keys(await page) == ["m2", "m3"]


@pytest.mark.req("Q7")
async def test_what_nobody_told_is_found_when_nothing_happens_for_a_while(inbox: Counted) -> None:
    feed = Feed(inbox, real_world())
    stream = feed.follow(0, 0.0)
    feed.received(await inbox.receive([item("m1")], 10))
    assert keys(await anext(stream)) == ["m1"]
    await inbox.receive([item("m2")], 10)
    assert keys(await anext(stream)) == []
    assert keys(await anext(stream)) == ["m2"]


@pytest.mark.req("Q7")
async def test_what_is_no_message_is_told_in_its_place_among_them(inbox: Counted) -> None:
    feed = Feed(inbox, real_world())
    stream = feed.follow(0, FOREVER_S)
    page = await until_waiting(stream, inbox)
    (happened,) = await inbox.append_events([Happened("peer_left", 10, {})])
    messages = await inbox.receive([item("m1")], 10)
    feed.received(messages)  # told before what came before it
    feed._tell([happened])
    assert keys(await page) == ["peer_left", "m1"]
    page = await until_waiting(stream, inbox)
    page.cancel()
