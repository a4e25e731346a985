"""How many callers share one commit, and what happens when it fails.

One thread owns the only connection that writes. Callers hand it an operation and items; while one commit is on its
way to the disk the next group gathers, so the more callers wait, the fewer syncs each of them costs.

The rules, which every store on top relies on:

- A group is one `BEGIN IMMEDIATE` transaction. Accepts, claims and settles share it, in the order they came.
- Neighbours of the same operation are applied in one call, as a batch with an outcome for each item. The same means
  equal: a function or a bound method batches, a fresh lambda for each call does not.
- An operation judges before its first write and *returns* a refusal (a MeshError as that item's outcome), so that
  a refusal costs its neighbours nothing.
- An operation that *raises* was not expected to: the group is rolled back and its items are run again one by one,
  each in a transaction of its own, so that only the one at fault fails. So it may run twice before it is answered
  once, and must have no effect outside the transaction; nor may it keep a cursor open or end the transaction.
- Nobody is answered before the commit, not even with a refusal: it may rest on a neighbour's row.
- A sync that fails ends the process (see `runtime.halt`): the outcome of the whole group is unknown.
"""

import os
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeVar

import apsw

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.storage.sqlite import sync_guard
from claudemesh.storage.sqlite.connection import BUSY_TIMEOUT_MS
from claudemesh.storage.sqlite.errors import translate
from claudemesh.storage.sqlite.replies import Reply, answer
from claudemesh.storage.sqlite.transactions import Transactions

GROUP_MAX_DEFAULT: Final = 256

BEFORE_COMMIT: Final = points.declare("sqlite.before_commit")
AFTER_COMMIT: Final = points.declare("sqlite.after_commit")

# Checkpoints run on this thread, after the callers were answered: early when nobody waits, late when many do.
CHECKPOINT_IDLE_PAGES: Final = 250
CHECKPOINT_BUSY_PAGES: Final = 4_000
WAL_PAGES_MAX: Final = 16_000  # 64 MB; beyond it readers are waited for
RESTART_TRIES: Final = 10
RESTART_TRY_MS: Final = 50

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# One outcome for each item, in their order; a MeshError is raised where that item's caller waits.
Operation = Callable[[apsw.Connection, Sequence[Item]], Sequence[Outcome | MeshError]]


Call = tuple[Operation[Any, Any], Any]  # an operation and one item


@dataclass(slots=True)
class Job:
    """What one caller waits for: the outcome of its one item, or the list of them all if it asked for many."""

    operation: Operation[Any, Any]
    items: Sequence[Any]
    reply: Reply
    is_batch: bool = False


class Writer:
    def __init__(
        self, connection: apsw.Connection, transactions: Transactions, *, group_max: int = GROUP_MAX_DEFAULT
    ) -> None:
        if group_max < 1:
            raise ValueError("a group holds at least one item")
        self._connection = connection
        self._transactions = transactions
        self._group_max = group_max
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._group: list[Job] = []  # what is under way
        self._accepting = threading.RLock()  # a signal handler may close while its own thread submits
        self._is_closed = False
        self._pid = os.getpid()
        self._wal_pages = 0
        self._restart_at_pages = WAL_PAGES_MAX
        connection.set_wal_hook(self._note_wal_pages)
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)

    def start(self) -> None:
        sync_guard.watch(self._answer_unknown)
        self._thread.start()

    def submit(self, job: Job) -> None:
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError(
                "an operation writes through its connection; to wait for the writer here is for ever"
            )
        if os.getpid() != self._pid:
            raise StoreUnavailable("the store was opened before a fork, and its writer stayed with the parent")
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
        sync_guard.unwatch(self._answer_unknown)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            is_open = True
            while is_open:
                is_open = self._gather()
                self._serve(self._group)
                self._checkpoint_if_due()
        except BaseException as error:  # noqa: BLE001  whatever it is, nobody may be left waiting for this thread
            sync_guard.give_up(f"the writer of {self._connection.filename} failed: {error!r}")

    def _gather(self) -> bool:
        """Wait for a first job, then take what else waits, up to the limit of items. False after the last group."""
        self._group = []
        items = 0
        job = self._queue.get()
        while job is not None:
            self._group.append(job)
            items += len(job.items)
            if items >= self._group_max:
                return True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return True
        return False

    def _serve(self, group: list[Job]) -> None:
        calls = [(job.operation, item) for job in group for item in job.items]
        outcomes = iter(self._transact(calls) if calls else ())
        answers: list[tuple[Reply, object]] = []
        for job in group:
            mine = list(islice(outcomes, len(job.items)))
            answers.append((job.reply, mine if job.is_batch else mine[0]))
        answer(answers)

    def _transact(self, calls: list[Call]) -> list[object]:
        """Return the outcome of each call: all in one transaction, or if that breaks each in its own."""
        try:
            self._transactions.begin()
        except apsw.SQLError:  # one was left open: the connection cannot be trusted any more
            raise
        except apsw.Error as error:  # no member's fault: another process holds the file, or there is no room
            return [translate(error) for _ in calls]
        try:
            with self._transactions.committing():
                outcomes = _apply(self._connection, calls)
                points.reach(BEFORE_COMMIT)
        except BaseException as error:  # noqa: BLE001  the caller's, whatever it is: it is raised where it waits
            traceback.clear_frames(error.__traceback__)  # a cursor left open in them would block the next commit
            if len(calls) == 1:
                return [translate(error)]
            return [outcome for call in calls for outcome in self._transact([call])]
        points.reach(AFTER_COMMIT)
        return outcomes

    def _answer_unknown(self, reason: str) -> None:
        """Tell everyone who waits, from whatever thread the end of the process is announced on."""
        with self._accepting:
            self._is_closed = True
        waiting = [*self._group]
        with suppress(queue.Empty):
            while True:
                job = self._queue.get_nowait()
                waiting += [] if job is None else [job]
        answer([(job.reply, StoreUnavailable(f"the store failed under this write: {reason}")) for job in waiting])

    # --- checkpoints -----------------------------------------------------------------------------

    def _note_wal_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_due(self) -> None:
        due = CHECKPOINT_IDLE_PAGES if self._queue.empty() else CHECKPOINT_BUSY_PAGES
        if self._wal_pages < due:
            return
        # What is committed is safe in the WAL, so an error here (a full disk, a busy reader) only means: later.
        with suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if self._wal_pages < WAL_PAGES_MAX:
                self._restart_at_pages = WAL_PAGES_MAX
            elif self._wal_pages >= self._restart_at_pages:
                self._restart_wal()
        self._wal_pages = 0

    def _restart_wal(self) -> None:
        """Wait a moment for the readers: while they overlap, the WAL never comes to begin again at its start.

        In several short tries: a try waits for the read marks that it found, even where a newer reader took one
        over, which keeps nobody from anything. Overlapping readers may hand it on for ever; the next try sees that
        it is new.
        """
        self._restart_at_pages = self._wal_pages + WAL_PAGES_MAX
        self._connection.set_busy_timeout(RESTART_TRY_MS)
        try:
            for _ in range(RESTART_TRIES):
                with suppress(apsw.BusyError):
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                    return
        finally:
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)


def _apply(connection: apsw.Connection, calls: list[Call]) -> list[object]:
    outcomes: list[object] = []
    for operation, neighbours in groupby(calls, key=itemgetter(0)):
        items = [item for _, item in neighbours]
        results = operation(connection, items)
        if len(results) != len(items):
            raise IntegrityError(f"{len(items)} items went in, {len(results)} outcomes came out")
        outcomes.extend(results)
    return outcomes
