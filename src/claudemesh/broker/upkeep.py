"""What is done now and then: the broker's beat, expired leases, retention, the orphan check.

Each runs by itself and is tried again at its next turn when it fails: none of it is on anybody's way to an answer.
Of several brokers on a store one does it all; what each of them does is to say that it lives, and to end leases
that ran out (`presence.herald`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import asdict

from claudemesh.broker.events import OrphansChecked, Swept, TaskFailed
from claudemesh.broker.model import PlanPage, SweepPage, Violation
from claudemesh.broker.ports import PresenceStore, UpkeepStore, WorkStore
from claudemesh.broker.seating import Seating
from claudemesh.kernel.clock import DAY_MS, Clock
from claudemesh.runtime.clock import steady
from claudemesh.runtime.observe import Observer

BEAT_EVERY_S: Final = 5.0
EXPIRE_EVERY_S: Final = 5.0
LOOK_OVER_EVERY_S: Final = 60.0
CHECK_EVERY_S: Final = 86_400.0

PAGE: Final = 256  # rows of one sweep's transaction: the writer belongs to the senders
DEAD_LETTER_GRACE_MS: Final = DAY_MS  # in which an operator can see what retention gave up

Task = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class SweepResult:
    messages: int
    dead_letters: int
    ids: int


class Upkeep:
    def __init__(  # noqa: PLR0913, PLR0917  its parts
        self,
        store: UpkeepStore,
        work: WorkStore,
        presence: PresenceStore,
        clock: Clock,
        observer: Observer,
        message_days: int,
    ) -> None:
        self._store = store
        self._presence = presence
        self._work = work
        self._clock = clock
        self._steady_ms = steady(clock)
        self._observer = observer
        self._message_ms = message_days * DAY_MS

    async def run(self, seating: Seating, look_over: Task, sweep_every_s: float) -> None:
        """Do it all, each in its own rhythm, until cancelled."""

        def if_keeper(task: Task) -> Task:
            async def run() -> None:
                if seating.is_keeper:
                    await task()

            return run

        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(BEAT_EVERY_S, "beat", seating.beat))
            group.create_task(self._every(BEAT_EVERY_S, "catch up", seating.catch_up))
            group.create_task(self._every(LOOK_OVER_EVERY_S, "look over", look_over))
            group.create_task(self._every(EXPIRE_EVERY_S, "expire", if_keeper(self.expire)))
            group.create_task(self._every(sweep_every_s, "sweep", if_keeper(self.sweep)))
            group.create_task(self._every(CHECK_EVERY_S, "check", if_keeper(self.check)))

    async def expire(self) -> int:
        return await self._work.expire(self._clock.wall_ms())

    async def sweep(self) -> SweepResult:
        """Delete what is too old, in pages; a message first, and its id when that has expired too."""
        now = self._now_ms()
        messages = dead_letters = ids = 0
        for mesh_id in await self._store.meshes():
            after, is_done = 0, False
            while not is_done:
                page = await self._store.sweep_messages(
                    SweepPage(
                        mesh_id=mesh_id,
                        after_history_id=after,
                        before_ms=now - self._message_ms,
                        buried_before_ms=now - DEAD_LETTER_GRACE_MS,
                        now_ms=now,
                        limit=PAGE,
                    )
                )
                messages, dead_letters = messages + page.messages, dead_letters + page.dead_letters
                after, is_done = page.after_history_id, page.is_done
        while found := await self._store.sweep_ids(now, PAGE):
            ids += found
        while await self._store.sweep_events(now - self._message_ms, PAGE):
            pass
        while await self._presence.sweep(now - self._message_ms, PAGE):
            pass
        self._observer.publish(Swept(messages, dead_letters, ids))
        return SweepResult(messages, dead_letters, ids)

    async def sweep_planned(self, mesh_id: int, planned: Sequence[tuple[int, str]]) -> Counter[str]:
        """Delete of these messages what `sweep` would delete, in pages; count what became of each."""
        now, counts = self._now_ms(), Counter[str]()
        for first in range(0, len(planned), PAGE):
            page = PlanPage(
                mesh_id=mesh_id,
                planned=[*planned[first : first + PAGE]],
                before_ms=now - self._message_ms,
                buried_before_ms=now - DEAD_LETTER_GRACE_MS,
                now_ms=now,
            )
            counts.update(asdict(await self._store.sweep_planned(page)))
        return counts

    def _now_ms(self) -> int:
        """Return the earlier of two times, since what is deleted does not come back.

        A clock that jumps ahead makes nothing old, and neither does one that was ahead when this process began and
        was set right since.
        """
        return min(self._steady_ms(), self._clock.wall_ms())

    async def check(self) -> list[Violation]:
        violations = await self._store.check()
        self._observer.publish(OrphansChecked(len(violations)))
        return violations

    async def _every(self, seconds: float, name: str, task: Task) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await task()
            except Exception as error:  # noqa: BLE001  whatever it was, the next turn comes
                self._observer.publish(TaskFailed.of(name, error))
