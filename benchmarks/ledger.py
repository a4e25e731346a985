"""The ledger: durable claims and completions against bare commits and a peer, and what they cost when it has grown.

A pair is a claim and the completion of what was claimed: two calls, two commits, two syncs. The floor writes one
row for each commit. The peer is persist-queue's SQLiteAckQueue with SQLite's own power-safe setting, asked as its
users ask it (`get`, `ack`): both work off ten thousand items. It looks for the next item among all that were done,
so beside it stand its rates over the first thousand, of callers who tell it where to go on, and when much is done.
The ledger is filled as users fill it, a thousand steps a message.
"""

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import apsw
from persistqueue import SQLiteAckQueue

from benchmarks.engine import BODY, INSERT, TABLE, measure_bare_sqlite
from benchmarks.messages import SIZE, text
from benchmarks.report import Figures, measured, say_rate, say_ratio, say_value, scaled
from claudemesh.ledger import MessageCassette
from claudemesh.storage.sqlite.connection import configure

RUN, WORKER = "run", "worker"
STEPS_OF_A_MESSAGE = 1_000
PAIRS = 1_000
WORKED_OFF = 10_000
FEW, MANY = 1_000, 1_000_000
REPEATS = 5
PAIRS_OF_A_REPEAT = 120
VERIFIED = 100_000
DONE = 100_000

CHECKPOINT_PAGES_OF_SQLITE = 1_000

_SYNCHRONOUS_FULL = 2


def fill(ledger: MessageCassette, steps: int, payload: object = "x") -> None:
    for first in range(0, steps, STEPS_OF_A_MESSAGE):
        some = [payload] * min(STEPS_OF_A_MESSAGE, steps - first)
        ledger.post_message({"jobs": [{"intent": "bench", "steps": some}]}, RUN, "SYSTEM")


def with_warm_up(calls: int) -> int:
    return calls + calls // 4


def pair_s(ledger: MessageCassette, pairs: int) -> float:
    """Return the seconds of one claim and its completion."""
    return _each_s(lambda: _claim_and_complete(ledger), pairs)


def _claim_and_complete(ledger: MessageCassette) -> None:
    step = ledger.claim_step(RUN, WORKER)
    ledger.complete_step(RUN, step["step_id"], WORKER, step["fencing_token"], {"done": True}, "SUCCESS")


def _each_s(call: Callable[[], object], times: int) -> float:
    """Return the seconds of a call, after a quarter of the calls unmeasured: a new WAL grows, and syncs slowly."""
    for _ in range(with_warm_up(times) - times):
        call()
    began_s = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began_s) / times


# --- rates ----------------------------------------------------------------------------------------------


def measure_rates(scale: float) -> Figures:
    pairs = scaled(PAIRS, scale)
    with tempfile.TemporaryDirectory() as name, MessageCassette(db_path=Path(name, "ledger.db")) as ledger:
        fill(ledger, with_warm_up(pairs), text(0, SIZE))
        return {
            "commits": _measure_commits(Path(name, "floor.db"), 2 * pairs),
            "commits_growing": measure_bare_sqlite(Path(name), batches=2 * pairs, batch=1),
            "pairs": 1 / pair_s(ledger, pairs),
            "peer": _measure_peer(Path(name, "peer"), pairs),
            "peer_worked_off": _work_off_peer(Path(name, "worked_off"), scaled(WORKED_OFF, scale)),
            "pairs_worked_off": _work_off(Path(name, "worked_off.db"), scaled(WORKED_OFF, scale)),
            "peer_in_order": _measure_peer_in_order(Path(name, "in_order"), pairs),
            "peer_grown": _measure_peer(Path(name, "grown"), scaled(100, scale), scaled(DONE, scale)),
            "posts": 1 / _each_s(lambda: ledger.post_message({"text": text(0, SIZE)}, "other", "SYSTEM"), pairs),
        }


def _measure_commits(path: Path, commits: int) -> float:
    """Return how often a second a bare connection commits one row, with the checkpoints that SQLite has by default.

    Those make it faster, and not slower: a WAL that is written over again syncs in half the time of one that grows.
    """
    connection = apsw.Connection(str(path))
    configure(connection)
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES_OF_SQLITE)
    connection.execute(TABLE)
    numbers = count()
    rate = 1 / _each_s(lambda: connection.execute(INSERT, (f"{next(numbers):09}", BODY)), commits)
    connection.close()
    return rate


def _filled_peer(folder: Path, items: int, done: int = 0) -> SQLiteAckQueue:
    """Return a queue with items to get, after so many that were acknowledged and that nobody cleared away."""
    queue = SQLiteAckQueue(str(folder))
    connection: Any = queue._putter  # noqa: SLF001  it has no setting for this
    connection.execute("PRAGMA synchronous = OFF")  # while it is filled
    item = text(0, SIZE)
    first = queue.put(item)
    queue.ack(queue.get(block=False))
    with connection:
        connection.execute(
            f"""WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {done})
            INSERT INTO {queue._table_name} (data, timestamp, status)
            SELECT data, timestamp, status FROM {queue._table_name}, n WHERE _id = ? AND {done} > 0""",  # noqa: S608, SLF001
            (first,),
        )
    for _ in range(items):
        queue.put(item)
    connection.execute("PRAGMA synchronous = FULL")
    assert connection.execute("PRAGMA synchronous").fetchone() == (_SYNCHRONOUS_FULL,)
    return queue


def _measure_peer(folder: Path, items: int, done: int = 0) -> float:
    queue = _filled_peer(folder, with_warm_up(items), done)
    rate = 1 / _each_s(lambda: queue.ack(queue.get(block=False)), items)
    queue.close()
    return rate


def _work_off_peer(folder: Path, items: int) -> float:
    """Return the rate over a whole queue, from its first item to its last."""
    queue = _filled_peer(folder, items)
    began_s = time.perf_counter()
    for _ in range(items):
        queue.ack(queue.get(block=False))
    rate = items / (time.perf_counter() - began_s)
    queue.close()
    return rate


def _work_off(path: Path, steps: int) -> float:
    with MessageCassette(db_path=path) as ledger:
        fill(ledger, steps, text(0, SIZE))
        began_s = time.perf_counter()
        for _ in range(steps):
            _claim_and_complete(ledger)
        return steps / (time.perf_counter() - began_s)


def _measure_peer_in_order(folder: Path, items: int) -> float:
    queue = _filled_peer(folder, with_warm_up(items))
    last: int | None = None

    def get_and_ack() -> None:
        nonlocal last
        last = queue.get(block=False, raw=True, next_in_order=last is not None, id=last)["pqid"]
        queue.ack(id=last)

    rate = 1 / _each_s(get_and_ack, items)
    queue.close()
    return rate


# --- when it has grown ----------------------------------------------------------------------------------


def measure_growth(few: int, many: int, pairs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of a pair in a ledger of few steps and in one of many, in turns."""
    with (
        tempfile.TemporaryDirectory() as name,
        MessageCassette(db_path=Path(name, "few.db")) as small,
        MessageCassette(db_path=Path(name, "many.db")) as large,
    ):
        fill(small, few)
        fill(large, many)
        turns = [(pair_s(small, pairs), pair_s(large, pairs)) for _ in range(REPEATS)]
    return [one for one, _ in turns], [other for _, other in turns]


def measure_verify(steps: int) -> float:
    """Return the seconds of a look at a ledger with so many steps."""
    with tempfile.TemporaryDirectory() as name, MessageCassette(db_path=Path(name, "ledger.db")) as ledger:
        fill(ledger, steps)
        return _each_s(lambda: _find_none(ledger), 1)


def _find_none(ledger: MessageCassette) -> None:
    assert not ledger.find_issues()


def run(scale: float) -> None:
    found = measured(lambda: measure_rates(scale))
    say_rate("bare SQLite, one row a commit (floor)", found["commits"], "commits/s")
    say_rate("bare SQLite, one row a commit, whose WAL only grows", found["commits_growing"], "commits/s")
    say_rate("ledger, claim and complete, 1 process", found["pairs"], "pairs/s")
    all_of_it = f"{scaled(WORKED_OFF, scale):,} worked off"
    say_rate("ledger, claim and complete, 1 process", found["pairs_worked_off"], "pairs/s", all_of_it)
    say_rate("persist-queue, get and ack", found["peer_worked_off"], "pairs/s", all_of_it)
    say_rate("persist-queue, get and ack", found["peer"], "pairs/s", f"over the first {scaled(PAIRS, scale):,}")
    say_rate("persist-queue, get and ack, told where to go on", found["peer_in_order"], "pairs/s")
    done = scaled(DONE, scale)
    say_rate("persist-queue, get and ack, later", found["peer_grown"], "pairs/s", f"after {done:,} items")
    say_rate("ledger, post of one step", found["posts"], "posts/s")
    say_ratio("claim and complete / bare commits", found.ratio("pairs", "commits"), at_least=(0.30, 0.45))
    say_ratio("claim and complete / bare commits whose WAL grows", found.ratio("pairs", "commits_growing"))
    worked_off = found.ratio("pairs_worked_off", "peer_worked_off")
    say_ratio(f"claim and complete / persist-queue, {all_of_it}", worked_off, at_least=(2, 4))
    say_ratio("claim and complete / persist-queue, the first ones", found.ratio("pairs", "peer"))
    say_ratio("claim and complete / persist-queue, told where", found.ratio("pairs", "peer_in_order"))
    say_ratio("claim and complete / persist-queue, later", found.ratio("pairs", "peer_grown"))
    steps = scaled(VERIFIED, scale, STEPS_OF_A_MESSAGE)
    say_value(f"verify, {steps:,} steps", f"{measure_verify(steps):.2f} s")
    many = scaled(MANY, scale, FEW)
    small, large = measure_growth(FEW, many, PAIRS_OF_A_REPEAT)
    say_value(f"claim and complete in {FEW:,} steps", f"{median(small) * 1e6:,.0f} us")
    say_value(f"claim and complete in {many:,} steps", f"{median(large) * 1e6:,.0f} us")
    ratio = median(other / one for one, other in zip(small, large, strict=True))
    say_ratio(f"cost at {many:,} steps / {FEW:,}", ratio, at_most=(1.4, 1.15))
