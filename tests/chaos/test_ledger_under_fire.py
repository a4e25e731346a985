"""A ledger whose workers are killed, stopped and brought back, and one whose upgrade is. The seed is printed.

Each step is committed once, by whoever held it last; everything that a worker was told is so; and the moves of all
steps, replayed in the order of their commits, are those that the contract allows.
"""

import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from claudemesh.ledger import MessageCassette
from claudemesh.ledger.stores.sqlite import law
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from tests.chaos.ledger_fight import PROCESSES, WITHIN_S, Fight, check, parse
from tests.chaos.ledger_worker import LONG_S, POINTS, Task, upgrade, without_fence, write_on

STEPS = 500
WORKERS, WORKERS_MAX = 4, 8


def fresh_dice() -> random.Random:
    seed = random.randrange(2**32)  # noqa: S311  printed, so that a failure can be looked at again
    print(f"seed {seed}")  # noqa: T201  shown with a failure
    return random.Random(seed)  # noqa: S311  no secret


@pytest.mark.req("L3", "L4", "L7")
def test_workers_that_are_killed_and_stopped_commit_each_step_once_and_in_order(
    tmp_path: Path, effort: int
) -> None:
    workers = WORKERS if effort == 1 else WORKERS_MAX
    fight = Fight(tmp_path / "ledger.db", fresh_dice(), workers, STEPS * effort)
    fight.fight()
    with MessageCassette(db_path=fight.path) as ledger:
        assert not check(ledger, fight.lines, fight.steps)
    words = Counter(line.word for line in fight.lines)
    print(words, Counter(fight.exits), f"{fight.kills} kills, {fight.pauses} pauses")  # noqa: T201
    assert set(fight.exits) <= {0, -signal.SIGKILL}, "somebody ended in another way"
    assert Counter(fight.exits)[-signal.SIGKILL] >= 3
    assert min(words["stopping"], words["refused"], words["renewed"]) >= 1
    assert sum(token > 1 for *_, token, _ in fight.lines) >= 1, "nothing was claimed again"


@pytest.mark.parametrize("weakness", ["answers early", "hears no refusal", "claims the last", "has no fence"])
def test_careless_workers_and_a_ledger_without_its_fence_are_found_out(
    tmp_path: Path, weakness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weakness == "has no fence":
        monkeypatch.setattr(law, "_TEXTS", without_fence(law._TEXTS))
        law.objects_of.cache_clear()
    fight = Fight(tmp_path / "ledger.db", fresh_dice(), 3, 150, ttl_s=0.2, deaths=1, stops=0.1, weakness=weakness)
    try:
        fight.fight()
        with MessageCassette(db_path=fight.path) as ledger:
            found = check(ledger, fight.lines, fight.steps)
    finally:
        law.objects_of.cache_clear()
    about = {"claims the last": "order: ", "has no fence": ""}.get(weakness, "answered and lost: ")
    assert any(each.startswith(about) for each in found), found


# --- the upgrade ----------------------------------------------------------------------------------------

HELD = 5
MESSAGES = 100
INSTRUCTIONS_AT_LEAST = 10_000


def leases(path: Path) -> tuple[int | None, list[str], list[tuple[object, ...]]]:
    """Return version, issues, and what is held by the one who holds."""
    with MessageCassette(db_path=path) as ledger:
        held = ledger.list_steps("held", "LEASED")
        lease = ("step_id", "lease_owner", "fencing_token", "lease_expires_at")
        return ledger.read_version(), ledger.find_issues(), [tuple(step[name] for name in lease) for step in held]


def upgraded_by_a_process(path: Path, point: str | None, after: int = 0) -> int | None:
    process = PROCESSES.Process(target=upgrade, args=(path, point, after))
    process.start()
    process.join(WITHIN_S)
    return process.exitcode


class Beside:
    """Others who post, claim and complete all the while."""

    def __init__(self, path: Path) -> None:
        self._reader, writer = PROCESSES.Pipe(duplex=False)
        self._enough = PROCESSES.Event()
        self.heard = [0, 0]
        self._changed = threading.Condition()
        tasks = [Task(path, writer, f"writer-{number}", number, LONG_S) for number in range(2)]
        self._processes = [PROCESSES.Process(target=write_on, args=(task, self._enough)) for task in tasks]
        for process in self._processes:
            process.start()
        writer.close()
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        with open(self._reader.fileno(), encoding="ascii", closefd=False) as lines:
            for text in lines:
                with self._changed:
                    self.lines.append(text.rstrip())
                    self.heard[parse(text).life] += 1
                    self._changed.notify_all()

    def go_on(self) -> None:
        """Wait until each of them was answered once more."""
        with self._changed:
            before = list(self.heard)
            done = self._changed.wait_for(
                lambda: all(now > then for now, then in zip(self.heard, before, strict=True)), WITHIN_S
            )
        assert done, "somebody is not answered any more"

    def end(self) -> list[int | None]:
        self._enough.set()
        for process in self._processes:
            process.join(WITHIN_S)
        self._listener.join(WITHIN_S)
        return [process.exitcode for process in self._processes]


def count_instructions(path: Path) -> int:
    """Return how many instructions of the database's machine the upgrade of a ledger takes."""
    calls = 0

    def count() -> bool:
        nonlocal calls
        calls += 1
        return False

    with MessageCassette(db_path=path) as ledger:
        ledger._file._connection.set_progress_handler(count, 1)
        ledger.upgrade()
    return calls


def begin(path: Path) -> None:
    """Make a ledger of version 1 with work in it, some of it held."""
    LedgerFile.open(path, version=1).close()
    with MessageCassette(db_path=path) as ledger:
        for number in range(MESSAGES):
            ledger.post_message({"number": number}, "held" if number < HELD else "other", "USER", f"{number}")
        for _ in range(HELD):
            ledger.claim_step("held", "holder", LONG_S)


@pytest.mark.req("L7")
def test_an_upgrade_that_is_killed_leaves_one_version_whole_and_its_leases_live(
    tmp_path: Path, effort: int
) -> None:
    dice = fresh_dice()
    begin(tmp_path / "quiet.db")
    instructions = count_instructions(tmp_path / "quiet.db")
    assert instructions > INSTRUCTIONS_AT_LEAST
    for round_ in range(effort):
        path = tmp_path / f"{round_}.db"
        begin(path)
        _, _, held = leases(path)
        others = Beside(path)
        try:
            deaths = [(None, dice.randrange(1, instructions)) for _ in range(6)]
            for point, after in [*deaths, (POINTS[0], 0)]:
                assert upgraded_by_a_process(path, point, after) == -signal.SIGKILL
                assert leases(path) == (1, [], held)
                others.go_on()
            assert upgraded_by_a_process(path, POINTS[1]) == -signal.SIGKILL
            assert leases(path) == (2, [], held)
            others.go_on()
        finally:
            codes = others.end()
        assert codes == [0, 0]
        finish(path, others)


def finish(path: Path, others: Beside) -> None:
    """Whoever held a lease completes its step; what the others were told is there, and nothing else of theirs."""
    sql = "SELECT step_id, receipt_json ->> '$.attempt' FROM cassette_receipts WHERE worker_id <> 'holder'"
    with MessageCassette(db_path=path) as ledger:
        for step in ledger.list_steps("held"):
            ledger.complete_step("held", step["step_id"], "holder", step["fencing_token"], {}, "SUCCESS")
        assert not ledger.find_issues()
        there = ledger._file.read(lambda connection: connection.execute(sql).fetchall())
    assert Counter((line.step_id, line.attempt) for line in map(parse, others.lines)) == Counter(there)
