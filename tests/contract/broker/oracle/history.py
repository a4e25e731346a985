"""A random history of two stores: the program of the comparison with the oracle."""

import asyncio
import random
from collections.abc import Sequence

from claudemesh.broker.model import Claim, Role, Work
from claudemesh.broker.policy import ATTEMPTS_MAX, QUEUE_RETURNS_MAX
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.fingerprint import Kind
from tests.contract.broker.backends import House, batch, message
from tests.contract.broker.oracle.sides import IDS, KEYS, NAMES, QUEUES, SESSIONS, TOPICS, Call, Side
from tests.contract.broker.oracle.views import views
from tests.doubles import ManualClock

NOTHING = 0  # a history id that no message has

# Time passes in steps that no lease ends at, since the clock of a server goes on by itself in between.
STEP_MS = 150_000
SHORT_MS = 35_000  # two of them leave something of a lease that shows who is there, and three do not
SILENCES_MS = (0, 0, 120_000)
LEASES_MS = (200_000, 500_000)
AGE_MS = 200 * DAY_MS  # two of them make a message too old, and three its id
ID_MS = 500 * DAY_MS

Words = tuple[str, Kind, str, str]  # a message: its id, where it goes, and what it says


class History:
    """One random history. Each call it thinks of is made on both sides, in the numbers and ids of each."""

    def __init__(self, house: House, left: Side, right: Side, clock: ManualClock, seed: int) -> None:
        self.house, self.left, self.right, self._clock = house, left, right, clock
        self.dice = random.Random(seed)  # noqa: S311  repeatable, not secret
        self._sent: list[Words] = []  # some of it is sent again
        self._claims: list[tuple[str, str, int, int]] = []  # worker, queue, history id, token
        self._replies = 0
        self._revoked: list[str] = []

    @property
    def now(self) -> int:
        return self._clock.wall_ms()

    # --- on both sides ---

    async def compare(self, call: Call) -> None:
        right = await self.right.answer(call(self.right))
        assert await self.left.answer(call(self.left)) == right

    async def compare_burst(self, calls: Sequence[Call]) -> None:
        """Make the calls of one moment: they may share a transaction."""
        rights = [await self.right.answer(call(self.right)) for call in calls]
        tasks = []
        async with self.house.held():
            for call in calls:
                tasks.append(asyncio.ensure_future(self.left.answer(call(self.left))))
                await asyncio.sleep(0)  # the call is made, not finished
        assert await asyncio.gather(*tasks) == rights

    async def pass_time(self, ms: int) -> None:
        self._clock.advance(ms)
        await self.house.pass_time(ms)

    # --- what may happen ---

    async def step(self) -> None:
        kinds = [self.burst] * 12 + [self.work, self.settle, self.take_seat] * 5
        kinds += [self.answer, self.attempt, self.mark_read, self.pass_a_while, self.leave_seat] * 2
        kinds += [self.settle_leases] * 3 + [self.pass_a_moment] * 2 + [self.end_leases]
        kinds += [self.answer_work] * 3 + [self.toil, self.age, self.restore, self.retire]
        await self.dice.choice(kinds)()
        await self.look()

    async def burst(self) -> None:
        kinds = [self.accept] * 8 + [self.ack] * 4 + [self.subscribe] * 3
        kinds += [self.unsubscribe, self.create_queue, self.change_member]
        await self.compare_burst([self.dice.choice(kinds)() for _ in range(self.dice.randint(1, 6))])
        while self._revoked:
            await self._end_all(self._revoked.pop())

    async def _end_all(self, who: str) -> None:
        await self.compare(lambda side: side.end_all(who))

    def who(self) -> str:
        return self.dice.choice(NAMES)

    def history_ids(self, count: int) -> list[int]:
        """Return some of the last ids that were answered for, and one that there is not."""
        known = [*[*self.right.ids][-40:], NOTHING]
        return self.dice.sample(known, min(count, len(known)))

    def accept(self) -> Call:
        return self._send(self.who(), *(self._message() for _ in range(self.dice.randint(1, 6))))

    def _send(self, who: str, *messages: Words, answers: int = NOTHING) -> Call:
        now = self.now
        return lambda side: side.stores.accepts.accept(
            batch(
                side[who],
                *(message(*words, reply_to=side.ids.get(answers, "")) for words in messages),
                now_ms=now,
                expires_at=now + ID_MS,
            )
        )

    def _message(self) -> Words:
        if self._sent and self.dice.random() < 1 / 4:
            return self.dice.choice(self._sent[-12:])
        kind = self.dice.choice([*Kind])
        ref = {
            Kind.DM: self.dice.choice([*KEYS, "key-of-nobody"]),
            Kind.TOPIC: self.dice.choice([*TOPICS, "nowhere"]),
            Kind.QUEUE: self.dice.choice([*QUEUES, "nothing"]),
        }[kind]
        self._sent.append((self.dice.choice(IDS), kind, ref, f"body {self.dice.randrange(3)}"))
        return self._sent[-1]

    async def answer(self) -> None:
        """Let two members reply to a message, and each once more."""
        [answers] = self.history_ids(1)
        await self._reply(answers, self.dice.sample(NAMES, 2))

    async def answer_work(self) -> None:
        """Let somebody reply to work, and whoever had it, and each once more; mostly after it was handed over."""
        if self._claims:
            who, queue, answers, token = self.dice.choice(self._claims[-3:])
            if self.dice.random() < 2 / 3:
                await self._settle("hand over", who, queue, answers, token)
            await self._reply(answers, [self.who(), who])

    async def _reply(self, answers: int, people: Sequence[str]) -> None:
        for who in (*people, *people):
            self._replies += 1
            words = (f"re-{self._replies}", Kind.DM, self.dice.choice(KEYS), "an answer")
            await self.compare(self._send(who, words, answers=answers))

    def ack(self) -> Call:
        who, ids, now = self.who(), self.history_ids(self.dice.randint(1, 12)), self.now
        return lambda side: side.stores.deliveries.ack(side[who], ids, now)

    def subscribe(self) -> Call:
        who, topic = self.who(), self.dice.choice([*TOPICS, "nowhere"])
        return lambda side: side.stores.topics.subscribe(side[who], topic)

    def unsubscribe(self) -> Call:
        who, topic, now = self.who(), self.dice.choice(TOPICS), self.now
        return lambda side: side.stores.topics.unsubscribe(side[who], topic, now)

    def create_queue(self) -> Call:
        who, queue, now = self.who(), self.dice.choice(QUEUES), self.now
        return lambda side: side.stores.work.create_queue(side[who], queue, now)

    def change_member(self) -> Call:
        """Give a member another role, or now and then revoke it; most who try may not."""
        actor, target, now = self.who(), self.who(), self.now
        role = self.dice.choice([None, *[*Role] * 5])
        if role is None:
            self._revoked.append(target)
            return lambda side: side.stores.directory.revoke(side[actor], target, now)
        return lambda side: side.stores.directory.set_role(side[actor], target, role)

    async def retire(self) -> None:
        who, id_, now = self.who(), self.dice.choice(IDS), self.now
        await self.compare(lambda side: side.stores.accepts.retire(side[who], id_, now, now + ID_MS))

    async def mark_read(self) -> None:
        who, ids, now = self.who(), self.history_ids(30), self.now

        async def mark(side: Side) -> object:
            moved = await side.stores.deliveries.mark_read(side[who], [side.id_of(id_) for id_ in ids], now)
            return {(side.names[one.sender_id], one.client_message_id) for one in moved}

        await self.compare(mark)

    async def work(self, queues: Sequence[str] = (*QUEUES, "nothing")) -> None:
        who, queue, lease_ms = self.who(), self.dice.choice(queues), self.dice.choice(LEASES_MS)
        now, found = self.now, list[Work | None]()

        async def work(side: Side) -> object:
            found.append(await side.stores.work.work(side[who], queue, lease_ms, now))
            return found[-1]

        await self.compare(work)
        if found and found[-1] is not None:
            self._claims.append((who, queue, found[-1].history_id, found[-1].lease_token))

    async def settle(self, verbs: Sequence[str] = ("ack", "hand over", "nack", "renew")) -> None:
        if not self._claims:
            return
        who, queue, history_id, token = self.dice.choice(self._claims[-3:])
        who = self.dice.choice([who, who, who, self.who()])
        token -= self.dice.choice([0, 0, 0, 1])
        await self._settle(self.dice.choice(verbs), who, queue, history_id, token)

    async def _settle(self, verb: str, who: str, queue: str, history_id: int, token: int) -> None:
        now, lease_ms = self.now, self.dice.choice(LEASES_MS)

        async def settle(side: Side) -> object:
            claim, work = Claim(side[who], queue, side.id_of(history_id), token), side.stores.work
            if verb == "renew":
                return round(await work.renew(claim, lease_ms), -4)  # a server's clock goes on meanwhile
            if verb == "nack":
                return await work.nack(claim, now)
            return await work.ack(claim, now, handed_over=verb == "hand over")

        await self.compare(settle)

    async def toil(self) -> None:
        """Take something and give it back, until that was too often."""
        for _ in range(2 * QUEUE_RETURNS_MAX):
            await self.work(QUEUES[:1])
            await self.settle(["nack"])

    async def take_seat(self) -> None:
        broker, who = self.dice.randrange(len(self.right.brokers)), self.who()
        session, instance = self.dice.choice([None, None, *SESSIONS]), f"daemon {self.dice.randrange(2)}"
        resumes, must_resume = self.dice.choice([None, None, *range(6)]), self.dice.random() < 1 / 6
        is_presence_only = session is not None and self.dice.random() < 1 / 3
        await self.compare(
            lambda side: side.take(
                broker,
                who,
                session,
                instance,
                resumes,
                must_resume=must_resume,
                is_presence_only=is_presence_only,
            )
        )

    async def leave_seat(self) -> None:
        number, silent_ms = self.dice.randrange(8), self.dice.choice(SILENCES_MS)
        for clock in (self._clock, self.house.clock):  # as a server's does: those who left first have left first
            clock.advance(1)
        await self.compare(lambda side: side.leave(number, silent_ms))

    async def settle_leases(self) -> None:
        broker = self.dice.randrange(len(self.right.brokers))
        await self.compare(lambda side: side.settle_leases(broker))

    async def end_leases(self) -> None:
        who, session = self.who(), self.dice.choice([None, *SESSIONS])
        await self.compare(lambda side: side.end(who, session))

    async def pass_a_moment(self) -> None:
        await self.pass_time(SHORT_MS)
        await self.compare(lambda side: side.beat())

    async def attempt(self) -> None:
        number, ids, now = self.dice.randrange(3), self.history_ids(40), self.now

        async def attempt(side: Side) -> object:
            return sorted(await side.stores.deliveries.count_attempts(side.seat(number), ids, now))

        for _ in range(self.dice.choice([1, ATTEMPTS_MAX])):
            await self.compare(attempt)

    async def pass_a_while(self) -> None:
        await self.pass_time(self.dice.randint(1, 3) * STEP_MS)
        now = self.now
        await self.compare(lambda side: side.beat())
        await self.compare(lambda side: side.stores.work.expire(now))

    async def age(self) -> None:
        await self.pass_time(AGE_MS)
        now, limit = self.now, self.dice.choice([1, 7, 256])
        # From the beginning, as retention goes: an id whose message went out of turn may be forgotten later.
        planned = sorted({NOTHING, *self.right.ids})[: self.dice.randrange(len(self.right.ids) + 1)]
        await self.compare(lambda side: side.beat())
        await self.compare(lambda side: side.stores.work.expire(now))
        await self.compare(lambda side: side.sweep_planned(planned, now))
        await self.compare(lambda side: side.sweep(now, limit))

    async def restore(self) -> None:
        now = self.now
        await self.compare(lambda side: side.stores.upkeep.begin_epoch(now))

    # --- what can be seen ---

    async def look(self) -> None:
        who, number, count_max = self.who(), self.dice.randrange(8), self.dice.randint(1, 20)
        bytes_max, after = self.dice.choice([1, 2000, 1 << 30]), self.history_ids(1)[0]
        look = self.dice.choice(
            [
                lambda side: side.drain(side.seat(number), count_max, bytes_max),
                lambda side: side.stores.deliveries.replay(side[who], after, count_max, bytes_max),
                lambda side: side.stores.receipts.trace(side[who], side.id_of(after)),
            ]
        )
        await self.compare(look)

    async def look_at_all(self) -> None:
        for view in views():
            await self.compare(view)
