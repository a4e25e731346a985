"""What the daemon's outbox promises beyond the accept table: claims in order, guards that hold, ids kept used."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from claudemesh.daemon.model import ClaimAsked, Destination, Retirement, SendAsked, Settlement, Submission
from claudemesh.daemon.policy import fingerprint
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.errors import IdempotencyConflict, StaleClaim, StoreFull, UnknownDestination
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
    assert claimed.stuck == {A}
    (old,) = await outbox.overdue(50, (0, 0), 10)
    assert await outbox.settle([settled(old.seq, OutboxEvent.EXPIRED)]) == [True]
    assert [row.client_message_id for row in (await outbox.claim(asked)).rows] == ["new"]


@pytest.mark.req("D8")
async def test_a_claim_says_where_there_is_more(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"), send("m2"), send("b1", B))
    asked = ClaimAsked(destinations=(A, B), rows_max=1, bytes_max=1000, accepted_since=0)
    claimed = await outbox.claim(asked)
    assert ([row.client_message_id for row in claimed.rows], claimed.more) == (["m1"], {A, B})
    await outbox.settle([settled(claimed.rows[0].seq, OutboxEvent.ACCEPTED)])
    large = ClaimAsked(destinations=(A, B), rows_max=10, bytes_max=1, accepted_since=0)
    claimed = await outbox.claim(large)
    assert ([row.client_message_id for row in claimed.rows], claimed.more) == (["m2"], {B})
    await outbox.settle([settled(claimed.rows[0].seq, OutboxEvent.ACCEPTED)])
    await accept(outbox, send("b2", B, at=0))
    claimed = await outbox.claim(ClaimAsked(destinations=(A, B), rows_max=10, bytes_max=9, accepted_since=1))
    assert [row.client_message_id for row in claimed.rows] == ["b1"]
    assert (claimed.more, claimed.stuck) == ({B}, set()), "an old row that is not the first is met the next time"


@pytest.mark.req("D8")
async def test_old_rows_are_found_page_by_page_the_oldest_first(outbox: SqliteOutboxStore) -> None:
    ages = {"a": 3, "b": 1, "c": 2, "d": 1, "young": 9, "out": 0}
    await accept(outbox, *(send(key, B if key == "out" else A, at=at) for key, at in ages.items()))
    await outbox.claim(ClaimAsked(destinations=(B,), rows_max=1, bytes_max=9, accepted_since=0))
    found: list[str] = []
    after = (0, 0)
    while page := await outbox.overdue(5, after, 1):  # so that two of the same age are on two pages
        found += [row.client_message_id for row in page]
        after = (page[-1].enqueued_at, page[-1].seq)
    assert found == ["b", "d", "c", "a"]
    assert await outbox.oldest_open() == 0


@pytest.mark.parametrize("name", ["overdue", "oldest_open", "newest_done", "waiting"])
def test_what_is_asked_again_and_again_reads_only_the_rows_it_returns(name: str, tmp_path: Path) -> None:
    SqliteOutboxStore.open(tmp_path / "outbox.db").close()
    sql = SqliteOutboxStore.queries[name]
    connection = apsw.Connection(str(tmp_path / "outbox.db"))
    plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))]
    connection.close()
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH outbox USING INDEX")


async def test_rows_are_counted_in_every_state(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, *(send(f"m{number}") for number in range(5)), send("b1", B))
    (out,) = (await outbox.claim(ClaimAsked(destinations=(B,), rows_max=9, bytes_max=99, accepted_since=0))).rows
    first, second, *_ = await outbox.overdue(99, (0, 0), 9)
    await outbox.settle([settled(first.seq, OutboxEvent.EXPIRED), settled(second.seq, OutboxEvent.ACCEPTED)])
    counted = {OutboxState.PENDING: 3, OutboxState.INFLIGHT: 1, OutboxState.CONFLICT: 0, OutboxState.DEAD: 1}
    assert await outbox.counts() == counted
    await outbox.recover(1)
    assert (await outbox.counts())[OutboxState.INFLIGHT] == 0
    assert out.client_message_id == "b1"


@pytest.mark.req("Q6")
async def test_the_sends_that_the_broker_took_last_are_known(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, *(send(f"m{number}") for number in range(4)))
    rows = (await outbox.claim(ALL)).rows
    for row, broker_id in zip(rows, ("B1", "B3", "B2"), strict=False):
        done = Settlement(
            seq=row.seq, event=OutboxEvent.ACCEPTED, at=1, broker_message_id=broker_id, history_id=row.seq
        )
        await outbox.settle([done])
    assert await outbox.newest_done(2) == ["m1", "m2"]


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


@pytest.mark.req("D11", "D2")
async def test_an_outbox_without_room_takes_no_new_id_and_at_last_only_settles(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1"))
    used = await outbox.used_bytes()
    outbox.limit(accepts_bytes=used, claims_bytes=used + 1)
    with pytest.raises(StoreFull):
        await outbox.accept(send("m2"))
    with pytest.raises(UnknownDestination):
        await outbox.accept(send("m2", refused=True))
    standing, refused = await outbox.accept_many([send("m1", size=2), send("m2")])
    assert getattr(standing, "row_id", None) == "row-m1-1", "what stands answers first"
    assert isinstance(refused, StoreFull)
    (out,) = (await outbox.claim(ALL)).rows
    outbox.limit(accepts_bytes=used, claims_bytes=used)
    with pytest.raises(StoreFull):
        await outbox.claim(ALL)
    assert await outbox.settle([settled(out.seq, OutboxEvent.ACCEPTED)]) == [True]
    outbox.limit(accepts_bytes=2 * used, claims_bytes=2 * used)
    await accept(outbox, send("m2"))
    assert len((await outbox.claim(ALL)).rows) == 1


@pytest.mark.req("D11")
async def test_rows_that_were_emptied_give_their_room_back(outbox: SqliteOutboxStore) -> None:
    await accept(outbox, send("m1", size=100_000))
    used = await outbox.used_bytes()
    (row,) = (await outbox.claim(ALL)).rows
    await outbox.settle([settled(row.seq, OutboxEvent.ACCEPTED)])
    outbox.limit(accepts_bytes=used, claims_bytes=used)
    with pytest.raises(StoreFull):
        await outbox.accept(send("m2"))
    assert await outbox.prune(50, 0, 10) == (1, 1)
    assert await outbox.used_bytes() < used - 90_000
    await accept(outbox, send("m2"))
