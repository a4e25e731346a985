"""Calls of one member: those that read much go one after the other, and hold up nobody else."""

import asyncio
from collections.abc import Sequence
from typing import Any

from claudemesh.broker.calls import CallPorts, Calls
from claudemesh.broker.model import ConnectionPolicy, MessageReceipt, Sender
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


def test_the_policies_of_a_mesh_are_those_that_the_wire_names() -> None:
    assert [policy.value for policy in ConnectionPolicy] == [*POLICIES]
