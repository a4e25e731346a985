"""A home, and one check at a time run over it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claudemesh.cli.doctor.model import Check, Finding, Verdict
from claudemesh.cli.doctor.runner import run as run_checks
from claudemesh.cli.doctor.scene import Scene
from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home, read_surroundings
from claudemesh.runtime.keys import KeyPair
from tests.unit.cli.scripted import ScriptedDaemon, scripted_daemon

Look = Callable[..., list[Finding]]
Judge = Callable[..., Verdict]
Mend = Callable[[Check], list[str]]
BROKER_KEY = "ab" * 32
KEPT = ("CLAUDEMESH_HOME", "CLAUDEMESH_MESH")


@pytest.fixture(autouse=True)
def nobodys_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the user whose agent host is looked at be nobody in particular."""
    (tmp_path / "user").mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in [name for name in os.environ if name.startswith("CLAUDEMESH_") and name not in KEPT]:
        monkeypatch.delenv(name)  # what the tests themselves go by
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


@pytest.fixture
def make_scene(home: Home) -> Callable[..., Scene]:
    def make(mesh: str | None = None, **environment: str) -> Scene:
        around = read_surroundings({"CLAUDEMESH_HOME": str(home.root), **environment})
        return Scene(around, environment, SystemClock(), mesh)

    return make


@pytest.fixture
def look(make_scene: Callable[..., Scene]) -> Look:
    """Return what one check finds."""

    def look(check: Check, mesh: str | None = None, **environment: str) -> list[Finding]:
        results = run_checks(make_scene(mesh, **environment), [check], lambda *_: None)
        return [result.finding for result in results]

    return look


@pytest.fixture
def verdict(look: Look) -> Judge:
    """Return the verdict of a check that finds one thing."""

    def verdict(check: Check, mesh: str | None = None, **environment: str) -> Verdict:
        (finding,) = look(check, mesh, **environment)
        return finding.verdict

    return verdict


@pytest.fixture
def mend(look: Look) -> Mend:
    """Do what a check says can be mended, and return what was done."""

    def mend(check: Check) -> list[str]:
        repairs = [repair for finding in look(check) for repair in finding.repairs]
        for repair in repairs:
            repair.run()
        return [repair.says for repair in repairs]

    return mend


def enter_mesh(home: Home, slug: str = "demo", broker_url: str = "http://127.0.0.1:9") -> Path:
    """Join a mesh whose broker is as said; port 9 is nobody's."""
    joined = Joined(
        mesh_id=f"mesh-{slug}",
        slug=slug,
        member_id="P1",
        name="ada",
        role="owner",
        broker_key=BROKER_KEY,
        broker_url=broker_url,
    )
    identity.store(home.ensure_dir(home.mesh_dir(slug)), KeyPair.generate(), joined)
    return home.mesh_dir(slug)


@pytest.fixture
def state_dir(home: Home) -> Path:
    return enter_mesh(home)


@pytest.fixture
def server(home: Home) -> Iterator[ScriptedDaemon]:
    """Yield a broker that says what it is told to, joined as the mesh `demo`."""
    with scripted_daemon(None) as server:
        enter_mesh(home, "demo", server.url)
        yield server


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that holds no ledger."""
    os.makedirs(tmp_path / "cwd", exist_ok=True)  # noqa: PTH103  as short
    monkeypatch.chdir(tmp_path / "cwd")
