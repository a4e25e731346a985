"""Workers on one ledger that are killed and stopped, a supervisor who goes on, and what must hold in the end."""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from claudemesh.ledger import MessageCassette
from tests.chaos.ledger_worker import RUNS, WITNESS, Task, witness, work

PROCESSES: Final = multiprocessing.get_context("forkserver")  # a new life costs milliseconds
PROCESSES.set_forkserver_preload(["tests.chaos.ledger_worker"])

WITHIN_S: Final = 60.0  # until somebody says something
TICK_S: Final = 0.05  # how often leases are looked after
STEPS_OF_A_MESSAGE: Final = 10
KILLED: Final = 0.02  # for each claim, anybody
PAUSED: Final = 0.01  # for each claim, anybody, wherever it is; so also in a transaction
PAUSE_IN_LEASES: Final = 1.3


class Line(NamedTuple):
    worker: str
    life: int
    word: str
    step_id: str
    token: int
    attempt: str


def parse(text: str) -> Line:
    worker, life, word, step_id, token, attempt = text.split(" ")
    return Line(worker, int(life), word, step_id, int(token), attempt)


@dataclass
class Fight:
    path: Path
    dice: random.Random
    workers: int
    steps: int
    ttl_s: float = 1.0
    deaths: float = 0.5
    stops: float = 0.03
    weakness: str | None = None
    lines: list[Line] = field(default_factory=list)
    kills: int = 0
    pauses: int = 0
    exits: list[int] = field(default_factory=list)

    def fight(self) -> None:
        """Have all steps worked off, whatever it takes."""
        self._reader, self._writer = PROCESSES.Pipe(duplex=False)
        self._rest = b""
        self._left = self.steps  # to be posted
        self._lives: dict[str, int] = defaultdict(int)
        self._alive: dict[str, BaseProcess] = {}
        self._asleep: dict[tuple[str, int], Line] = {}  # by step and token: who stopped itself
        self._awake: set[Line] = set()  # of those, whose lease was requeued
        self._timers: list[threading.Timer] = []
        self._heard_at_s = time.monotonic()
        with MessageCassette(db_path=self.path) as ledger:
            ledger._file.write(lambda connection, _: connection.execute(WITNESS).fetchall())
            witness(ledger)
            left = self._post(ledger, self.steps // 2)
            try:
                while left or has_open(ledger):
                    left = left and self._post(ledger, min(left, STEPS_OF_A_MESSAGE))
                    self._start()
                    self._hear()
                    self._look_after_leases(ledger)
                self._wait_for_all(ledger)
            finally:
                self._end()

    def _post(self, ledger: MessageCassette, steps: int) -> int:
        """Return how many are left to be posted."""
        for _ in range(0, steps, STEPS_OF_A_MESSAGE):
            half = [list(range(STEPS_OF_A_MESSAGE // 2))] * 2
            ledger.post_message(
                {"jobs": [{"intent": "i", "steps": steps} for steps in half]}, self.dice.choice(RUNS), "USER"
            )
        self._left -= steps
        return self._left

    def _start(self) -> None:
        for number in range(self.workers):
            name = f"w{number}"
            if name not in self._alive:
                self._lives[name] += 1
                habits = (self.ttl_s, self.deaths, self.stops, self.weakness)
                task = Task(self.path, self._writer, name, self._lives[name], *habits)
                self._alive[name] = PROCESSES.Process(target=work, args=(task,), daemon=True)
                self._alive[name].start()

    def _hear(self) -> None:
        """Take in what is said until it is time to look after leases; hurt somebody now and then."""
        until_s = time.monotonic() + TICK_S
        while (left_s := until_s - time.monotonic()) > 0:
            sentinels = {process.sentinel: name for name, process in self._alive.items()}
            for ready in wait([self._reader, *sentinels], left_s):
                if ready is self._reader:
                    for line in self._read():
                        self._take(line)
                else:
                    self._bury(sentinels[ready])
        assert time.monotonic() - self._heard_at_s < WITHIN_S, f"nobody says anything: {self}"

    def _read(self) -> Iterator[Line]:
        *whole, self._rest = (self._rest + os.read(self._reader.fileno(), 1 << 16)).split(b"\n")
        self._heard_at_s = time.monotonic()
        yield from (parse(line.decode()) for line in whole)

    def _take(self, line: Line) -> None:
        self.lines.append(line)
        if line.word == "stopping":
            self._asleep[line.step_id, line.token] = line
        elif line.word == "claimed":
            self._hurt()
        self._awake = {each for each in self._awake if (each.worker, each.life) != (line.worker, line.life)}

    def _hurt(self) -> None:
        name, thrown = self.dice.choice(list(self._lives)), self.dice.random()
        if name in self._alive and thrown < KILLED:
            self._alive[name].kill()
            self.kills += 1
        elif name in self._alive and thrown < KILLED + PAUSED and not any(each.is_alive() for each in self._timers):
            self._signal(name, signal.SIGSTOP)
            self._timers.append(threading.Timer(PAUSE_IN_LEASES * self.ttl_s, self._signal, (name, signal.SIGCONT)))
            self._timers[-1].start()
            self.pauses += 1

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._alive.get(name)
        with suppress(ProcessLookupError):
            if process is not None and process.pid is not None:
                os.kill(process.pid, number)

    def _bury(self, name: str) -> None:
        process = self._alive.pop(name)
        process.join()
        self.exits.append(process.exitcode or 0)

    def _look_after_leases(self, ledger: MessageCassette) -> None:
        """Requeue what expired. Who stopped itself goes on when its lease is another's to take."""
        for run_id in RUNS:
            for step_id in ledger.requeue_expired(run_id):
                for key in [key for key in self._asleep if key[0] == step_id]:
                    self._awake.add(self._asleep.pop(key))
        for line in self._awake:  # again, until it says something: it may not have fallen asleep yet
            if self._lives[line.worker] == line.life:
                self._signal(line.worker, signal.SIGCONT)

    def _wait_for_all(self, ledger: MessageCassette) -> None:
        while self._alive:
            self._look_after_leases(ledger)
            for line in [*self._asleep.values(), *self._awake]:  # its step was completed by another life of it
                self._signal(line.worker, signal.SIGCONT)
            self._hear()

    def _end(self) -> None:
        for timer in self._timers:
            timer.join()
        for process in self._alive.values():
            process.kill()
            process.join()
        self._writer.close()
        while read := list(self._read()):  # nobody else writes any more, so there is an end
            self.lines += read
        self._reader.close()


def has_open(ledger: MessageCassette) -> bool:
    sql = "SELECT EXISTS (SELECT 1 FROM cassette_steps WHERE status = 'PENDING' OR status = 'LEASED')"
    return bool(ledger._file.read(lambda connection: connection.execute(sql).fetchall()[0][0]))


# --- what must hold -------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What is in the ledger in the end."""

    steps: dict[str, tuple[str, int]]  # status, token
    receipts: dict[str, tuple[str, int, str]]  # by attempt: step, token, worker
    moves: list[tuple[str, int, str, str | None, str, int]]


def find(ledger: MessageCassette) -> Found:
    def read(connection: apsw.Connection) -> Found:
        steps = connection.execute("SELECT step_id, status, fencing_token FROM cassette_steps").fetchall()
        receipts = connection.execute(
            "SELECT receipt_json ->> '$.attempt', step_id, fencing_token, worker_id FROM cassette_receipts"
        ).fetchall()
        moves = connection.execute("SELECT run_id, place, step_id, was, became, token FROM witness ORDER BY n")
        by_step = {step_id: (status, token) for step_id, status, token in steps}
        by_attempt = {attempt: (step_id, token, worker) for attempt, step_id, token, worker in receipts}
        return Found(by_step, by_attempt, moves.fetchall())

    return ledger._file.read(read)


def check(ledger: MessageCassette, lines: list[Line], steps: int) -> list[str]:
    """Say what is wrong: with the ledger by itself, with its history, and with what workers were told."""
    found = find(ledger)
    return [*ledger.find_issues(), *_check_history(found, steps), *_check_answers(found, lines)]


def _check_history(found: Found, steps: int) -> Iterator[str]:
    """Replay every move in its order: a claim takes the first step of its run that is pending."""
    pending: dict[str, list[int]] = defaultdict(list)
    tokens: dict[str, int] = {}
    committed: set[str] = set()
    for run_id, place, step_id, was, became, token in found.moves:
        match was, became:
            case None, "PENDING":
                tokens[step_id] = 0
                heappush(pending[run_id], place)
            case "PENDING", "LEASED":
                tokens[step_id] += 1
                if token != tokens[step_id]:
                    yield f"token: {step_id} is claimed under {token} and not {tokens[step_id]}"
                if place != heappop(pending[run_id]):
                    yield f"order: {step_id} is claimed before another that waits"
            case "LEASED", "PENDING":
                heappush(pending[run_id], place)
            case "LEASED", "COMMITTED" if step_id not in committed:
                committed.add(step_id)
            case _:
                yield f"move: {step_id} goes from {was} to {became}"
    counts = len(found.steps), len(committed), len(found.receipts)
    if counts != (steps, steps, steps):
        yield f"once: {counts} steps, commits and receipts, and not {steps} of each"


def _check_answers(found: Found, lines: list[Line]) -> Iterator[str]:
    told: dict[tuple[str, int], Line] = {}
    for line in lines:
        there: Any = found.receipts.get(line.attempt)
        if line.word == "refused" and there is not None:
            yield f"refused and there: {line}"
        if line.word != "answered":
            continue
        if there != (line.step_id, line.token, line.worker):
            yield f"answered and lost: {line}"
        if told.setdefault((line.step_id, line.token), line).attempt != line.attempt:
            yield f"two were answered: {line} and {told[line.step_id, line.token]}"
