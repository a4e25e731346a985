"""Random histories: whatever is asked in whatever order, a store answers as the oracle does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from claudemesh.broker.model import ConnectionPolicy
from claudemesh.broker.ports import Stores
from tests.contract.broker.backends import BOUND_S, House, newcomer, ulids
from tests.contract.broker.journal import refold, shown
from tests.contract.broker.oracle import open_oracle
from tests.contract.broker.oracle.history import History
from tests.contract.broker.oracle.sides import NAMES, Side
from tests.doubles import ManualClock

STEPS = 200


@dataclass(frozen=True)
class Brokers:
    tested: Sequence[Stores]
    oracles: Sequence[Stores]
    oracles_clock: ManualClock


@pytest.fixture
async def brokers(house: House, tmp_path: Path) -> AsyncIterator[Brokers]:
    """Open the store once more, if it is not one broker's alone, and the oracle as often."""
    clock = ManualClock()
    tested, oracles = [house.stores], [await open_oracle(tmp_path / "oracle", clock)]
    if not house.stores.bus.is_alone:
        tested.append(await house.backend.open(house.folder, house.clock))
        oracles.append(await open_oracle(tmp_path / "oracle", clock))
    yield Brokers(tested, oracles, clock)
    for other in tested[1:]:
        await other.aclose()


@pytest.mark.req("B3", "B4", "B5", "B7", "Q3", "Q6", "S1")
@pytest.mark.parametrize("seed", range(4))
async def test_a_store_answers_as_the_oracle_does(house: House, brokers: Brokers, seed: int, effort: int) -> None:
    for round_ in range(effort):
        uid, people = ulids.ulid(), [newcomer(name) for name in NAMES]
        policy = [*ConnectionPolicy][(seed + round_) % 3]
        left = await Side.settle(brokers.tested, uid, people, policy)
        right = await Side.settle(brokers.oracles, uid, people, policy)
        history = History(house, left, right, brokers.oracles_clock, seed * 10_007 + round_)
        async with asyncio.timeout(BOUND_S):
            for _ in range(STEPS):
                await history.step()
            await history.look_at_all()
    assert await house.stores.upkeep.check() == []
    assert await refold(house) == await shown(house)
