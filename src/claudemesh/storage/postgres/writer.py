"""Callers that share one connection, and a commit.

Callers hand in an operation and an item; while one commit is on its way to the disk the next group gathers. What is
submitted first is applied first. The rules are those of the SQLite writer (`storage.sqlite.writer`), but for one: a
group holds neighbours of one operation only.

- An operation judges before its first write and *returns* a refusal as that item's outcome.
- An operation that *raises* was not expected to: the group is rolled back, and its items are run again one by one,
  by the operation that was given for this if there is one. So it may run twice before it is answered once, and must
  have no effect outside the transaction.
- If the server or the way to it fails, the outcome of the whole group is unknown, and everybody in it is told so.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.storage.postgres.connection import Connection, bounded
from claudemesh.storage.postgres.errors import is_the_stores_fault, translate
from claudemesh.storage.postgres.retrying import retried

WEIGHT_MAX: Final = 256

BEFORE_COMMIT: Final = points.declare("postgres.before_commit")
AFTER_COMMIT: Final = points.declare("postgres.after_commit")

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

Operation = Callable[[Connection, Sequence[Item]], Awaitable[Sequence[Outcome | MeshError]]]


@dataclass(slots=True)
class _Job:
    operation: Operation[Any, Any]
    alone: Operation[Any, Any] | None
    item: Any
    weight: int
    reply: asyncio.Future[Any]


class Writer:
    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, weight_max: int = WEIGHT_MAX) -> None:
        self._connect = connect
        self._weight_max = weight_max
        self._connection: Connection | None = None
        self._waiting: deque[_Job] = deque()
        self._bell = asyncio.Event()
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def submit(
        self,
        operation: Operation[Item, Outcome],
        item: Item,
        *,
        weight: int = 1,
        alone: Operation[Item, Outcome] | None = None,
    ) -> "asyncio.Future[Outcome]":
        """Queue it; the future is done when its commit is. `alone` is for an item of which something failed."""
        reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            reply.set_exception(StoreUnavailable("the store is closed"))
        else:
            self._waiting.append(_Job(operation, alone, item, weight, reply))
            self._bell.set()
        return reply

    async def aclose(self) -> None:
        """Finish everything that was submitted, then stop."""
        self._is_closed = True
        self._bell.set()
        await self._task
        if self._connection is not None and not self._connection.is_closed():
            await self._connection.close(timeout=1)

    # --- the task ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closed or self._waiting:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                await self._serve(self._gather())

    def _gather(self) -> list[_Job]:
        """Take neighbours of one operation, up to the weight that one transaction carries."""
        group = [self._waiting.popleft()]
        weight = group[0].weight
        while self._waiting and self._waiting[0].operation == group[0].operation:
            weight += self._waiting[0].weight
            if weight > self._weight_max:
                break
            group.append(self._waiting.popleft())
        return group

    async def _serve(self, group: list[_Job]) -> None:
        outcomes = await self._transact(group)
        for job, outcome in zip(group, outcomes, strict=True):
            if job.reply.done():  # its caller is gone
                continue
            if isinstance(outcome, BaseException):
                job.reply.set_exception(outcome)
            else:
                job.reply.set_result(outcome)

    async def _transact(self, group: list[_Job]) -> Sequence[object]:
        """Return the outcome of each: all in one transaction, or if that breaks each in its own."""
        items = [job.item for job in group]
        try:
            return await retried(lambda: self._once(group[0].operation, items))
        except Exception as error:  # noqa: BLE001  the callers', whatever it is: it is raised where they wait
            if is_the_stores_fault(error) or (len(group) == 1 and group[0].alone is None):
                return [translate(error) for _ in group]
        return [await self._transact_alone(job) for job in group]

    async def _transact_alone(self, job: _Job) -> object:
        try:
            return (await retried(lambda: self._once(job.alone or job.operation, [job.item])))[0]
        except Exception as error:  # noqa: BLE001  as above
            return translate(error)

    async def _once(self, operation: Operation[Any, Any], items: list[Any]) -> Sequence[object]:
        connection = await self._connected()
        with bounded(connection):
            async with connection.transaction():
                outcomes = await operation(connection, items)
                if len(outcomes) != len(items):
                    raise IntegrityError(f"{len(items)} items went in, {len(outcomes)} outcomes came out")
                points.reach(BEFORE_COMMIT)
        points.reach(AFTER_COMMIT)
        return outcomes

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection
