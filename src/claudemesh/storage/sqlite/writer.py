"""How many callers share one commit, and what happens when it fails.

One thread owns the only connection that writes. Callers hand it an operation and an item; while one commit is on
its way to the disk the next group gathers, so the more callers wait, the fewer syncs each of them costs.

The rules, which every store on top relies on:

- A group is one `BEGIN IMMEDIATE` transaction. Accepts, claims and settles share it, in the order they came.
- Neighbours of the same operation are applied in one call, as a batch with an outcome for each item.
- An operation judges before its first write and *returns* a refusal (a MeshError as that item's outcome), so that
  a refusal costs its neighbours nothing.
- An operation that *raises* was not expected to: the group is rolled back and its members are run again one by
  one, each in a transaction of its own, so that only the one at fault fails.
- Nobody is answered before the commit, not even with a refusal: it may rest on a neighbour's row.
- A sync that fails ends the process (see `runtime.halt`): the outcome of the whole group is unknown.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeVar

import apsw

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.runtime.halt import halt
from claudemesh.storage.sqlite.errors import is_sync_failure, translate
from claudemesh.storage.sqlite.replies import Reply, answer

GROUP_MAX_DEFAULT: Final = 256

# Checkpoints run on this thread, after the callers were answered: early when nobody waits, late when many do.
CHECKPOINT_IDLE_PAGES: Final = 250
CHECKPOINT_BUSY_PAGES: Final = 4_000

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# One outcome for each item, in their order; a MeshError is raised where that item's caller waits.
Operation = Callable[[apsw.Connection, Sequence[Item]], Sequence[Outcome | MeshError]]


@dataclass(slots=True)
class Job:
    operation: Operation[Any, Any]
    item: Any
    reply: Reply


class Writer:
    def __init__(
        self,
        connection: apsw.Connection,
        *,
        group_max: int = GROUP_MAX_DEFAULT,
    ) -> None:
        if group_max < 1:
            raise ValueError("a group holds at least one job")
        self._connection = connection
        self._group_max = group_max
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._accepting = threading.Lock()
        self._is_closed = False
        self._wal_pages = 0
        connection.set_wal_hook(self._note_wal_pages)
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        with self._accepting:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            self._queue.put(job)

    def close(self) -> None:
        """Finish everything that was submitted, then stop. May be called twice."""
        with self._accepting:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        group: list[Job] = []
        try:
            is_open = True
            while is_open:
                group, is_open = self._next_group()
                self._commit(group)
                self._checkpoint_if_due()
        except BaseException as error:  # noqa: BLE001  whatever it is, nobody may be left waiting for this thread
            self._give_up(group, error)

    def _next_group(self) -> tuple[list[Job], bool]:
        """Wait for a first job, then take whatever else waits already. False after the last group."""
        group: list[Job] = []
        job = self._queue.get()
        while job is not None:
            group.append(job)
            if len(group) == self._group_max:
                return group, True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[Job]) -> None:
        if not group:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            if is_sync_failure(error) or isinstance(error, apsw.SQLError):  # the latter: one was left open
                raise
            # No member's fault: another process holds the file, or there is no room for a lock.
            answer([(job.reply, translate(error)) for job in group])
            return
        try:
            outcomes = self._transact(group)
        except Exception as error:
            if is_sync_failure(error):
                raise
            if len(group) > 1:
                for job in group:
                    self._commit([job])
                return
            outcomes = [translate(error)]
        else:
            points.reach("sqlite.after_commit")
        answer([(job.reply, outcome) for job, outcome in zip(group, outcomes, strict=True)])

    def _transact(self, group: list[Job]) -> list[object]:
        connection = self._connection
        try:
            outcomes = _apply(connection, group)
            points.reach("sqlite.before_commit")
            connection.execute("COMMIT")
        except BaseException as error:
            if not is_sync_failure(error) and connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _give_up(self, group: list[Job], error: BaseException) -> None:
        """Tell everyone who waits that the outcome is unknown, and end the process."""
        with self._accepting:
            self._is_closed = True
        waiting = [*group]
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                waiting.append(job)
        answer([(job.reply, StoreUnavailable(f"the store failed under this write: {error}")) for job in waiting])
        halt(f"the writer of {self._connection.filename} failed: {error!r}")

    # --- checkpoints -----------------------------------------------------------------------------

    def _note_wal_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_due(self) -> None:
        due = CHECKPOINT_IDLE_PAGES if self._queue.empty() else CHECKPOINT_BUSY_PAGES
        if self._wal_pages < due:
            return
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._wal_pages = 0
        except apsw.Error as error:
            # What is committed is safe in the WAL; the next group tries again. Only a failed sync is different.
            if is_sync_failure(error):
                raise


def _apply(connection: apsw.Connection, group: list[Job]) -> list[object]:
    outcomes: list[object] = []
    for operation, jobs in groupby(group, key=lambda job: job.operation):
        items = [job.item for job in jobs]
        results = operation(connection, items)
        if len(results) != len(items):
            raise IntegrityError(f"{len(items)} items went in, {len(results)} outcomes came out")
        outcomes.extend(results)
        if not connection.in_transaction:
            raise IntegrityError("an operation ended the transaction that it shares with others")
    return outcomes
