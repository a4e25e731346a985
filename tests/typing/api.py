"""What a user's type checker sees. Never run, only checked: mypy fails when one of these stops being true."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import assert_type

import apsw

import claudemesh
from claudemesh import (
    AsyncEvent,
    AsyncMesh,
    AsyncMessage,
    AsyncReceipt,
    AsyncWork,
    Draft,
    Event,
    Health,
    Mesh,
    Message,
    Peer,
    Receipt,
    TopicInfo,
    Trace,
    Work,
    errors,
)
from claudemesh.kernel.admission import Busy, Conflict, Fresh, Replay, Standing
from claudemesh.kernel.errors import InvalidRequest, MeshError
from claudemesh.kernel.fingerprint import Fingerprint, Kind, SendRequest, fingerprint_send
from claudemesh.kernel.lease import Fence, Granted, Held, Lease, Lost, judge
from claudemesh.kernel.outbox import ADMISSION, MACHINE, OutboxEvent, OutboxState
from claudemesh.storage.sqlite import Database
from claudemesh.wire import problem


def insert(_connection: apsw.Connection, items: Sequence[str]) -> list[int | MeshError]:
    return [len(item) if item else InvalidRequest("empty") for item in items]


async def an_operation_decides_what_goes_in_and_what_comes_out(database: Database) -> None:
    assert_type(await database.write(insert, "a"), int)
    assert_type(database.write_blocking(insert, "a"), int)
    await database.write(insert, 7)  # type: ignore[arg-type]
    assert_type(await database.read(lambda _connection: "row"), str)


def a_verdict_is_a_closed_union(standing: Standing[OutboxState] | None, lease: Lease) -> None:
    presented = fingerprint_send(SendRequest(kind=Kind.TOPIC, ref="deploys", body="done"))
    assert_type(presented, Fingerprint)
    assert_type(ADMISSION.judge(standing, presented), Fresh | Busy | Replay | Conflict)
    assert_type(judge(lease, Fence("ana", 1), 0), Granted | Held | Lost)
    assert_type(MACHINE.step(OutboxState.PENDING, OutboxEvent.CLAIMED), OutboxState)


def an_error_comes_back_as_an_error(error: MeshError) -> None:
    assert_type(problem.parse(error.status, problem.render(error)), MeshError)


# --- the SDK -----------------------------------------------------------------------------------------


def a_mesh_sends_and_receives(mesh: Mesh) -> None:
    receipt = mesh.send("bob", "hi", priority="now", meta={"n": 1}, id="m1", reply_to="b1")
    assert_type(receipt, Receipt)
    assert_type(receipt.wait("delivered", timeout=5).state, str)
    assert_type(receipt.trace(), Trace)
    assert_type(
        mesh.send_many([Draft("bob", "1"), Draft("#deploys", "2", mentions=["ana"])]), list[Receipt | MeshError]
    )
    assert_type(mesh.inbox(since="2026-01-31", unread=True), Iterator[Message])
    for message in mesh.inbox(topic="deploys"):
        assert_type(message.received_at, datetime)
        assert_type(message.reply("thanks", priority="low"), Receipt)
        message.body = "other"  # type: ignore[misc]
    with mesh.messages(after="e.1", timeout=5) as arriving:
        assert_type(next(arriving), Message)
    for event in mesh.events():
        assert_type(event, Event)
        assert_type(event.message, Message | None)
    assert_type(mesh.peers(all=True), list[Peer])
    assert_type(mesh.topics(), list[TopicInfo])
    assert_type(mesh.health(), Health)
    mesh.send("bob", "hi", priority="soon")  # type: ignore[arg-type]
    receipt.wait("arrived")  # type: ignore[arg-type]
    mesh.topic("deploys").create().subscribe().post("green", colour="red")  # type: ignore[call-arg]


def work_may_be_missing(mesh: Mesh) -> None:
    work = mesh.queue("jobs").create().work()
    assert_type(work, Work | None)
    work.ack()  # type: ignore[union-attr]
    if work is not None:
        with work:
            assert_type(work.renew(), datetime)
            work.hand_over()


def a_mesh_in_memory_has_as_many_members_as_were_named() -> None:
    with Mesh.in_memory("alice", "bob") as (alice, bob):
        assert_type(alice, Mesh)
        assert_type(bob.slug, str)


async def an_async_mesh_is_its_twin(mesh: AsyncMesh) -> None:
    receipt = await mesh.send("bob", "hi", mentions=())
    assert_type(receipt, AsyncReceipt)
    assert_type(await receipt.wait("read"), AsyncReceipt)
    async for message in mesh.inbox(sender="ana"):
        assert_type(message, AsyncMessage)
        assert_type(await message.reply("thanks", meta={"n": 1}), AsyncReceipt)
    async with mesh.events() as events:
        async for event in events:
            assert_type(event, AsyncEvent)
    work = await mesh.queue("jobs").work()
    assert_type(work, AsyncWork | None)
    async with AsyncMesh.in_memory() as members:
        assert_type(members, tuple[AsyncMesh, ...])


def errors_are_public_and_other_names_are_not() -> None:
    assert_type(errors.NoDaemon("x").retry, errors.Retry)
    assert issubclass(claudemesh.errors.LeaseLost, claudemesh.MeshError)
    claudemesh.Nonsense  # type: ignore[attr-defined]  # noqa: B018
