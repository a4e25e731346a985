"""Calls of one member: those that read much go one after the other, and hold up nobody else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from claudemesh.broker.calls import CallPorts, Calls
from claudemesh.broker.model import ConnectionPolicy, Identity, Member, MessageReceipt, Sender
from claudemesh.broker.presence.model import Because, Settled
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.runtime.clock import SystemClock
from claudemesh.wire.frames import Call
from claudemesh.wire.names import POLICIES
from tests.unit.broker.people import identity

BOUND_S = 30


class SlowReceipts:
    """Answers when it is let; remembers who was inside at once."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.came: asyncio.Queue[int] = asyncio.Queue()
        self.release = asyncio.Semaphore(0)

    async def receipts(
        self, sender: Sender, _ids: Sequence[str], _broker_ids: Sequence[str]
    ) -> list[MessageReceipt]:
        assert sender.member_id not in self.inside, "two of one member at once"
        self.inside.append(sender.member_id)
        self.came.put_nowait(sender.member_id)
        await self.release.acquire()
        self.inside.remove(sender.member_id)
        return []


async def test_of_one_members_expensive_calls_one_runs_at_a_time_and_others_need_not_wait() -> None:
    receipts: Any = SlowReceipts()
    nothing: Any = None
    ports = CallPorts(
        accepts=nothing,
        deliveries=nothing,
        receipts=receipts,
        directory=nothing,
        topics=nothing,
        work=nothing,
        presence=nothing,
    )
    calls = Calls(ports, nothing, nothing, nothing, SystemClock())
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asked = [
            group.create_task(calls.answer(identity(number), Call(n, "receipts", {"ids": ["x"]})))
            for n, number in enumerate((1, 1, 1, 2))
        ]
        assert {await receipts.came.get(), await receipts.came.get()} == {1, 2}
        assert (await calls.answer(identity(1), Call(9, "ping", {}))).error is None, "a cheap one does not wait"
        for _ in asked:
            receipts.release.release()
    assert [task.result().error for task in asked] == [None] * 4
    assert receipts.came.qsize() == 2


def test_calls_that_read_much_are_those_that_take_turns() -> None:
    nothing: Any = None
    operations = Calls(nothing, nothing, nothing, nothing, SystemClock()).operations
    heavy = {name for name, operation in operations.items() if operation.is_heavy}
    assert heavy == {"peers", "presence", "receipts", "replay", "trace"}


class Revoking:
    """A directory that revokes, a store of leases that fails, and all who are told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def revoke(self, _actor: Sender, _name: str, now_ms: int) -> Member:
        return msgspec.structs.replace(identity(2).member, revoked_at=now_ms)

    async def end_all(self, _sender: Sender, _because: Because) -> Settled:
        raise StoreUnavailable

    def tell(self, settled: Settled) -> None:
        self.told.append(f"{len(settled.events)} departures")


class Board:
    def __init__(self, told: list[str]) -> None:
        self._told = told

    def revoke(self, member: Member, _by: Identity) -> None:
        self._told.append(f"{member.name} is out")


@pytest.mark.req("P5")
async def test_who_is_revoked_is_put_out_also_if_its_leases_cannot_be_ended_now() -> None:
    both: Any = Revoking()
    board: Any = Board(both.told)
    nothing: Any = None
    ports = CallPorts(
        accepts=nothing,
        deliveries=nothing,
        receipts=nothing,
        directory=both,
        topics=nothing,
        work=nothing,
        presence=both,
    )
    calls = Calls(ports, nothing, board, both, SystemClock())
    reply = await calls.answer(identity(1), Call(1, "member.revoke", {"member": "n2"}))
    assert reply.error is None
    assert both.told == ["n2 is out", "0 departures"]


def test_the_policies_of_a_mesh_are_those_that_the_wire_names() -> None:
    assert [policy.value for policy in ConnectionPolicy] == [*POLICIES]
