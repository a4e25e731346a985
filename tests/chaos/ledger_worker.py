"""Processes that work on one ledger, and say what they were told, for tests that hurt them.

A line is one write into a pipe that all of them share: it is there whole or not at all, and outlives whoever wrote
it. `answered` is said after the answer, so it is a completion that somebody holds. How the ledger moved is written
down by triggers that each connection brings along, in the very transaction of the move: see `witness`.
"""

import itertools
import os
import random
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from claudemesh.kernel.errors import CassetteUnavailable, MessageCassetteError, NoPendingSteps
from claudemesh.ledger import MessageCassette
from claudemesh.ledger.stores.sqlite import entries, law
from claudemesh.runtime import points
from claudemesh.storage.sqlfile import Queries

RUNS: Final = ("run-0", "run-1", "run-2")
POINTS: Final = ("ledger.before_commit", "ledger.after_commit")
COMMITS_BEFORE_DEATH: Final = 60
LONG_S: Final = 100_000.0
THINKS_S: Final = 0.01  # SQLite's lock is not fair: who never rests may keep others out of it for long

RENEWS: Final = 0.1

WITNESS: Final = (
    "CREATE TABLE witness "
    "(n INTEGER PRIMARY KEY, run_id TEXT, place INTEGER, step_id TEXT, was TEXT, became TEXT, token INTEGER)"
)
_WITNESSES: Final = """
CREATE TEMP TRIGGER witness_post AFTER INSERT ON main.cassette_steps
BEGIN
  INSERT INTO witness (run_id, place, step_id, became, token)
  VALUES (NEW.run_id, NEW.rowid, NEW.step_id, NEW.status, NEW.fencing_token);
END;
CREATE TEMP TRIGGER witness_move AFTER UPDATE OF status ON main.cassette_steps
BEGIN
  INSERT INTO witness (run_id, place, step_id, was, became, token)
  VALUES (NEW.run_id, NEW.rowid, NEW.step_id, OLD.status, NEW.status, NEW.fencing_token);
END;
"""


def witness(ledger: MessageCassette) -> MessageCassette:
    """Have this connection write down every move of a step, in its transaction and so in the order of commits."""
    ledger._file.write(lambda connection, _: connection.execute(_WITNESSES).fetchall())
    return ledger


@dataclass(frozen=True)
class Task:
    path: Path
    out: Connection
    name: str
    life: int
    ttl_s: float
    deaths: float = 0.5  # of lives that end by themselves, around a commit
    stops: float = 0.03  # of steps whose worker sleeps until they are another's to take
    weakness: str | None = None


class Worker:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._attempts = itertools.count()
        self._ledger = witness(MessageCassette(db_path=task.path))

    def say(self, word: str, step_id: str, token: int, attempt: str = "-") -> None:
        line = f"{self._task.name} {self._task.life} {word} {step_id} {token} {attempt}\n"
        os.write(self._task.out.fileno(), line.encode())

    def claim(self, dice: random.Random) -> tuple[str, dict[str, Any]] | None:
        """Return a run and a step of it, or nothing if no run has one."""
        for run_id in dice.sample(RUNS, len(RUNS)):
            try:
                return run_id, self._ledger.claim_step(run_id, self._task.name, self._task.ttl_s)
            except NoPendingSteps:
                continue
        return None

    def renew(self, run_id: str, step_id: str, token: int) -> None:
        try:
            self._ledger.renew_lease(run_id, step_id, self._task.name, token, 2 * self._task.ttl_s)
        except MessageCassetteError:
            return  # too late, or nobody knows; the completion will find out
        self.say("renewed", step_id, token)

    def complete(self, run_id: str, step_id: str, token: int) -> None:
        attempt = f"{self._task.name}.{self._task.life}.{next(self._attempts)}"
        weakness = self._task.weakness
        self.say("answered" if weakness == "answers early" else "trying", step_id, token, attempt)
        try:
            said = {"attempt": attempt}
            self._ledger.complete_step(run_id, step_id, self._task.name, token, said, "SUCCESS")
        except CassetteUnavailable:
            self.say("unknown", step_id, token, attempt)
        except MessageCassetteError:
            self.say("answered" if weakness == "hears no refusal" else "refused", step_id, token, attempt)
        else:
            self.say("answered", step_id, token, attempt)


def work(task: Task) -> None:
    """Claim and complete until nothing is pending; now and then renew a lease, or sleep until it was requeued."""
    dice = random.Random(f"{task.name} {task.life} {os.getpid()}")  # noqa: S311  no secret
    weaken(task.weakness)
    worker = Worker(task)
    if dice.random() < task.deaths:
        die_at(dice.choice(POINTS), dice.randrange(1, COMMITS_BEFORE_DEATH))
    while (claimed := worker.claim(dice)) is not None:
        run_id, step = claimed
        step_id, token = step["step_id"], step["fencing_token"]
        worker.say("claimed", step_id, token)
        if dice.random() < RENEWS:
            worker.renew(run_id, step_id, token)
        if dice.random() < task.stops:
            worker.say("stopping", step_id, token)
            os.kill(os.getpid(), signal.SIGSTOP)
        worker.complete(run_id, step_id, token)


def write_on(task: Task, enough: Event) -> None:
    """Post, claim and complete until told that it is enough, whatever version the ledger has."""
    ledger = MessageCassette(db_path=task.path)
    for number in itertools.count():
        if enough.wait(THINKS_S):
            return
        key = f"{task.name}.{number}"
        ledger.post_message({"key": key}, task.name, "WORKER", key)
        step = ledger.claim_step(task.name, task.name, LONG_S)
        said = {"attempt": key}
        ledger.complete_step(task.name, step["step_id"], task.name, step["fencing_token"], said, "SUCCESS")
        line = f"{task.name} {task.life} answered {step['step_id']} {step['fencing_token']} {key}\n"
        os.write(task.out.fileno(), line.encode())


def upgrade(path: Path, point: str | None, after: int) -> None:
    """Upgrade a ledger, and die: at the point, or after so many instructions of the database's machine."""
    ledger = MessageCassette(db_path=path)
    if point is None:
        ledger._file._connection.set_progress_handler(dying(after), 1)
    else:
        die_at(point, 1)
    ledger.upgrade()


def die_at(point: str, count: int) -> None:
    points.arm(point, dying(count))


def dying(count: int) -> Callable[[], bool]:
    """Return what ends the process when it is called for the last of so many times."""
    left = itertools.count(count - 1, -1)

    def count_down() -> bool:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return False  # go on

    return count_down


# --- what a careless hand might make of it --------------------------------------------------------------


def _claim_the_last() -> None:
    of = entries._OF[2]
    order = "ORDER BY s.message_order, s.job_ordinal, s.ordinal"
    backwards = "ORDER BY s.message_order DESC, s.job_ordinal DESC, s.ordinal DESC"
    entries._OF[2] = Queries({name: of[name].replace(order, backwards) for name in of.names()})


def without_fence(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the law as it would be if a receipt were taken from anybody."""
    guards = "tr_receipts_insert_guard|tr_steps_commit_guard|tr_steps_fsm_illegal_1"
    whole = re.compile(rf"(CREATE TRIGGER (?:{guards}) [^\n]*\n)(.*?)(BEGIN\n).*?(\nEND;)", re.DOTALL)
    return tuple(whole.sub(r"\1\2\3  SELECT 1;\4", text) for text in texts)


def _unfence() -> None:
    law._TEXTS = without_fence(law._TEXTS)


_WEAKNESSES: Final[dict[str, Callable[[], None]]] = {"claims the last": _claim_the_last, "has no fence": _unfence}


def weaken(weakness: str | None) -> None:
    if weakness in _WEAKNESSES:
        _WEAKNESSES[weakness]()
