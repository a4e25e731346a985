"""The sender by itself. Rows that are too old: by a clock nobody can set, by the broker's word, in nobody's way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from claudemesh.daemon.directory import Directory
from claudemesh.daemon.drain import Drain
from claudemesh.daemon.events import Warned
from claudemesh.daemon.model import ClaimAsked, Claimed, Destination, SendAsked, Settlement
from claudemesh.daemon.overdue import RETIRES_MAX, WAIT_FOR_BROKER_MS, Overdue
from claudemesh.daemon.service import Accepting, Conditions
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.errors import BrokerUnreachable, IntegrityError, InvalidRequest, StoreCorrupt, StoreFull
from claudemesh.kernel.fingerprint import Kind
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.kernel.outbox import OutboxEvent, OutboxState
from claudemesh.outbox.sender import ROWS_MAX, UNEXPECTED
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from claudemesh.storage.sqlite import Database
from claudemesh.wire.frames import Outcome, parse_item
from tests.doubles import ManualClock, held_writer

DAY_MS = 86_400_000
MAX_AGE_MS = 6 * DAY_MS
WITHIN_S = 20

Call = Callable[[str], Any]


class Link:
    """Takes every send, and answers each retire as `retire` says."""

    def __init__(self, retire: Call = lambda _: {"accepted": False}) -> None:
        self._retire = retire
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.under_way = 0
        self.most_under_way = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()
        self.may_accept = asyncio.Event()
        self.may_accept.set()
        self.was_sent = asyncio.Event()

    async def send(self, payloads: Sequence[bytes]) -> "asyncio.Future[list[Outcome]]":
        self.sent += [parse_item(payload).client_message_id for payload in payloads]
        self.was_sent.set()
        return asyncio.ensure_future(self._accept(len(payloads)))

    async def _accept(self, count: int) -> list[Outcome]:
        await self.may_accept.wait()
        return [Outcome(status=201, broker_message_id="B", history_id=1) for _ in range(count)]

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401  as the port has it
        assert op == "retire"
        self.asked.append(args["client_message_id"])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.was_asked.set()
        await asyncio.sleep(0)  # others come to ask
        await self.may_answer.wait()
        self.under_way -= 1
        answer = self._retire(args["client_message_id"])
        if isinstance(answer, Exception):
            raise answer
        return answer


class Outward:
    drain: Drain | None = None

    def queued(self, destinations: Collection[Destination]) -> None:
        if self.drain is not None:
            self.drain.queued(destinations)

    async def refresh_directory(self, keys: Sequence[str] = ()) -> None: ...


class CountingStore(SqliteOutboxStore):
    claims = 0
    full = 0  # how many settlings it has no room for yet
    fails: Callable[[Settlement], Exception | None] = staticmethod(lambda _: None)

    def settle(self, settlements: Sequence[Settlement]) -> Awaitable[list[bool]]:
        if self.full:
            self.full -= 1
            return self._refuse()
        return super().settle(settlements)

    async def _refuse(self) -> list[bool]:
        raise StoreFull("no room")

    def settled_row(self, state: OutboxState, following: OutboxState, settlement: Settlement) -> tuple[Any, ...]:
        if error := self.fails(settlement):
            raise error
        return super().settled_row(state, following, settlement)

    def claim(self, asked: ClaimAsked) -> Awaitable[Claimed]:
        self.claims += 1
        return super().claim(asked)


def count_commits(database: Database) -> Callable[[], int]:
    """Count them from now on, with the one that is under way."""
    commits = 0

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False

    database._connection.set_commit_hook(count)
    return lambda: commits


class House:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.roll = 0.0
        self.world = World(self.clock, UlidSource(self.clock), lambda: self.roll)
        self.outbox = CountingStore(SqliteOutboxStore.in_memory()._database)
        self.outward = Outward()
        self.accepting = Accepting(self.outbox, Directory(), Conditions(), self.outward, self.world)

    async def accept(self, *keys: str, to: str = "q") -> None:
        for key in keys:
            asked = SendAsked(client_message_id=ClientMessageId(key), to=f"queue:{to}", body=key)
            await self.accepting.accept(asked)

    async def try_all(self, to: str = "q") -> None:
        """Send what waits, to a broker that is not heard of again."""
        lanes = (Destination(Kind.QUEUE, to),)
        claimed = await self.outbox.claim(
            ClaimAsked(destinations=lanes, rows_max=1000, bytes_max=1 << 20, accepted_since=0)
        )
        at = self.world.steady_ms()
        await self.outbox.settle([Settlement(seq=row.seq, event=OutboxEvent.FAILED, at=at) for row in claimed.rows])

    async def try_all_but_settle(self, to: str = "q") -> None:
        lanes = (Destination(Kind.QUEUE, to),)
        await self.outbox.claim(ClaimAsked(destinations=lanes, rows_max=1, bytes_max=1, accepted_since=0))

    def overdue(self) -> Overdue:
        return Overdue(self.outbox, self.world, lambda: MAX_AGE_MS)

    async def state(self, key: str) -> tuple[str, str | None]:
        row = await self.outbox.find(key)
        assert row is not None
        return row.status, row.last_error

    async def until(self, key: str, state: tuple[str, str | None]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while await self.state(key) != state:  # noqa: ASYNC110  the sender tells nobody
                await asyncio.sleep(0)

    @asynccontextmanager
    async def draining(self) -> AsyncIterator[Drain]:
        drain = Drain(self.outbox, self.world, lambda: MAX_AGE_MS)
        await drain.start()
        running = asyncio.create_task(drain.run())
        try:
            yield drain
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    await asyncio.to_thread(house.outbox.close)


@pytest.mark.req("D7")
async def test_what_does_not_fit_into_one_frame_follows_in_the_next(house: House) -> None:
    keys = [f"m{number}" for number in range(ROWS_MAX + 1)]
    await house.accept(*keys)
    link = Link()
    async with house.draining() as drain:
        drain.connected(link)
        await house.until(keys[-1], ("done", None))
    assert link.sent == keys
    assert house.outbox.claims == 2


@pytest.mark.req("D7")
async def test_a_sender_at_rest_claims_a_row_in_the_commit_that_stores_it(house: House) -> None:
    link = Link()
    link.may_accept.clear()  # what comes of it would be a commit of its own
    async with house.draining() as drain:
        drain.connected(link)
        house.outward.drain = drain
        async with held_writer(house.outbox._database):
            accepting = asyncio.create_task(house.accept("m"))
            await asyncio.sleep(0)  # it asks, and waits for the writer
            commits = count_commits(house.outbox._database)
        await accepting
        async with asyncio.timeout(WITHIN_S):
            await link.was_sent.wait()
        assert commits() == 2, "the one that was under way, and one for both"
        assert house.outbox.claims == 1


@pytest.mark.req("D7")
async def test_what_stands_behind_a_row_that_could_not_be_settled_follows_when_it_is(house: House) -> None:
    await house.accept("first")
    link = Link()
    link.may_accept.clear()
    house.outbox.full = 2
    async with house.draining() as drain:
        drain.connected(link)
        async with asyncio.timeout(WITHIN_S):
            await link.was_sent.wait()
        await house.accept("second")
        drain.queued([Destination(Kind.QUEUE, "q")])
        link.may_accept.set()
        await house.until("second", ("done", None))
    assert link.sent == ["first", "second"]
    assert await house.state("first") == ("done", None)


class OddLink(Link):
    """Answers so that nobody can make anything of it, once: by failing, or by what it says of a row."""

    def __init__(self, odd: str, *, raises: bool) -> None:
        super().__init__()
        self._odd, self._raises = odd, raises

    async def send(self, payloads: Sequence[bytes]) -> "asyncio.Future[list[Outcome]]":
        bodies = [parse_item(payload).body for payload in payloads]
        answers = await super().send(payloads)
        if self._odd not in bodies:
            return answers
        odd, self._odd = self._odd, ""
        if self._raises:
            raise ValueError("their words")
        broken: Any = "their words"  # where a number belongs
        outcomes = [
            Outcome(status=broken) if body == odd else one for body, one in zip(bodies, await answers, strict=True)
        ]
        told: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        told.set_result(outcomes)
        return told


@pytest.mark.req("R7", "D7")
@pytest.mark.parametrize(("raises", "code"), [(True, "carry_failed"), (False, "answer_not_read")])
async def test_an_answer_that_nobody_expected_costs_its_own_row_a_backoff_and_nobody_else_anything(
    house: House, *, raises: bool, code: str
) -> None:
    warnings: list[Warned] = []
    house.world.observer.subscribe(Warned, warnings.append)
    house.roll = 0.99
    await house.accept("odd", "good")
    link = OddLink("odd", raises=raises)
    async with house.draining() as drain:
        drain.connected(link)
        await house.until("odd", ("pending", UNEXPECTED))
        if not raises:  # else both were in the frame of which nobody knows what became of it
            await house.until("good", ("done", None))
        row = await house.outbox.find("odd")
        assert row is not None
        assert (row.attempts, row.next_attempt_at > house.world.steady_ms()) == (1, True)
        await house.accept("later", to="other")
        drain.queued([Destination(Kind.QUEUE, "other")])
        await house.until("later", ("done", None))
        assert link.sent.count("odd") == 1, "it waits"
        drain.hurry()
        await house.until("odd", ("done", None))
    assert [warning.what for warning in warnings] == [code]
    assert "Error" in warnings[0].detail
    assert "their words" not in warnings[0].detail


@pytest.mark.req("R7", "D7")
async def test_an_answer_that_cannot_be_written_down_costs_its_own_row_a_backoff_and_nobody_else_anything(
    house: House,
) -> None:
    warnings: list[Warned] = []
    house.world.observer.subscribe(Warned, warnings.append)
    house.roll = 0.99
    await house.accept("first", "odd", "last")
    seq = (await house.outbox.bounds()).last - 1
    await house.accept("apart", to="other")
    put_back: list[int] = []

    def fails(settlement: Settlement) -> Exception | None:
        if settlement.event is OutboxEvent.FAILED:
            put_back.append(settlement.seq)
        at_fault = settlement.seq == seq and not put_back
        return TypeError("their words") if at_fault else None

    house.outbox.fails = fails
    link = Link()
    link.may_accept.clear()
    async with house.draining() as drain:
        drain.connected(link)
        async with asyncio.timeout(WITHIN_S):
            await link.was_sent.wait()
        await house.accept("behind", to="other")  # it finds "apart" out, and written down only at the second try
        drain.queued([Destination(Kind.QUEUE, "other")])
        link.may_accept.set()
        await house.until("odd", ("pending", UNEXPECTED))
        await house.until("behind", ("done", None))
        assert [await house.state(key) for key in ("first", "last")] == [("done", None)] * 2
        assert link.sent.count("odd") == 1, "it waits"
        drain.hurry()
        await house.until("odd", ("done", None))
    assert [warning.what for warning in warnings] == ["answer_not_settled"]
    assert "their words" not in warnings[0].detail


@pytest.mark.req("R7", "D7")
@pytest.mark.parametrize(
    ("error", "lasts"),
    [(IntegrityError("an invariant"), False), (StoreCorrupt("damaged"), False), (RuntimeError("any"), True)],
)
async def test_what_a_store_says_of_itself_ends_the_sender(house: House, error: Exception, *, lasts: bool) -> None:
    await house.accept("first")
    house.outbox.fails = lambda one: error if lasts or one.event is OutboxEvent.ACCEPTED else None
    drain = Drain(house.outbox, house.world, lambda: MAX_AGE_MS)
    await drain.start()
    drain.connected(Link())
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(WITHIN_S):
            await drain.run()
    assert failed.group_contains(type(error))


@pytest.mark.req("D1")
async def test_a_row_that_comes_when_the_sender_has_stopped_is_accepted_all_the_same(house: House) -> None:
    async with house.draining() as drain:
        drain.connected(Link())
        house.outward.drain = drain
        await house.accept("before")
        await house.until("before", ("done", None))
    await house.accept("after")
    assert await house.state("after") == ("pending", None)


@pytest.mark.req("D7", "D11")
async def test_a_row_that_cannot_be_settled_yet_is_not_looked_at_again_and_again(house: House) -> None:
    await house.accept(*(f"m{number}" for number in range(ROWS_MAX + 1)))
    await house.try_all_but_settle()
    lanes = (Destination(Kind.QUEUE, "q"),)
    claimed = await house.outbox.claim(ClaimAsked(destinations=lanes, rows_max=1, bytes_max=1, accepted_since=0))
    assert (claimed.rows, claimed.more) == ([], set()), "whoever settles what is out comes back for the rest"


async def test_where_a_claim_took_all_none_follows_until_something_new_comes(house: House) -> None:
    await house.accept("first")
    async with house.draining() as drain:
        drain.connected(Link())
        await house.until("first", ("done", None))
        await house.accept("second", to="other")
        drain.queued([Destination(Kind.QUEUE, "other")])
        await house.until("second", ("done", None))
    assert house.outbox.claims == 2


@pytest.mark.req("D8", "F6")
@pytest.mark.parametrize("step_ms", [30 * DAY_MS, -30 * DAY_MS])
async def test_setting_the_wall_clock_makes_no_row_too_old(house: House, step_ms: int) -> None:
    await house.accept("before")
    house.clock.wall += step_ms
    await house.accept("after")
    link = Link()
    async with house.draining() as drain:
        drain.connected(link)
        await house.until("after", ("done", None))
    assert link.sent == ["before", "after"]
    assert await house.state("before") == ("done", None)


@pytest.mark.req("D8")
async def test_time_that_really_passes_does(house: House) -> None:
    await house.accept("old")
    house.clock.advance(MAX_AGE_MS + 1)
    await house.accept("young", to="other")
    link = Link()
    async with house.draining() as drain:
        drain.connected(link)
        await house.until("young", ("done", None))
        await house.until("old", ("dead", "max_age_exceeded"))
    assert (link.sent, link.asked) == (["young"], []), "and a row that was never tried is nobody's question"


@pytest.mark.req("D8")
@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"accepted": False}, ("dead", "max_age_exceeded")),
        ({"accepted": True, "broker_message_id": "B", "history_id": 1}, ("done", None)),
        (InvalidRequest("no such call"), ("dead", "outcome_unknown")),
        (["nonsense"], ("dead", "outcome_unknown")),
    ],
)
async def test_a_row_that_was_tried_waits_at_the_start_until_the_broker_can_be_asked(
    house: House, answer: object, state: tuple[str, str | None]
) -> None:
    await house.accept("tried")
    await house.try_all()
    house.clock.advance(100 * DAY_MS)  # the daemon was off all the time
    overdue = house.overdue()
    assert await overdue.give_up(None) == {Destination(Kind.QUEUE, "q")}
    assert await overdue.give_up(Link(lambda _: BrokerUnreachable("silent"))) == {Destination(Kind.QUEUE, "q")}
    assert await house.state("tried") == ("pending", None)
    async with house.draining() as drain:
        drain.connected(Link(lambda _: answer))
        await house.until("tried", state)


@pytest.mark.req("D8")
async def test_a_row_that_a_silent_broker_was_asked_about_is_asked_about_again_on_the_next_connection(
    house: House,
) -> None:
    await house.accept("tried")
    await house.try_all()
    house.clock.advance(MAX_AGE_MS + 1)
    silent = Link(lambda _: BrokerUnreachable("silent"))
    async with house.draining() as drain:
        drain.connected(silent)
        async with asyncio.timeout(WITHIN_S):
            while len(silent.asked) < 2:  # noqa: ASYNC110  at the start, and when it was found in a lane's way
                await asyncio.sleep(0)
        drain.disconnected()
        drain.connected(Link())
        await house.until("tried", ("dead", "max_age_exceeded"))


@pytest.mark.req("D8", "D11")
async def test_a_destination_waits_while_there_is_no_room_to_write_its_old_row_off(house: House) -> None:
    await house.accept("old")
    house.clock.advance(MAX_AGE_MS + 1)
    house.outbox.full = 1
    overdue = house.overdue()
    assert await overdue.give_up(None) == {Destination(Kind.QUEUE, "q")}
    assert await overdue.give_up(None) == set()
    assert await house.state("old") == ("dead", "max_age_exceeded")


@pytest.mark.req("D8")
async def test_a_row_that_waited_for_the_broker_for_an_hour_dies_with_its_outcome_unknown(house: House) -> None:
    await house.accept("tried")
    await house.try_all()
    house.clock.advance(MAX_AGE_MS - 1000)
    overdue = house.overdue()
    house.clock.advance(WAIT_FOR_BROKER_MS)
    assert await overdue.give_up(None), "it has been too old for not quite an hour"
    house.clock.advance(1000)
    assert await overdue.give_up(None) == set()
    assert await house.state("tried") == ("dead", "outcome_unknown")


@pytest.mark.req("D8", "D7")
async def test_asking_about_old_rows_keeps_no_other_destination_waiting(house: House) -> None:
    await house.accept("tried")
    await house.try_all()
    house.clock.advance(MAX_AGE_MS + 1)
    await house.accept("behind")
    await house.accept("other", to="other")
    link = Link()
    link.may_answer.clear()
    async with house.draining() as drain:
        drain.connected(link)
        async with asyncio.timeout(WITHIN_S):
            await link.was_asked.wait()
        await house.until("other", ("done", None))
        assert link.sent == ["other"], "what is behind the old row waits for the verdict"
        link.may_answer.set()
        await house.until("behind", ("done", None))
    assert link.asked == ["tried"], "it is asked once"


@pytest.mark.req("D8")
async def test_many_old_rows_are_asked_about_at_once_but_not_all(house: House) -> None:
    keys = [f"m{number}" for number in range(3 * RETIRES_MAX)]
    await house.accept(*keys)
    await house.try_all()
    house.clock.advance(MAX_AGE_MS + 1)
    link = Link()
    assert await house.overdue().give_up(link) == set()
    assert sorted(link.asked) == sorted(keys)
    assert link.most_under_way == RETIRES_MAX
    assert await house.state(keys[-1]) == ("dead", "max_age_exceeded")
