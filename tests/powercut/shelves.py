"""Workloads on the engine's own small store, a careful one and careless ones, and what must hold after a cut."""

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import apsw

from claudemesh.storage.sqlite import Database
from claudemesh.storage.sqlite import connection as settings
from tests.contract.engine.shelf import SCHEMA, drop, put, rows
from tests.powercut.harness import Subject, Tell
from tests.powercut.states import Marks

FILE: Final = "shelf.db"
CALLERS: Final = 6
ROUNDS: Final = 8
BURST: Final = 4  # puts that one caller has under way at once
BATCH: Final = 4

Put = Callable[[Database, Tell, list[str]], None]


@cache
def text_of(key: str) -> str:
    """Return what stands under the key: a few bytes, a page, or several."""
    return key * (zlib.crc32(key.encode()) % 2_000)


# --- the callers --------------------------------------------------------------------------------------------


def put_and_tell(database: Database, mark: Tell, keys: list[str]) -> None:
    for key, stored in [(key, database.submit(put, (key, text_of(key)))) for key in keys]:
        stored.result()
        mark("ack", key)


def tell_and_put(database: Database, mark: Tell, keys: list[str]) -> None:
    for key in keys:
        mark("ack", key)
        database.write_blocking(put, (key, text_of(key)))


def call(  # noqa: PLR0913  as many as it takes
    database: Database, mark: Tell, caller: str, rounds: int, put_: Put = put_and_tell, *, burst: int = BURST
) -> None:
    dice = random.Random(caller)  # noqa: S311  no secret
    standing: list[str] = []
    for number in range(rounds):
        keys = [f"{caller}-{number}.{n}" for n in range(dice.choice((1, 1, burst)))]
        for key in keys:
            mark("put", key)
        put_(database, mark, keys)
        standing += keys
        if dice.random() < 0.5:
            gone = standing.pop(dice.randrange(len(standing)))
            mark("drop", gone)
            database.write_blocking(drop, gone)
            mark("dropped", gone)
        if dice.random() < 0.2:
            found = {key for _, key, _ in database.read_blocking(rows)}
            assert found >= set(standing)


async def call_in_batches(database: Database, mark: Tell, caller: str, rounds: int) -> None:
    for number in range(rounds):
        keys = [f"{caller}-{number}/{n}" for n in range(BATCH)]
        for key in keys:
            mark("put", key)
        await database.write_many(put, [(key, text_of(key)) for key in keys])
        for key in keys:
            mark("ack", key)


def call_all(database: Database, mark: Tell, life: str, rounds: int = ROUNDS, put_: Put = put_and_tell) -> None:
    with ThreadPoolExecutor(CALLERS + 1) as pool:
        calls = [pool.submit(call, database, mark, f"{life}.{n}", rounds, put_) for n in range(CALLERS)]
        calls.append(pool.submit(asyncio.run, call_in_batches(database, mark, f"{life}.b", rounds // BATCH)))
    for each in calls:
        each.result()


# --- the workloads ------------------------------------------------------------------------------------------


def two_lives(folder: Path, mark: Tell) -> None:
    """Close the store after the first, so that the WAL goes and comes again; leave it open after the second."""
    with Database.open(folder / FILE, SCHEMA) as database:
        call_all(database, mark, "1")
    call_all(Database.open(folder / FILE, SCHEMA), mark, "2")


def third_life(folder: Path, mark: Tell) -> None:
    """Go on where a power cut has left the others."""
    call_all(Database.open(folder / FILE, SCHEMA), mark, "3")


def long_lives(folder: Path, mark: Tell) -> None:
    """Write enough, and pause often enough, for the checkpoints that come in production."""
    with Database.open(folder / FILE, SCHEMA) as database:
        for life in ("1", "2", "3"):
            call_all(database, mark, life)


def alone(folder: Path, mark: Tell) -> None:
    """One caller: every commit is answered before the next begins."""
    call(Database.open(folder / FILE, SCHEMA), mark, "1", 40, burst=1)


def with_sync_normal(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("normal", 1)
    two_lives(folder, mark)


def with_sync_off(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("off", 0)
    two_lives(folder, mark)


def with_early_answers(folder: Path, mark: Tell) -> None:
    call_all(Database.open(folder / FILE, SCHEMA), mark, "1", put_=tell_and_put)


def idle(folder: Path, mark: Tell) -> None:
    call(Database.open(folder / FILE, SCHEMA), mark, "1", 1)


def broken(folder: Path, mark: Tell) -> None:
    idle(folder, mark)
    raise ZeroDivisionError


# --- what must hold -----------------------------------------------------------------------------------------


def verify(connection: apsw.Connection, marks: Marks) -> list[str]:
    found = {key: text for _, key, text in rows(connection)}
    batches = Counter(key.partition("/")[0] for key in found if "/" in key)
    wrong = {
        "acknowledged and lost": marks.of("ack") - marks.of("drop") - found.keys(),
        "dropped and back again": marks.of("dropped") & found.keys(),
        "stored and never sent": found.keys() - marks.of("put"),
        "changed": {key for key, text in found.items() if text != text_of(key)},
        "half a batch": {batch for batch, count in batches.items() if count != BATCH},
    }
    return [f"{what}: {sorted(keys)}" for what, keys in wrong.items() if keys]


def reopen(folder: Path) -> None:
    with Database.open(folder / FILE, SCHEMA) as database:
        database.write_blocking(put, ("the next start", "works"))
        database.write_blocking(drop, "the next start")


SHELF: Final = Subject(two_lives, reopen, verify, FILE)
