"""What the daemon's inbox promises: each message once, in order, its id known longer than the message is kept."""

from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.daemon.ports import Happened, InboxFilter, InboxSweep
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.kernel.errors import StoreFull
from claudemesh.kernel.fingerprint import Kind, Priority
from claudemesh.storage.sqlfile import load_queries
from claudemesh.wire.frames import DeliverItem


@pytest.fixture(params=["file", "memory"])
async def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteInboxStore]:
    is_file = request.param == "file"
    store = SqliteInboxStore.open(tmp_path / "inbox.db") if is_file else SqliteInboxStore.in_memory()
    yield store
    store.close()


def item(
    key: str, sender: str = "S1", history_id: int = 1, body: str = "hello", priority: Priority = Priority.NEXT
) -> DeliverItem:
    return DeliverItem(
        history_id=history_id,
        broker_message_id=f"B-{sender}-{key}",
        client_message_id=key,
        sender_id=sender,
        sender_pubkey="k" * 64,
        sender_name="alice",
        kind=Kind.DM,
        ref="b" * 64,
        body=body,
        accepted_at=1,
        meta={"n": 1.5},
        priority=priority,
    )


async def bodies(inbox: SqliteInboxStore, **wanted: Any) -> list[str]:  # noqa: ANN401  a filter
    return [message.client_message_id for message in await inbox.page(InboxFilter(**wanted), 0, 100)]


@pytest.mark.req("Q2")
async def test_a_message_that_is_delivered_again_is_stored_once_and_told_once(inbox: SqliteInboxStore) -> None:
    first = await inbox.receive([item("m1"), item("m2"), item("m1")], 10)
    again = await inbox.receive([item("m2", history_id=9), item("m3")], 20)
    assert [message.client_message_id for message in first] == ["m1", "m2"]
    assert [message.client_message_id for message in again] == ["m3"]
    assert await bodies(inbox) == ["m1", "m2", "m3"]
    assert [entry.seq for entry in await inbox.events(0, 10)] == [1, 2, 3]


@pytest.mark.req("Q6")
async def test_what_was_marked_is_left_out_of_what_is_unread(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("m1"), item("m2"), item("m3")], 10)
    await inbox.mark_read(["B-S1-m2"], 20)
    assert (await bodies(inbox, unread=True), await bodies(inbox)) == (["m1", "m3"], ["m1", "m2", "m3"])


@pytest.mark.req("Q2", "F1")
async def test_two_senders_may_use_the_same_id(inbox: SqliteInboxStore) -> None:
    fresh = await inbox.receive([item("m1", "S1"), item("m1", "S2")], 10)
    assert len(fresh) == 2


@pytest.mark.req("Q2")
async def test_a_swept_message_is_gone_and_still_known(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("old", body="needle")], 10)
    await inbox.append_events([Happened("receipt", 11, {})])
    await inbox.receive([item("new")], 1000)
    swept = await inbox.sweep(InboxSweep(before=500, forget_before=0, now=1000, limit=100))
    assert swept == 2
    assert await bodies(inbox) == ["new"]
    assert await bodies(inbox, words="needle") == []
    assert await inbox.receive([item("old")], 1001) == [], "the broker delivered it again"
    assert (await inbox.bounds()).swept_upto == 2
    await inbox.sweep(InboxSweep(before=0, forget_before=2000, now=2000, limit=100))
    assert len(await inbox.receive([item("old")], 2001)) == 1, "after its time the id is free"


async def test_a_mark_that_the_broker_does_not_know_yet_keeps_its_message(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("m1"), item("m2")], 10)
    assert await inbox.mark_read(["B-S1-m1", "B-unknown"], 20) == 1
    assert await inbox.mark_read(["B-S1-m1"], 30) == 0, "a mark stays what it was first"
    everything = InboxSweep(before=10**15, forget_before=0, now=50, limit=100)
    await inbox.sweep(everything)
    assert await bodies(inbox) == ["m1"]
    ((seq, broker_id),) = await inbox.untold(10)
    assert broker_id == "B-S1-m1"
    await inbox.told([seq])
    assert await inbox.untold(10) == []
    await inbox.sweep(everything)
    assert await bodies(inbox) == []


async def test_marking_up_to_an_event_marks_no_later_one(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item(f"m{n}") for n in range(5)], 10)
    assert await inbox.mark_read_upto(3, 20) == 3
    assert await inbox.unread() == 2


@pytest.mark.req("F8")
async def test_what_waits_is_shown_by_its_priority_and_counted_whole(inbox: SqliteInboxStore) -> None:
    said = [("m1", "low"), ("m2", "next"), ("m3", "now"), ("m4", "next"), ("m5", "now"), ("m6", "low")]
    await inbox.receive([item(key, body=f"{key} é" * 99, priority=Priority(word)) for key, word in said], 10)
    await inbox.mark_read(["B-S1-m5"], 20)
    waiting = await inbox.waiting(("now", "next"), 2, 4)
    assert [one.broker_message_id for one in waiting.messages] == ["B-S1-m3", "B-S1-m2"], "now, then the oldest"
    assert [one.beginning for one in waiting.messages] == ["m3 é", "m2 é"]
    assert waiting.unread == {"low": 2, "next": 2, "now": 1}
    assert await inbox.unread() == 5, "asking marks nothing"


def test_what_waits_is_found_without_reading_what_was_read(tmp_path: Path) -> None:
    SqliteInboxStore.open(tmp_path / "inbox.db").close()
    queries = load_queries(files("claudemesh.daemon.stores.sqlite") / "inbox.sql")
    connection = apsw.Connection(str(tmp_path / "inbox.db"))
    bindings = {"priority": "next", "limit": 10, "characters": 200}
    plans = {
        name: [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {queries[name]}", bindings)]
        for name in ("waiting", "unread_by_priority")
    }
    connection.close()
    assert plans["waiting"] == ["SCAN inbox USING INDEX inbox_unread"]
    assert plans["unread_by_priority"][0] == "SCAN inbox USING COVERING INDEX inbox_unread"


async def test_numbers_of_events_are_never_used_again(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("m1")], 10)
    await inbox.sweep(InboxSweep(before=100, forget_before=0, now=100, limit=100))
    (message,) = await inbox.receive([item("m2")], 200)
    assert message.seq == 2
    assert (await inbox.bounds()).last == 2


async def test_what_was_stored_comes_back_as_it_was(inbox: SqliteInboxStore) -> None:
    (stored,) = await inbox.receive([item("m1", body="é\n\u2028 😀")], 10)
    assert await inbox.find("B-S1-m1") == stored
    assert await inbox.page(InboxFilter(sender="alice"), 0, 10) == [stored]
    assert await inbox.page(InboxFilter(sender="mallory"), 0, 10) == []
    assert stored.meta == {"n": 1.5}


async def test_a_page_of_large_messages_ends_before_it_is_too_large_to_hold(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item(f"m{n}", body="x" * 3_000_000) for n in range(5)], 10)
    assert len(await inbox.page(InboxFilter(), 0, 100)) == 3
    assert len(await inbox.page(InboxFilter(), 3, 100)) == 2
    assert len(await inbox.events(0, 100)) == 3


@pytest.mark.req("Q2")
async def test_search_finds_every_message_that_is_kept_and_none_that_was_swept(inbox: SqliteInboxStore) -> None:
    for n in range(0, 40, 4):
        await inbox.receive([item(f"m{m}", body=f"word{m} common again again") for m in range(n, n + 3)], 10 + n)
        restored = [item(f"m{n + 3}", body=f"word{n + 3} common"), item(f"m{n}", body="told before")]
        await inbox.restore(restored, 10 + n, None)
    await inbox.mark_read(["B-S1-m5"], 60)
    while await inbox.sweep(InboxSweep(before=30, forget_before=0, now=70, limit=7)):
        pass
    kept = await bodies(inbox)
    assert kept == ["m5", *(f"m{n}" for n in range(20, 40))], "a mark that was not told keeps its message"
    assert await bodies(inbox, words="common") == kept
    found = [await bodies(inbox, words=f"word{n}") for n in range(40)]
    assert found == [[f"m{n}"] if f"m{n}" in kept else [] for n in range(40)]
    assert await bodies(inbox, words="told") == []


@pytest.mark.req("Q2")
async def test_the_index_of_words_holds_those_of_the_inbox_and_no_others(tmp_path: Path) -> None:
    inbox = SqliteInboxStore.open(tmp_path / "inbox.db")
    await inbox.receive([item(f"m{n}", body=f"word{n} common") for n in range(20)], 10)
    await inbox.receive([item(f"n{n}", body=f"word{n} common") for n in range(20)], 50)
    assert await inbox.sweep(InboxSweep(before=30, forget_before=0, now=70, limit=100)) == 20
    inbox.close()
    with apsw.Connection(str(tmp_path / "inbox.db")) as file:
        file.execute("INSERT INTO inbox_words (inbox_words, rank) VALUES ('integrity-check', 1)")


@pytest.mark.req("D11", "Q1")
async def test_an_inbox_without_room_takes_nothing_in_and_can_still_be_read_marked_and_swept(
    inbox: SqliteInboxStore,
) -> None:
    await inbox.receive([item("m1")], 10)
    inbox.limit(await inbox.used_bytes())
    with pytest.raises(StoreFull):
        await inbox.receive([item("m2")], 20)
    with pytest.raises(StoreFull):
        await inbox.restore([item("m3")], 20, 7)
    assert await inbox.append_events([Happened("receipt", 20, {})]) == []
    assert await inbox.restored_upto() is None
    assert (await inbox.bounds()).last == 1, "nothing was written"
    assert await inbox.mark_read(["B-S1-m1"], 30) == 1
    await inbox.told([1])
    assert await inbox.sweep(InboxSweep(before=100, forget_before=0, now=100, limit=10)) == 1
    inbox.limit(1 << 30)
    assert len(await inbox.receive([item("m2")], 40)) == 1


async def test_what_is_returned_when_it_was_written_is_what_is_read_later(inbox: SqliteInboxStore) -> None:
    (message,) = await inbox.receive([item("m1")], 10)
    written = await inbox.append_events([Happened("receipt", 11, {"state": "read"}), Happened("peer_left", 12, {})])
    (first, *others) = await inbox.events(0, 10)
    assert (first.seq, first.type, first.at, first.message) == (1, "message", 10, message)
    assert others == written
