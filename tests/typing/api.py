"""What a user's type checker sees. Never run, only checked: mypy fails when one of these stops being true."""

from collections.abc import Sequence
from typing import assert_type

import apsw

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
