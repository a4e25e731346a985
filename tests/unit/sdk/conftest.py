"""A daemon that says what it is told to, and a mesh of either kind that talks to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claudemesh import AsyncMesh, Mesh
from claudemesh.sdk.find import Place
from tests.unit.cli.scripted import ScriptedDaemon, scripted_daemon
from tests.unit.sdk.running import Background, Blocked


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    with scripted_daemon(tmp_path / "sock") as daemon:
        yield daemon


@pytest.fixture(params=["sync", "async"])
def mesh(request: pytest.FixtureRequest, daemon: ScriptedDaemon) -> Iterator[Any]:
    assert daemon.path is not None
    place = Place("demo", daemon.path)
    if request.param == "sync":
        with Mesh.at(place, timeout=5) as mesh:
            yield mesh
    else:
        with Background() as background, Blocked(AsyncMesh.at(place, timeout=5), background) as blocked:
            yield blocked
