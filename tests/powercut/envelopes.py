"""The relay's spool at work: agents write while the hub is away, then it takes everything; twice.

The careful workload is the relay's own code, status writes that supersede each other included.
"""

import asyncio
import json
from pathlib import Path
from typing import Final

import apsw

from claudemesh.edge.model import Answer
from claudemesh.edge.reach import Reach
from claudemesh.edge.recovery import Recovery
from claudemesh.edge.replay import Replay
from claudemesh.edge.routing import load_built_in
from claudemesh.edge.service import Relaying
from claudemesh.edge.sorting import Asked
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from claudemesh.edge.upstream import Outgoing, Unreached
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.world import real_world
from claudemesh.storage.sqlite import connection as settings
from tests.powercut.harness import Subject, Tell
from tests.powercut.states import Marks

FILE: Final = "outbox.db"
AGENTS: Final = 6
ROUNDS: Final = 10
JSON: Final = ((b"content-type", b"application/json"),)


class HubThatComes:
    """Away at first, then it takes everything; what it took is marked, since a hub does not forget."""

    def __init__(self, mark: Tell) -> None:
        self._mark = mark
        self.is_there = False

    async def request(self, outgoing: Outgoing, *, timeout_s: float | None = None) -> Answer:  # noqa: ARG002
        if not self.is_there:
            raise Unreached("refused")
        if outgoing.method == "GET":
            return Answer(200, JSON, b"{}")
        key = dict(outgoing.headers)[b"idempotency-key"].decode()
        self._mark("taken", key)
        return Answer(200, JSON, json.dumps({"id": "1", "key": key}).encode())


async def _live(store: SqliteEnvelopeStore, mark: Tell, life: str) -> None:
    world, hub = real_world(), HubThatComes(mark)

    async def probe() -> bool:
        return hub.is_there

    reach = Reach(probe, world)
    replay = Replay(store, hub, reach, world)  # type: ignore[arg-type]
    recovery = Recovery(store, replay, reach, "host", world)
    relaying = Relaying(
        routes=load_built_in(),
        upstream=hub,  # type: ignore[arg-type]
        outbox=store,
        reach=reach,
        queued=recovery,
        world=world,
    )
    await replay.start()
    reach.lost("not there yet")
    running = [asyncio.create_task(replay.run()), asyncio.create_task(reach.run())]

    async def agent(number: int) -> None:
        for turn in range(ROUNDS):
            asked = a_write(f"{life}.{number}.{turn}", number, turn)
            mark("sent", asked.key or "")
            answer = await relaying.write(asked)
            assert answer.status == 202, answer
            mark("ack", asked.key or "")

    await asyncio.gather(*(agent(number) for number in range(AGENTS)))
    hub.is_there = True
    reach.poke()
    while (counts := await store.counts())[OutboxState.PENDING] + counts[OutboxState.INFLIGHT]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def a_write(key: str, number: int, turn: int) -> Asked:
    """Return an append, or of every other agent a change of a task: status writes, and now and then a title."""
    if number % 2:
        method, path, body = "POST", "/progress/", {"agent": f"a{number}", "summary": key * (20 * number)}
    else:
        name = "title" if turn % 4 == 3 else "status"
        method, path, body = "PATCH", f"/tasks/t{number}", {name: key, "expected_status": "todo"}
    raw = json.dumps(body).encode()
    return Asked(method=method, path=path, query="", body=body, raw=raw, headers=JSON, key=key)


def two_lives(folder: Path, mark: Tell) -> None:
    for life in ("1", "2"):
        store = SqliteEnvelopeStore.open(folder / FILE)
        asyncio.run(_live(store, mark, life))
        if life == "1":
            store.close()


def with_sync_normal(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("normal", 1)
    two_lives(folder, mark)


# --- what must hold -------------------------------------------------------------------------------------


def reopen(folder: Path) -> None:
    """Start again, as the relay does: what was out waits again."""

    async def start() -> None:
        store = SqliteEnvelopeStore.open(folder / FILE)
        try:
            await store.recover(0)
            assert (await store.counts())[OutboxState.INFLIGHT] == 0
        finally:
            store.close()

    asyncio.run(start())


def verify(connection: apsw.Connection, marks: Marks) -> list[str]:
    acked, sent, taken = marks.of("ack"), marks.of("sent"), marks.of("taken")
    # A cut in the middle of the first migration leaves no table, and nothing was answered then.
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'envelope_event'").fetchall():
        return [f"acknowledged and lost: {key}" for key in sorted(acked)]
    rows = {
        key: (status, attempts, superseded_by)
        for key, status, attempts, superseded_by in connection.execute(
            "SELECT client_message_id, status, attempts, superseded_by FROM outbox"
        )
    }
    wrong = [f"acknowledged and lost: {key}" for key in sorted(acked - set(rows))]
    wrong += [f"nobody sent this: {key}" for key in sorted(set(rows) - sent)]
    wrong += [f"handed to the hub and forgotten: {key}" for key in sorted(taken - set(rows))]
    wrong += [
        f"never tried, says the row: {key}"
        for key in sorted(taken)
        if rows.get(key, ("", 1, None))[:2] == ("pending", 0)
    ]
    ids = {row[0] for row in connection.execute("SELECT id FROM outbox")}
    wrong += [f"superseded by nothing: {key}" for key, (*_, by) in rows.items() if by is not None and by not in ids]
    silent = connection.execute(
        "SELECT count(*) FROM outbox WHERE NOT EXISTS (SELECT 1 FROM envelope_event WHERE envelope = outbox.seq)"
    ).fetchall()[0][0]
    if silent:
        wrong.append(f"{silent} envelopes without a word of what happened to them")
    return wrong


SPOOL: Final = Subject(two_lives, reopen, verify, FILE)
