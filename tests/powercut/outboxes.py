"""The daemon's outbox at work: callers send and retry, the sender drains to a broker that takes everything.

The careful workload is the daemon's own code. The careless ones weaken it in ways that people really do.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from claudemesh.daemon.directory import Directory
from claudemesh.daemon.drain import Drain
from claudemesh.daemon.model import Destination, SendAsked, StandingRow, Submission
from claudemesh.daemon.service import Accepting, Conditions
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.runtime.world import real_world
from claudemesh.storage.sqlite import connection as settings
from claudemesh.wire.frames import Outcome, parse_item
from tests.powercut.harness import Subject, Tell
from tests.powercut.states import Marks

FILE: Final = "outbox.db"
CALLERS: Final = 8
ROUNDS: Final = 12
AGE_MS: Final = 144 * 3_600_000


class Outward:
    """The sender's side, as accepting sees it."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain

    def queued(self, destinations: Collection[Destination]) -> None:
        self._drain.queued(destinations)

    async def refresh_directory(self) -> None: ...


class KindBroker:
    """A link that takes everything; what it took is marked, since a broker does not forget."""

    def __init__(self, mark: Tell) -> None:
        self._mark = mark

    async def send(self, payloads: Sequence[bytes]) -> "asyncio.Future[list[Outcome]]":
        items = [parse_item(payload) for payload in payloads]
        for item in items:
            self._mark("taken", item.client_message_id)
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        future.set_result(
            [
                Outcome(status=201, broker_message_id=f"B-{item.client_message_id}", history_id=n)
                for n, item in enumerate(items, 1)
            ]
        )
        return future

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401
        raise NotImplementedError(op, args)


class EarlyStore(SqliteOutboxStore):
    """Careless: it answers before the row is durable, and writes it in its own time."""

    writing: set[Awaitable[Any]]

    async def accept(self, submission: Submission) -> StandingRow | None:
        self.writing = {*getattr(self, "writing", set()), super().accept(submission)}
        return None


async def _live(store: SqliteOutboxStore, mark: Tell, life: str) -> None:
    world = real_world()
    drain = Drain(store, world, lambda: AGE_MS)
    accepting = Accepting(store, Directory(), Conditions(), Outward(drain), world)
    await drain.start()
    running = asyncio.create_task(drain.run())

    async def caller(number: int) -> None:
        for turn in range(ROUNDS):
            key = f"{life}.{number}.{turn}"
            asked = SendAsked(
                client_message_id=ClientMessageId(key), to=f"queue:q{number % 3}", body=key * (40 * number + 1)
            )
            mark("sent", key)
            await accepting.accept(asked)
            mark("ack", key)
            if turn == ROUNDS // 2:
                drain.connected(KindBroker(mark))
            if turn % 4 == 0:
                again = await accepting.accept(asked)
                mark("retried", f"{key} {again.status}")

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    while (await store.counts())["pending"]:  # noqa: ASYNC110  the sender tells nobody when it is done
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


def two_lives(folder: Path, mark: Tell, kind: type[SqliteOutboxStore] = SqliteOutboxStore) -> None:
    for life in ("1", "2"):
        store = kind.open(folder / FILE)
        asyncio.run(_live(store, mark, life))
        if life == "1":
            store.close()


def with_sync_normal(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("normal", 1)
    two_lives(folder, mark)


def with_early_answers(folder: Path, mark: Tell) -> None:
    async def life() -> None:
        store = EarlyStore.open(folder / FILE)
        world = real_world()
        accepting = Accepting(store, Directory(), Conditions(), Outward(Drain(store, world, lambda: AGE_MS)), world)
        for number in range(300):
            key = f"1.{number}.0"
            mark("sent", key)
            asked = SendAsked(client_message_id=ClientMessageId(key), to="queue:q", body=key * 50)
            await accepting.accept(asked)
            mark("ack", key)
            if number % 10 == 0:
                await asyncio.gather(*store.writing)

    asyncio.run(life())


# --- what must hold -------------------------------------------------------------------------------------


def reopen(folder: Path) -> None:
    """Start again, as the daemon does: what was out waits again."""

    async def start() -> None:
        store = SqliteOutboxStore.open(folder / FILE)
        try:
            await Drain(store, real_world(), lambda: AGE_MS).start()
            assert (await store.counts())["inflight"] == 0
        finally:
            store.close()

    asyncio.run(start())


def verify(connection: apsw.Connection, marks: Marks) -> list[str]:
    # A cut in the middle of the first migration leaves no table, and nothing was answered then.
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'outbox'").fetchall():
        return [f"acknowledged and lost: {key}" for key in sorted(marks.of("ack"))]
    rows = {
        key: status == "pending" and attempts == 0
        for key, status, attempts in connection.execute("SELECT client_message_id, status, attempts FROM outbox")
    }
    sent, acked, taken = marks.of("sent"), marks.of("ack"), marks.of("taken")
    count = connection.execute("SELECT count(*) FROM outbox").fetchall()[0][0]
    wrong = [f"acknowledged and lost: {key}" for key in sorted(acked - set(rows))]
    wrong += [f"nobody sent this: {key}" for key in sorted(set(rows) - sent)]
    wrong += [f"handed to the broker and forgotten: {key}" for key in sorted(taken - set(rows))]
    wrong += [f"never tried, says the row: {key}" for key in sorted(taken) if rows.get(key)]
    if count != len(rows):
        wrong.append("an id has two rows")
    return wrong


OUTBOX: Final = Subject(two_lives, reopen, verify, FILE)
