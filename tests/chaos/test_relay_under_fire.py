"""A hub and a relay, killed again and again while agents write through the relay and somebody else at the hub.

What is checked afterwards is checked in the stores: no append lost or doubled, no replace over what it never saw,
the writes of an agent to a task in the order in which it sent them. The seed is printed.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.daemon.client.http1 import ResponseReader, judge_response, render_request
from claudemesh.edge.model import Answer
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream, UpstreamLimits
from claudemesh.kernel.errors import DependencyError, StateError
from claudemesh.kernel.write_errors import BadGateway
from claudemesh.pipeline.checks.sqlite import check_writes
from claudemesh.wire.instants import render_instant
from tests.ports import own_address

ROOT = Path(__file__).parents[2]
BOUND_S = 60
KILLS = 52
BETWEEN = 8  # answers between one kill and the next
AGENTS = 4
TASKS = 3

JSON = (b"content-type", b"application/json")


class Node:
    """A process that can be killed and started again, at the same address."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.relay_nodes", *self._arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), f"{self._arguments[0]} did not start: {line!r}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    async def restart(self) -> None:
        self.kill()
        await self.start()


@dataclass
class World:
    """Hub, relay, and what was told to whom."""

    hub: Node
    relay: Node
    at_hub: Upstream
    at_relay: Upstream
    dice: random.Random
    answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    told: dict[str, int] = field(default_factory=dict)  # key of an append -> status
    seen: dict[str, str] = field(default_factory=dict)  # key of a replace -> the updated_at it goes by
    decided: set[str] = field(default_factory=set)  # replaces that an operator wanted in any case
    is_over: bool = False

    async def say(
        self,
        to: Upstream,
        method: str,
        path: str,
        body: object = None,
        key: str | None = None,
    ) -> Answer:
        """Ask until there is an answer that counts; always under the same key."""
        headers = (JSON,) if key is None else (JSON, (b"idempotency-key", key.encode()))
        outgoing = Outgoing(method, path, "", headers, b"" if body is None else json.dumps(body).encode())
        async with asyncio.timeout(BOUND_S):
            while True:
                with suppress(Unreached, Unanswered, BadGateway):
                    answer = await to.request(outgoing)
                    is_busy = answer.status == 409 and b"retry-after" in dict(answer.headers)
                    if not is_busy and answer.status < 500:
                        self.answers.release()
                        return answer
                await asyncio.sleep(0.02)  # between two tries, as any client would


@asynccontextmanager
async def lively(folder: Path, seed: int) -> AsyncIterator[World]:
    hub_at, relay_at = own_address(), own_address()
    hub = Node("hub", f"sqlite:///{folder}/hub.db", hub_at)
    relay = Node("relay", str(folder / "edge"), relay_at, f"http://{hub_at}")
    limits = UpstreamLimits(timeout_s=5.0)
    world = World(
        hub,
        relay,
        Upstream(f"http://{hub_at}", limits=limits),
        Upstream(f"http://{relay_at}", limits=limits),
        random.Random(seed),  # noqa: S311  dice
    )
    await asyncio.gather(hub.start(), relay.start())
    try:
        yield world
    finally:
        await world.at_hub.close()
        await world.at_relay.close()
        hub.kill()
        relay.kill()


async def append(world: World, agent: int) -> None:
    number = 0
    while not world.is_over:
        number += 1
        key = f"append-{agent}-{number}"
        body = {"agent": f"agent-{agent}", "summary": key}
        answer = await world.say(world.at_relay, "POST", "/progress/", body, key)
        assert answer.status in (201, 202), answer
        world.told[key] = answer.status


async def replace(world: World, agent: int, task: str) -> None:
    """Set a task's status again and again, each time on what it was when the agent last looked."""
    number, seen = 0, None
    while not world.is_over:
        number += 1
        if seen is None or world.dice.random() < 0.2:
            found = await world.say(world.at_hub, "GET", f"/tasks/{task}")
            seen = json.loads(found.body)["updated_at"]
        key = f"replace-{agent}-{number}"
        world.seen[key] = seen
        # Every third is no status write, and so none that a later one makes needless.
        name = "title" if number % 3 == 0 else "status"
        body = {name: f"{agent}-{number:06d}", "expected_updated_at": seen}
        answer = await world.say(world.at_relay, "PATCH", f"/tasks/{task}", body, key)
        assert answer.status in (200, 202, 409, 412), answer
        if answer.status == 200:
            seen = json.loads(answer.body)["updated_at"]
        elif answer.status != 202:
            seen = None  # somebody else was faster: look again


async def meddle(world: World, tasks: list[str]) -> None:
    """Write at the hub itself, now and then: what agents have not seen of that they must not overwrite."""
    number = 0
    while not world.is_over:
        number += 1
        task = world.dice.choice(tasks)
        await world.say(
            world.at_hub, "PATCH", f"/tasks/{task}", {"status": f"central-{number}"}, f"central-{number}"
        )
        for _ in range(10 * BETWEEN):  # rarely: else nothing of the agents' would ever fit
            await world.answers.acquire()
            world.answers.release()
            await asyncio.sleep(0.01)
            if world.is_over:
                return


async def fire(world: World, kills: int) -> Counter[str]:
    hit: Counter[str] = Counter()
    while sum(hit.values()) < kills:
        for _ in range(BETWEEN):
            async with asyncio.timeout(BOUND_S):
                await world.answers.acquire()
        both = {"hub": world.hub, "relay": world.relay}
        names = world.dice.choice([["hub"], ["relay"], ["hub", "relay"]])
        hit.update(names)
        nodes = [both[name] for name in names]
        for node in nodes:
            node.kill()
        if names == ["hub"]:  # some of its absence is seen
            for _ in range(BETWEEN):
                async with asyncio.timeout(BOUND_S):
                    await world.answers.acquire()
        await asyncio.gather(*(node.start() for node in nodes))
    return hit


async def ask_operator(folder: Path, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401
    """Ask on the relay's own socket."""
    reader, writer = await asyncio.open_unix_connection(str(folder / "edge" / "sock"))
    try:
        writer.write(render_request(method, path, body))
        answer = ResponseReader()
        while not answer.is_done:
            answer.feed(await reader.read(1 << 16))
    finally:
        writer.close()
        with suppress(OSError):  # the relay was killed meanwhile
            await writer.wait_closed()
    return judge_response(answer.status, answer.headers, answer.take())


async def decide(world: World, folder: Path) -> None:
    """Decide what is in conflict: ours or theirs, as the dice say."""
    conflicts = (await ask_operator(folder, "GET", "/outbox?state=conflict"))["items"]
    for envelope in conflicts:
        keep = world.dice.choice(["mine", "theirs"])
        if keep == "mine":
            world.decided.add(envelope["idempotency_key"])
        with suppress(StateError):  # it has moved since
            await ask_operator(folder, "POST", f"/outbox/{envelope['id']}/resolve", {"keep": keep})


async def operate(world: World, folder: Path) -> None:
    while not world.is_over:
        with suppress(OSError, DependencyError):  # the relay was killed
            await decide(world, folder)
        await asyncio.sleep(0.1)


async def until_all_is_settled(world: World, folder: Path) -> dict[str, Any]:
    await world.say(world.at_relay, "POST", "/replay", {})
    async with asyncio.timeout(BOUND_S):
        while True:
            await decide(world, folder)
            found = json.loads((await world.say(world.at_relay, "GET", "/status")).body)
            if found["upstream_reachable"] and not found["pending"] and not found["conflicts"]:
                return dict(found)
            await asyncio.sleep(0.05)


def rows(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def check(world: World, folder: Path) -> dict[str, int]:
    """Hold what was told against what is stored."""
    journal = rows(
        folder / "hub.db",
        "SELECT kind, entity_id, revision, base_revision, idempotency_key, at, fields FROM hub_write ORDER BY seq",
    )
    envelopes = rows(
        folder / "edge" / "outbox.db",
        "SELECT client_message_id, payload ->> '$.key', status, aborted_by FROM outbox",
    )
    sent_as = {sent: key for key, sent, *_ in envelopes if sent}
    applied: Counter[str] = Counter()
    chains: dict[str, list[tuple[str, int, dict[str, Any]]]] = defaultdict(list)
    for kind, entity, revision, base, key, at, fields in journal:
        name = sent_as.get(key, key)
        applied[name] += 1
        assert revision == base + 1
        if kind == "tasks" and key is not None:
            chains[entity].append((name, at, json.loads(fields)))

    appends = {key: status for key, status in world.told.items() if key.startswith("append-")}
    lost = [key for key in appends if applied[key] != 1]
    assert lost == [], f"told and not there exactly once: {[(key, appends[key], applied[key]) for key in lost][:5]}"
    doubled = [key for key, count in applied.items() if key and count > 1]
    assert doubled == []

    for chain in chains.values():
        check_chain(chain, world.seen, world.decided)
    verdict = check_writes([folder / "hub.db"], [folder / "edge" / "outbox.db"])
    assert verdict.violations == []
    states = Counter(status for *_, status, _ in envelopes)
    assert not states["pending"]
    assert not states["inflight"]
    return {"appends": len(appends), "queued": len(envelopes), **states}


def check_chain(chain: list[tuple[str, int, dict[str, Any]]], seen: dict[str, str], decided: set[str]) -> None:
    """Check one task's life: nobody wrote over what it never saw, and nobody's writes changed places."""
    last: dict[str, int] = {}
    since: dict[str, int] = {}  # place in the chain, by the instant that a row had then
    central = [place for place, (name, *_) in enumerate(chain) if name.startswith("central-")]
    for place, (name, at, _) in enumerate(chain):
        since[render_instant(at)] = place
        if not name.startswith("replace-"):
            continue
        _, agent, number = name.split("-")
        assert int(number) > last.get(agent, 0), f"{name} came after {last[agent]}"
        last[agent] = int(number)
        if name in decided:
            continue
        base = since[seen[name]]
        unseen = [chain[other][0] for other in central if base < other < place]
        assert unseen == [], f"{name} was written over {unseen}"


@pytest.mark.req("R7", "R8")
@pytest.mark.timeout(600)
async def test_a_hub_and_a_relay_that_are_killed_at_random_lose_double_and_overwrite_nothing(
    tmp_path: Path, effort: int
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  to try the same again
    async with lively(tmp_path, seed) as world:
        tasks = []
        for number in range(TASKS):
            made = await world.say(
                world.at_hub, "POST", "/tasks/", {"title": f"task {number}", "status": "todo"}, f"task-{number}"
            )
            tasks.append(json.loads(made.body)["id"])
        async with asyncio.TaskGroup() as group:
            for agent in range(AGENTS):
                group.create_task(append(world, agent))
            for agent, task in enumerate([*tasks, tasks[0]]):
                group.create_task(replace(world, agent, task))
            group.create_task(meddle(world, tasks))
            group.create_task(operate(world, tmp_path))
            hit = await fire(world, KILLS * effort)
            world.is_over = True
        status = await until_all_is_settled(world, tmp_path)
        world.hub.kill()
        world.relay.kill()
        found = check(world, tmp_path)
    print(f"killed {dict(hit)}, then {status}, stored {found}")  # noqa: T201
    assert found["queued"] > 0, "nothing was ever queued"
