"""What the tests of relay and hub share: a relay with its upstream, and no canary on the disk afterwards."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests import canaries
from tests.edge_doubles import Edge
from tests.fake_upstream import FakeUpstream
from tests.integration.hub_process import Hub
from tests.integration.relay_process import Relay

_WRITES_FILES = frozenset({"edge", "relay_folder", "hub"})  # fixtures under which something is stored


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    fake = FakeUpstream()
    await fake.open()
    yield fake
    await fake.close()


@pytest.fixture
def relay_folder(tmp_path: Path) -> Path:
    return tmp_path / "edge"


@pytest.fixture
async def edge(relay_folder: Path, upstream: FakeUpstream) -> AsyncIterator[Edge]:
    """Give a relay that runs, before an upstream that is there."""
    relay = Edge(relay_folder, upstream.url)
    await relay.start()
    yield relay
    await relay.stop()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """Return a hub that does not run yet."""
    home = tmp_path / "hub"
    home.mkdir(mode=0o700)
    return Hub(home, f"sqlite:///{home / 'hub.db'}")


@pytest.fixture
def relay(tmp_path: Path, hub: Hub) -> Relay:
    """Return a home for commands before that hub; its relay does not run yet."""
    return Relay(tmp_path / "edge", f"http://{hub.listen}")


@pytest.fixture(autouse=True)
def _no_canary_on_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test of a relay or a hub: none of the secrets that went through it was written down."""
    if not _WRITES_FILES.intersection(request.fixturenames):
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    yield
    assert canaries.found_in(folder) == []
