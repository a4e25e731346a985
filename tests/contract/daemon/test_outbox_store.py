"""What the daemon's outbox promises beyond the accept table: claims in order, guards that hold, ids kept used."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claudemesh.daemon.model import Destination, Retirement, SendAsked, Settlement, Submission
from claudemesh.daemon.policy import fingerprint
from claudemesh.daemon.ports import ClaimAsked
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.errors import IdempotencyConflict, StaleClaim, UnknownDestination
from claudemesh.kernel.fingerprint import Kind
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.kernel.outbox import OutboxEvent, OutboxState

A, B = Destination(Kind.DM, "a" * 64), Destination(Kind.TOPIC, "news")
ALL = ClaimAsked(destinations=(A, B), rows_max=100, bytes_max=10_000, accepted_since=0)


@pytest.fixture(params=["file", "memory"])
async def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteOutboxStore]:
    is_file = request.param == "file"
    store = SqliteOutboxStore.open(tmp_path / "outbox.db") if is_file else SqliteOutboxStore.in_memory()
    yield store
    store.close()


def send(key: str, to: Destination = A, *, at: int = 1, size: int = 1, refused: bool = False) -> Submission:
    asked = SendAsked(client_message_id=ClientMessageId(key), to=to.ref, body="x" * size)
    return Submission(
        row_id=f"row-{key}-{size}",
        asked=asked,
        destination=to,
        fingerprint=fingerprint(asked, to),
        payload=b"x" * size,
        enqueued_at=at,
        refusal=UnknownDestination() if refused else None,
    )


def settled(seq: int, event: OutboxEvent) -> Settlement:
    is_accepted = event is OutboxEvent.ACCEPTED
    return Settlement(
        seq=seq,
        event=event,
        at=5,
        last_error=None if is_accepted else "why",
        broker_message_id="B1" if is_accepted else None,
        history_id=1 if is_accepted else None,
    )


async def accept(outbox: SqliteOutboxStore, *sends: Submission) -> None:
    assert await outbox.accept_many(sends) == [None] * len(sends)


@pytest.mark.req("D2")
async def test_a_refusal_counts_only_for_an_id_that_is_free(outbox: SqliteOutboxStore) -> None:
    with pytest.raises(UnknownDestination):
        await outbox.accept(send("m1", refused=True))
    await accept(outbox, send("m1"))
    standing = await outbox.accept(send("m1", size=2, refused=True))
    assert standing is not None
    assert standing.state is OutboxState.PENDING


@pytest.mark.req("D17")
async def test_in_one_batch_the_second_of_an_id_sees_the_first(outbox: SqliteOutboxStore) -> None:
    first, second, third = await outbox.accept_many([send("m1"), send("m1", size=2), send("m2")])
    assert first is None
    assert third is None
    assert getattr(second, "row_id", None) == "row-m1-1"


@pytest.mark.req("D7")
async def test_rows_are_claimed_in_the_order_they_were_accepted(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, *(send(f"m{n}", (A, B)[n % 2]) for n in range(6)))
    claimed = await outbox.claim(ALL)
    assert [row.client_message_id for row in claimed.rows] == ["m0", "m2", "m4", "m1", "m3", "m5"]
    assert (await outbox.claim(ALL)).rows == [], "what is out is not claimed again"


@pytest.mark.req("D7")
async def test_a_row_that_is_out_holds_back_its_followers(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"))
    (first,) = (await outbox.claim(ALL)).rows
    await accept(outbox, send("m2"))
    assert (await outbox.claim(ALL)).rows == []
    assert await outbox.settle([settled(first.seq, OutboxEvent.FAILED)]) == [True]
    again = (await outbox.claim(ALL)).rows
    assert [(row.client_message_id, row.attempts) for row in again] == [("m1", 1), ("m2", 0)]


async def test_a_claim_is_bounded_but_its_first_row_goes_however_large(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1", size=20_000), send("m2"), send("m3"))
    assert [row.client_message_id for row in (await outbox.claim(ALL)).rows] == ["m1"]


@pytest.mark.req("D8")
async def test_an_overdue_row_is_not_claimed_and_nothing_behind_it(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("old", at=1), send("new", at=100), send("other", B, at=100))
    asked = ClaimAsked(destinations=(A, B), rows_max=10, bytes_max=1000, accepted_since=50)
    claimed = await outbox.claim(asked)
    assert [row.client_message_id for row in claimed.rows] == ["other"]
    (old,) = claimed.overdue
    assert await outbox.settle([settled(old.seq, OutboxEvent.EXPIRED)]) == [True]
    assert [row.client_message_id for row in (await outbox.claim(asked)).rows] == ["new"]


async def test_an_event_that_cannot_happen_changes_nothing(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"))
    (row,) = (await outbox.claim(ALL)).rows
    assert await outbox.settle([settled(row.seq, OutboxEvent.ACCEPTED)]) == [True]
    assert await outbox.settle([settled(row.seq, OutboxEvent.FAILED), settled(999, OutboxEvent.FAILED)]) == [
        False,
        False,
    ]
    found = await outbox.find("m1")
    assert found is not None
    assert (found.status, found.attempts, found.broker_message_id) == (OutboxState.DONE, 0, "B1")


@pytest.mark.req("D10", "D6")
async def test_a_row_that_moved_meanwhile_is_not_retired(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"))
    row = await outbox.for_operator("row-m1-1")
    assert row is not None
    await outbox.claim(ALL)
    with pytest.raises(StaleClaim):
        await outbox.retire(Retirement(row=row, at=1, by="operator", successor=send("m2")))
    assert await outbox.find("m2") is None, "all or nothing"


@pytest.mark.req("D10")
async def test_a_row_that_was_tried_since_it_was_looked_at_is_not_retired(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"))
    row = await outbox.for_operator("row-m1-1")
    assert row is not None
    (claimed,) = (await outbox.claim(ALL)).rows
    await outbox.settle([settled(claimed.seq, OutboxEvent.FAILED)])
    with pytest.raises(StaleClaim):
        await outbox.retire(Retirement(row=row, at=1, by="operator"))


@pytest.mark.req("D10")
async def test_a_successor_needs_an_id_that_was_never_used(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"), send("m2"))
    row = await outbox.for_operator("row-m1-1")
    assert row is not None
    with pytest.raises(IdempotencyConflict):
        await outbox.retire(Retirement(row=row, at=1, by="operator", successor=send("m2", size=3)))
    assert (await outbox.counts())[OutboxState.PENDING] == 2


@pytest.mark.req("D6")
async def test_a_pruned_row_answers_as_before(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"), send("m2", B), send("young", at=100))
    claimed = await outbox.claim(ALL)
    await outbox.settle([settled(claimed.rows[0].seq, OutboxEvent.ACCEPTED)])
    before = await outbox.accept(send("m1", size=9))
    assert await outbox.prune(50, 0, 10) == (1, 2), "of the two old rows one is settled"
    assert await outbox.prune(50, 2, 10) == (0, None)
    assert await outbox.accept(send("m1", size=9)) == before
    row = await outbox.for_operator("row-m1-1")
    assert row is not None
    assert row.payload == b""


async def test_what_is_remembered_is_there_after_a_restart(tmp_path: Path) -> None:
    outbox = SqliteOutboxStore.open(tmp_path / "outbox.db")
    await outbox.remember("terms", "one")
    await outbox.remember("terms", "two")
    outbox.close()
    outbox = SqliteOutboxStore.open(tmp_path / "outbox.db")
    assert (await outbox.recall("terms"), await outbox.recall("nothing")) == ("two", None)
    outbox.close()
