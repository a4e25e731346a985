"""What outbox and inbox tell of traffic: counts and latencies by span of time, from an index."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from claudemesh.daemon.model import ClaimAsked, Settlement
from claudemesh.daemon.ports import Happened, InboxTraffic, Pace, SpansAsked
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.outbox import OutboxEvent
from tests.contract.daemon.test_inbox_store import item
from tests.contract.daemon.test_outbox_store import A, accept, send, settled

SPANS = SpansAsked(since=1_000, span_ms=1_000, most=1_000)


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[SqliteOutboxStore]:
    store = SqliteOutboxStore.open(tmp_path / "outbox.db")
    yield store
    store.close()


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[SqliteInboxStore]:
    store = SqliteInboxStore.open(tmp_path / "inbox.db")
    yield store
    store.close()


def accepted(seq: int, at: int) -> Settlement:
    return Settlement(seq=seq, event=OutboxEvent.ACCEPTED, at=at, broker_message_id=f"B{seq}", history_id=seq)


@pytest.mark.req("C4")
async def test_sends_are_counted_when_asked_for_and_when_accepted(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, *(send(f"m{number}", at=1_000) for number in range(100)))
    asked = ClaimAsked(destinations=(A,), rows_max=100, bytes_max=10_000, accepted_since=0)
    rows = (await outbox.claim(asked)).rows
    await outbox.settle([accepted(row.seq, 1_000 + took) for took, row in enumerate(rows, start=1)])
    traffic = await outbox.traffic(SPANS)
    assert traffic.sent == {1: 100}
    assert traffic.accepted == [Pace(span=1, times=100, half_ms=50, nearly_all_ms=99)]
    assert (await outbox.traffic(SPANS._replace(most=10))).accepted[0].times == 10
    assert (await outbox.traffic(SPANS._replace(since=5_000))) == ({}, [])


@pytest.mark.req("C4")
async def test_what_waits_and_what_is_dead_was_sent_and_what_came_before_was_not(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("old", at=10), send("waits", at=2_500), send("dead", at=3_500), send("done", at=900))
    by_name = {row.client_message_id: row.seq for row in await outbox.overdue(9_999, (0, 0), 9)}
    await outbox.settle([settled(by_name["dead"], OutboxEvent.EXPIRED), accepted(by_name["done"], 1_100)])
    traffic = await outbox.traffic(SPANS)
    assert traffic.sent == {2: 1, 3: 1}
    assert traffic.accepted == [Pace(1, 1, 200, 200)]


@pytest.mark.req("C4")
async def test_messages_are_counted_when_they_come_and_not_when_they_are_restored(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("m1"), item("m2")], 1_500)  # which the broker took at 1
    await inbox.restore([item("m3")], 1_600, None)
    await inbox.append_events([Happened("outbox_dead", 2_100, {}), Happened("peer_left", 2_200, {})])
    assert await inbox.traffic(SPANS) == InboxTraffic([Pace(1, 2, 1_499, 1_499)], {2: 1})


@pytest.mark.req("C4")
async def test_a_clock_that_is_behind_the_brokers_makes_no_time_negative(inbox: SqliteInboxStore) -> None:
    await inbox.receive([item("m1")], 0)
    (pace,) = (await inbox.traffic(SPANS._replace(since=0))).received
    assert (pace.half_ms, pace.nearly_all_ms) == (0, 0)


@pytest.mark.parametrize(
    ("store", "name", "index"),
    [
        (SqliteOutboxStore, "sent", "outbox_by_accept"),
        (SqliteOutboxStore, "accepted", "outbox_by_accept"),
        (SqliteOutboxStore, "page_newest_open", "outbox_by_age"),
        (SqliteOutboxStore, "page_newest_dead", "outbox_dead"),
        (SqliteInboxStore, "received", "inbox_by_time"),
        (SqliteInboxStore, "given_up", "event_of_the_dead"),
    ],
)
def test_the_files_are_read_by_an_index_and_never_from_one_end_to_the_other(
    tmp_path: Path, store: type[SqliteOutboxStore], name: str, index: str
) -> None:
    store.open(tmp_path / "x.db").close()
    sql = store.queries[name]
    connection = apsw.Connection(str(tmp_path / "x.db"))
    values = dict.fromkeys(re.findall(r":(\w+)", sql), 1) or (1, 1)
    plan = [str(step[3]) for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    connection.close()
    assert any(index in step for step in plan), plan
    assert not [step for step in plan if re.fullmatch(r"SCAN (outbox|inbox|event)", step)], plan
