"""The law of the relay, under a hub that refuses, dies before and after it commits, and is written to by others.

However tries end, and whatever nobody knows of them: each write is applied once or not at all, the writes to an
entity in the order they came, and none over a change that its caller had not seen. The same seed, the same luck.
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from claudemesh.edge.model import Answer
from claudemesh.edge.operate import Operating
from claudemesh.edge.reach import Reach
from claudemesh.edge.recovery import Recovery
from claudemesh.edge.replay import Replay
from claudemesh.edge.routing import load_built_in
from claudemesh.edge.service import Relaying
from claudemesh.edge.sorting import Asked
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached
from claudemesh.kernel.errors import MeshError, StateError
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.instants import render_instant

WRITES = 120
TASKS = ("t1", "t2", "t3")
JSON = ((b"content-type", b"application/json"),)


@dataclass
class Line:
    """One line of the hub's journal."""

    key: str
    entity: str
    updated_at: str
    is_foreign: bool


class UnluckyHub:
    """Keeps rows and keys as a hub does, and loses what it pleases of what is said over the wire."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self._clock = 0
        self._keys: dict[str, Answer] = {}
        self._out: defaultdict[str, int] = defaultdict(int)
        self.rows: dict[str, dict[str, Any]] = {
            task: {"id": task, "status": "todo", "title": task, "revision": 1, "updated_at": self._now()}
            for task in TASKS
        }
        self.journal = [Line("", task, row["updated_at"], is_foreign=False) for task, row in self.rows.items()]
        self.faults = 0
        self.worst = 0  # how many requests to one entity were under way at once
        self.is_kind = False

    def _now(self) -> str:
        self._clock += 1
        return render_instant(self._clock)

    async def request(self, outgoing: Outgoing, *, timeout_s: float | None = None) -> Answer:  # noqa: ARG002
        fate = 1.0 if self.is_kind else self._luck.random()
        entity = outgoing.path.split("/")[2] if outgoing.path.startswith("/tasks/") else ""
        self._out[entity] += bool(entity)
        self.worst = max(self.worst, *self._out.values(), 0)
        try:
            await asyncio.sleep(0)
            return self._answer(outgoing, fate)
        finally:
            self._out[entity] -= bool(entity)

    def _answer(self, outgoing: Outgoing, fate: float) -> Answer:
        self.faults += fate < 0.5
        if fate < 0.1:
            raise Unreached("refused")
        if fate < 0.2:
            raise Unanswered("reset before it was read")
        if fate < 0.25:
            return Answer(503)
        answer = self._apply(outgoing)
        if fate < 0.45:
            raise Unanswered("reset after it was done")
        return Answer(504) if fate < 0.5 else answer

    def _apply(self, outgoing: Outgoing) -> Answer:
        if outgoing.method == "GET":
            return Answer(200, (), b"{}")
        key = dict(outgoing.headers)[b"idempotency-key"].decode()
        if key not in self._keys:
            answer = self._write(key, outgoing)
            if answer.status in (409, 412):
                return answer
            self._keys[key] = answer
        return self._keys[key]

    def _write(self, key: str, outgoing: Outgoing) -> Answer:
        body = json.loads(outgoing.body)
        if outgoing.method == "POST":
            self.journal.append(Line(key, "", self._now(), is_foreign=False))
            return Answer(201, JSON, b"{}")
        row = self.rows[outgoing.path.split("/")[2]]
        expected = (body.pop("expected_updated_at", None), body.pop("expected_status", None))
        if expected[0] not in (None, row["updated_at"]) or expected[1] not in (None, row["status"]):
            problem = {"code": "revision_conflict", "current": row}
            return Answer(409, JSON, json.dumps(problem).encode())
        return self._change(key, row, body, is_foreign=False)

    def _change(self, key: str, row: dict[str, Any], fields: dict[str, Any], *, is_foreign: bool) -> Answer:
        previous = {name: row[name] for name in ("revision", "updated_at", "status")}
        row.update(fields, revision=row["revision"] + 1, updated_at=self._now())
        self.journal.append(Line(key, row["id"], row["updated_at"], is_foreign=is_foreign))
        return Answer(200, JSON, json.dumps({**row, "previous": previous}).encode())

    def meddle(self) -> None:
        """Have somebody else change a row."""
        row = self.rows[self._luck.choice(TASKS)]
        self._change(f"foreign {len(self.journal)}", row, {"status": "theirs"}, is_foreign=True)


def a_write(number: int, luck: random.Random, seen: dict[str, str]) -> Asked:
    """Return an append, or a change of a task by what was last seen of it: every third no status write."""
    entity = luck.choice((*TASKS, ""))
    if not entity:
        method, path, body = "POST", "/progress/", {"agent": "a", "summary": f"number {number}"}
    else:
        method, path = "PATCH", f"/tasks/{entity}"
        name = "title" if number % 3 == 0 else "status"
        body = {name: f"by {number}", "expected_updated_at": seen[entity]}
    raw = json.dumps(body).encode()
    return Asked(method=method, path=path, query="", body=body, raw=raw, headers=JSON, key=f"k{number:04}")


class Assembled(NamedTuple):
    outbox: SqliteEnvelopeStore
    relaying: Relaying
    replay: Replay
    reach: Reach
    operating: Operating


def assemble(folder: Path, hub: UnluckyHub, probe: Callable[[], Awaitable[bool]]) -> Assembled:
    """Put a relay together before this hub, in which nobody waits: every backoff is 0 ms."""
    here = real_world()
    world = World(here.clock, here.ids, lambda: 0.0, here.observer)
    outbox, reach = SqliteEnvelopeStore.open(folder / "outbox.db"), Reach(probe, world)
    replay = Replay(outbox, hub, reach, world)  # type: ignore[arg-type]
    recovery = Recovery(outbox, replay, reach, "host", world)
    relaying = Relaying(
        routes=load_built_in(),
        upstream=hub,  # type: ignore[arg-type]
        outbox=outbox,
        reach=reach,
        queued=recovery,
        world=world,
    )
    return Assembled(outbox, relaying, replay, reach, Operating(outbox, recovery.queued, world))


@dataclass
class Run:
    hub: UnluckyHub
    told: dict[str, int]  # key -> what its caller was told
    expected: dict[str, str]  # key -> the updated_at it went by
    sent: dict[str, str]  # a key that an operator's decision made -> the envelope's own
    counts: dict[OutboxState, int]


async def run_one(seed: int, folder: Path) -> Run:
    luck = random.Random(seed)  # noqa: S311  the same seed, the same run
    hub = UnluckyHub(luck)

    async def probe() -> bool:
        await asyncio.sleep(0)
        return hub.is_kind or luck.random() < 0.5

    outbox, relaying, replay, reach, operating = assemble(folder, hub, probe)
    await replay.start()
    replay.upstream_is_there()
    running = [asyncio.create_task(replay.run()), asyncio.create_task(reach.run())]
    # Two callers, each of which knows what it looked at or was told: of the other's writes nothing.
    views = [{task: row["updated_at"] for task, row in hub.rows.items()} for _ in range(2)]
    told: dict[str, int] = {}
    expected: dict[str, str] = {}
    try:
        for number in range(WRITES):
            seen = luck.choice(views)
            asked = a_write(number, luck, seen)
            expected[asked.key or ""] = asked.body.get("expected_updated_at", "")
            told[asked.key or ""] = await say(relaying, asked, seen)
            if luck.random() < 0.15:
                hub.meddle()
            if luck.random() < 0.1:  # one of them looks at what there is
                luck.choice(views).update({task: row["updated_at"] for task, row in hub.rows.items()})
            if luck.random() < 0.1:
                await decide(outbox, operating, luck)
        hub.is_kind = True
        await settle(outbox, operating, reach, luck)
        counts = await outbox.counts()
        shown = [await outbox.for_operator(one.id) for one in await outbox.page(None, 0, 10_000)]
        sent = {json.loads(row.payload)["key"]: row.client_message_id for row in shown if row is not None}
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await asyncio.to_thread(outbox.close)
    return Run(hub, told, expected, sent, counts)


async def say(relaying: Relaying, asked: Asked, seen: dict[str, str]) -> int:
    """Say it, now and then twice, as callers do who were not answered in time; return what was told."""
    try:
        answers = await asyncio.gather(*(relaying.write(asked) for _ in range(1 + (asked.key or "").endswith("7"))))
    except MeshError as error:
        return error.status
    answer = answers[0]
    if answer.status == 200 and asked.method == "PATCH":
        seen[asked.path.split("/")[2]] = json.loads(answer.body)["updated_at"]
    return answer.status


async def decide(outbox: SqliteEnvelopeStore, operating: Operating, luck: random.Random) -> None:
    """Have an operator look at every conflict, and keep ours or theirs."""
    for envelope in await outbox.page(OutboxState.CONFLICT, 0, 100):
        try:
            await operating.resolve(envelope.id, luck.choice(("mine", "theirs")), "a test")
        except StateError:  # nobody knows what stands there
            await operating.resolve(envelope.id, "theirs", "a test")


async def settle(outbox: SqliteEnvelopeStore, operating: Operating, reach: Reach, luck: random.Random) -> None:
    """Let all of it be sent."""
    async with asyncio.timeout(60):
        while True:
            reach.poke()
            await decide(outbox, operating, luck)
            counts = await outbox.counts()
            if not counts[OutboxState.PENDING] + counts[OutboxState.INFLIGHT] + counts[OutboxState.CONFLICT]:
                return
            await asyncio.sleep(0)


@pytest.mark.req("R4", "R7", "R8")
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_becomes_of_tries_writes_are_applied_once_in_order_and_over_nothing_unseen(
    seed: int, tmp_path: Path, effort: int
) -> None:
    for turn in range(effort):
        folder = tmp_path / str(turn)
        folder.mkdir()
        run = await run_one(seed + 1_000 * turn, folder)
        keys = [line.key for line in run.hub.journal if line.key]
        assert len(keys) == len(set(keys)), "applied twice"
        check_appends(run)
        for task in TASKS:
            check_entity([line for line in run.hub.journal if line.entity == task], run)
        assert run.hub.worst == 1, "two writes to one entity were under way at once"
        assert run.hub.faults, "this run had no fault to withstand"


def check_appends(run: Run) -> None:
    appended = {line.key for line in run.hub.journal if line.key and not line.entity}
    told = {key for key, status in run.told.items() if status in (201, 202) and not run.expected[key]}
    assert told <= appended, "told and never applied"


def check_entity(lines: list[Line], run: Run) -> None:
    places = {line.updated_at: place for place, line in enumerate(lines)}
    ours = [run.sent.get(line.key, line.key) for line in lines if line.key and not line.is_foreign]
    assert ours == sorted(ours), "writes changed places"
    for place, line in enumerate(lines):
        if line.key in run.expected:  # else under the key of a decision, by somebody who saw what stood there
            between = lines[places[run.expected[line.key]] + 1 : place]
            assert not any(other.is_foreign for other in between), f"{line.key} overwrote what it never saw"


@pytest.mark.req("R8")
async def test_a_long_queue_on_one_base_never_conflicts_with_itself(tmp_path: Path) -> None:
    hub = UnluckyHub(random.Random(1))  # noqa: S311  nothing is left to it
    hub.is_kind = True

    async def probe() -> bool:
        return True

    outbox, relaying, replay, reach, operating = assemble(tmp_path, hub, probe)
    seen = {"t1": hub.rows["t1"]["updated_at"]}
    reach.lost("not there")
    for number in range(60):
        body = {"title": f"by {number}", "expected_updated_at": seen["t1"]}
        raw = json.dumps(body).encode()
        asked = Asked(
            method="PATCH", path="/tasks/t1", query="", body=body, raw=raw, headers=JSON, key=f"k{number:04}"
        )
        assert (await relaying.write(asked)).status == 202
    await replay.start()
    running = [asyncio.create_task(replay.run()), asyncio.create_task(reach.run())]
    try:
        async with asyncio.timeout(60):
            while (counts := await outbox.counts())[OutboxState.PENDING] + counts[OutboxState.INFLIGHT]:
                reach.poke()
                assert not counts[OutboxState.CONFLICT], await operating.page(OutboxState.CONFLICT, 0, 1)
                await asyncio.sleep(0)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await asyncio.to_thread(outbox.close)
    assert [line.key for line in hub.journal if line.entity == "t1" and line.key] == [f"k{n:04}" for n in range(60)]
