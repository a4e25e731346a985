"""One suite for the broker's ports, over every backend."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.broker.backends import BACKENDS, House, open_house


@pytest.fixture(params=BACKENDS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    opened = open_house(request.param, tmp_path)
    yield opened
    opened.stores.close()
