"""A home with one joined mesh, a daemon that says what it is told to, and the command line to ask it with."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli.main import main
from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.runtime.home import CI_VARIABLES, Home
from claudemesh.runtime.keys import KeyPair
from tests.unit.cli.scripted import ScriptedDaemon, scripted_daemon


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def join_mesh(home: Home, slug: str, broker_url: str = "http://127.0.0.1:7450") -> KeyPair:
    keys = KeyPair.generate()
    joined = Joined(
        mesh_id=f"mesh-{slug}",
        slug=slug,
        member_id="P1",
        name="ada",
        role="owner",
        broker_key="ab" * 32,
        broker_url=broker_url,
    )
    identity.store(home.ensure_dir(home.mesh_dir(slug)), keys, joined)
    return keys


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in [*CI_VARIABLES, *(name for name in os.environ if name.startswith("CLAUDEMESH_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDEMESH_HOME", str(tmp_path / "h"))
    return Home(tmp_path / "h")


@pytest.fixture
def run(home: Home, capsys: pytest.CaptureFixture[str]) -> Run:
    assert home

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def daemon(home: Home) -> Iterator[ScriptedDaemon]:
    join_mesh(home, "demo")
    with scripted_daemon(home.mesh_dir("demo") / "sock") as daemon:
        yield daemon
