"""A retention plan of the pipeline: the broker executes of it what its own rules allow."""

import json
from pathlib import Path
from typing import Any

import pytest

from claudemesh.broker.model import Accepted
from claudemesh.broker.planned import execute_plan, read_plan
from claudemesh.broker.upkeep import PAGE, Upkeep
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.runtime.observe import Observer
from tests.contract.broker.backends import NOW, House, Town, batch, dm, settle

DAY = 86_400_000


async def execute(house: House, *lines: object) -> dict[str, int]:
    file = house.folder / "plan.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    upkeep = Upkeep(house.stores.upkeep, house.stores.work, house.stores.presence, house.clock, Observer(), 365)
    return await execute_plan(read_plan(file), house.stores.directory, upkeep)


async def send(house: House, town: Town, *ids: str) -> list[dict[str, Any]]:
    """Have messages accepted; return the lines of a plan that names them."""
    outcomes = await house.stores.accepts.accept(
        batch(town["alice"], *(dm(id_, "bob") for id_ in ids), now_ms=house.clock.wall_ms())
    )
    return [line(town, outcome.history_id, outcome.broker_message_id) for outcome in outcomes if is_taken(outcome)]


def is_taken(outcome: object) -> bool:
    assert isinstance(outcome, Accepted)
    return True


def line(town: Town, history_id: int, broker_message_id: str) -> dict[str, Any]:
    return {
        "mesh": town.mesh.uid,
        "history_id": history_id,
        "broker_message_id": broker_message_id,
        "reason": "older than 365 days",
    }


def counts(**some: int) -> dict[str, int]:
    return {"planned": 0, "deleted": 0, "refused": 0, "gone": 0, "buried": 0} | some


@pytest.mark.req("S2", "B7")
async def test_of_a_plan_goes_what_retention_allows_and_nothing_else(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    old, kept = await send(house, town, "old", "kept")
    await stores.deliveries.ack(town["bob"], [1, 2], NOW)
    house.clock.advance(366 * DAY)
    [young] = await send(house, town, "young")
    unknown, mistaken = line(town, 99, "x"), line(town, 2, "another")
    elsewhere = {**old, "mesh": "of nobody"}
    planned = (young, unknown, mistaken, old, old, elsewhere)
    assert await execute(house, *planned) == counts(planned=5, deleted=1, refused=2, gone=2)
    standing = await stores.accepts.standing(town["alice"].member_id, ["old", "kept", "young"])
    assert {id_: one.history_available for id_, one in standing.items()} == {
        "old": False,
        "kept": True,
        "young": True,
    }
    assert await execute(house, old, kept) == counts(planned=2, deleted=1, gone=1)
    assert await stores.upkeep.check() == []


@pytest.mark.req("S2", "B7")
async def test_what_somebody_waits_for_is_a_dead_letter_before_a_plan_deletes_it(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    planned = await send(house, town, "1", "2")
    await house.stores.deliveries.ack(town["bob"], [1], NOW)
    house.clock.advance(366 * DAY)
    assert await execute(house, *planned) == counts(planned=2, deleted=1, buried=1)
    [receipt] = await house.stores.receipts.receipts(town["alice"], ["2"], [])
    assert receipt.recipients[0].dead_reason == "retention"
    assert await execute(house, *planned) == counts(planned=2, gone=1, buried=1)
    house.clock.advance(DAY + 1)
    assert await execute(house, *planned) == counts(planned=2, deleted=1, gone=1)
    assert await house.stores.upkeep.check() == []


@pytest.mark.req("S2")
async def test_a_plan_of_many_pages_and_in_no_order_is_executed_to_its_end(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    planned = await send(house, town, *(str(number) for number in range(2 * PAGE + 1)))
    await house.stores.deliveries.ack(town["bob"], [*range(1, len(planned) + 1)], NOW)
    house.clock.advance(366 * DAY)
    assert await execute(house, *planned[::-1]) == counts(planned=len(planned), deleted=len(planned))
    assert await house.stores.upkeep.check() == []


@pytest.mark.req("S2")
@pytest.mark.parametrize(
    "broken",
    ["", "{", "[]", '{"mesh": "m", "history_id": 1}', '{"mesh": "m", "history_id": "1", "broker_message_id": "b"}',
     '{"mesh": "m", "history_id": 9223372036854775808, "broker_message_id": "b"}'],
)  # fmt: skip
async def test_of_a_plan_with_a_broken_line_nothing_is_executed(house: House, broken: str) -> None:
    town = await settle(house.stores, "alice", "bob")
    planned = await send(house, town, "1")
    await house.stores.deliveries.ack(town["bob"], [1], NOW)
    house.clock.advance(366 * DAY)
    with pytest.raises(InvalidRequest, match="line 2 "):
        await execute(house, *planned, broken)
    assert await execute(house, *planned) == counts(planned=1, deleted=1)


def test_a_plan_that_is_no_text_is_refused_with_the_number_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "plan.jsonl"
    file.write_bytes(b'{"mesh": "\xff", "history_id": 1, "broker_message_id": "b"}\n')
    with pytest.raises(InvalidRequest, match="line 1 "):
        read_plan(file)
