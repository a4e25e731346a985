"""The file of a relay that does not run: any number may look at it, and whoever decides is waited for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claudemesh.edge import app as edge_app
from claudemesh.edge import desk
from claudemesh.edge.desk import FileDesk, find_desk
from claudemesh.edge.stores.sqlite.outbox import SCHEMA
from claudemesh.kernel.errors import AlreadyRunning, InvalidRequest, NotFound
from claudemesh.outbox.stores.sqlite.salvage import is_cut
from claudemesh.runtime import home
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import InstanceLock, lock_holder
from claudemesh.runtime.world import World, real_world
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.storage.sqlite.inspect import looking
from tests.edge_doubles import Edge
from tests.fake_upstream import FakeUpstream

NOTE = {"agent": "builder", "summary": "parser done"}
AT_ONCE = 4
WITHIN_S = 30


async def stopped(edge: Edge, upstream: FakeUpstream) -> str:
    """Have a write wait in a relay that does not run; return its id."""
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE)
    await edge.stop()
    return str(receipt["outbox_id"])


def meeting(meet: Callable[[], object]) -> World:
    """Return a world that is met in the midst of an answer: whoever has the file has it by then."""
    world = real_world()
    now = world.steady_ms

    def steady_ms() -> int:
        meet()
        return now()

    object.__setattr__(world, "steady_ms", steady_ms)
    return world


@pytest.mark.req("R9")
async def test_looks_at_the_file_of_a_stopped_relay_do_not_wait_for_one_another(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await stopped(edge, upstream)
    barrier = threading.Barrier(AT_ONCE, timeout=WITHIN_S)
    world = meeting(barrier.wait)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        looks = [pool.submit(FileDesk(edge.folder, world).status) for _ in range(AT_ONCE)]
        told = await asyncio.gather(*map(asyncio.wrap_future, looks))
    assert [(one["running"], one["outbox_usable"], one["pending"]) for one in told] == [(False, True, 1)] * AT_ONCE


@pytest.mark.req("R9")
async def test_a_relay_starts_while_its_file_is_looked_at(edge: Edge, upstream: FakeUpstream) -> None:
    await stopped(edge, upstream)
    began, go = threading.Event(), threading.Event()
    world = meeting(lambda: (began.set(), go.wait(WITHIN_S)))
    looking = asyncio.create_task(asyncio.to_thread(FileDesk(edge.folder, world).status))
    try:
        assert await asyncio.to_thread(began.wait, WITHIN_S)
        await edge.start()
    finally:
        go.set()
    assert (await looking)["pending"] == 1


@pytest.mark.req("R9")
async def test_a_relay_that_starts_waits_for_a_decision_that_is_being_made_in_its_file(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelope = await stopped(edge, upstream)
    began, go = threading.Event(), threading.Event()

    class Told(InstanceLock):
        """Lets the decision go on as soon as the relay has met it."""

        def acquire(self) -> None:
            try:
                super().acquire()
            except AlreadyRunning:
                go.set()
                raise

    monkeypatch.setattr(edge_app, "InstanceLock", Told)
    world = meeting(lambda: (began.set(), go.wait(WITHIN_S)))
    file = FileDesk(edge.folder, world)
    deciding = asyncio.create_task(asyncio.to_thread(file.decide, "cancel", envelope, "ada"))
    try:
        assert await asyncio.to_thread(began.wait, WITHIN_S)
        await edge.start()
    finally:
        go.set()
    assert (await deciding)["state"] == "cancelled"
    assert await edge.state(envelope) == "cancelled"


@pytest.mark.req("R9")
async def test_whoever_meets_a_decision_in_the_file_waits_for_its_end_and_for_no_relay(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped(edge, upstream)
    deciding = InstanceLock(edge.folder / "pid")
    deciding.acquire()
    holders: list[int | None] = []

    def seen(path: Path) -> int | None:
        holders.append(lock_holder(path))
        deciding.release()
        return holders[-1]

    monkeypatch.setattr(desk, "lock_holder", seen)
    found = await asyncio.to_thread(find_desk, edge.folder)
    assert (holders[0] is None, holders[-1]) == (False, None)
    assert (await asyncio.to_thread(found.status))["pending"] == 1


async def test_of_two_decisions_at_once_the_second_waits_for_the_first(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelope = await stopped(edge, upstream)
    began, go = threading.Event(), threading.Event()
    flock = home._flock

    def told(descriptor: int, how: int) -> bool:
        is_ours = flock(descriptor, how)
        if not is_ours:
            go.set()  # the second has met the first
        return is_ours

    monkeypatch.setattr(home, "_flock", told)
    first = FileDesk(edge.folder, meeting(lambda: (began.set(), go.wait(WITHIN_S))))
    dead = asyncio.create_task(asyncio.to_thread(first.decide, "cancel", envelope, "ada"))
    try:
        assert await asyncio.to_thread(began.wait, WITHIN_S)
        line = b'{"form": 0}'
        with pytest.raises(InvalidRequest):  # it had its turn
            await asyncio.to_thread(FileDesk(edge.folder).import_, [line], "bob")
    finally:
        go.set()
    assert (await dead)["state"] == "cancelled"


async def test_a_file_of_an_older_version_is_brought_to_ours_before_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    Database.open(path, Schema(SCHEMA.application_id, SCHEMA.migrations[:1])).close()
    status = await asyncio.to_thread(find_desk(tmp_path).status)
    assert (status["outbox"], status["outbox_usable"], status["pending"]) == ("there", True, 0)
    with looking(path, SystemClock(), WITHIN_S) as connection:
        assert connection.pragma("user_version") == len(SCHEMA.migrations)


async def test_a_look_finishes_what_a_recovery_began(edge: Edge, upstream: FakeUpstream) -> None:
    envelope = await stopped(edge, upstream)
    path = edge.folder / "outbox.db"
    # As it is once it is decided that the files are swapped, and none is yet.
    with Database.open(path.with_name("outbox.db.recovering"), SCHEMA):
        pass
    path.with_name("outbox.db.recovered").write_text("outbox.db.corrupt-1")
    path.with_name("outbox.db.recovered").chmod(0o600)
    assert is_cut(path)
    assert (await asyncio.to_thread(find_desk(edge.folder).status))["pending"] == 0
    assert not is_cut(path)
    with pytest.raises(NotFound):
        await asyncio.to_thread(find_desk(edge.folder).show, envelope)


async def test_a_file_that_lost_its_content_is_told_and_its_log_is_kept(edge: Edge, upstream: FakeUpstream) -> None:
    await stopped(edge, upstream)
    path = edge.folder / "outbox.db"
    path.write_bytes(b"")
    wal = path.with_name("outbox.db-wal")
    wal.write_bytes(b"what was written last, and nowhere else " * 100)
    assert (await asyncio.to_thread(find_desk(edge.folder).status))["outbox_usable"] is False
    assert wal.stat().st_size == 4_000
