"""Every test of the ledger is over both versions of its law, unless it says that it is about one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.ledger import MessageCassette
from claudemesh.runtime import points
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.scenes import Scene, make_ledger, set_scene

VERSIONS = (1, 2)


@pytest.fixture(params=VERSIONS, ids=["version-1", "version-2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def clock() -> LedgerClock:
    return LedgerClock()


@pytest.fixture
def ledger(path: Path, version: int, clock: LedgerClock) -> Iterator[MessageCassette]:
    """Give one whose time stands still."""
    with clock.rule(make_ledger(path, version)) as opened:
        yield opened


@pytest.fixture
def scene(tmp_path: Path, version: int) -> Scene:
    return set_scene(tmp_path, version)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    points.disarm_all()
