"""Which mesh is meant, and where its daemon would be."""

import asyncio
from pathlib import Path

import pytest

from claudemesh import AsyncMesh, Mesh
from claudemesh.daemon import identity
from claudemesh.kernel.errors import ConfigError, InvalidRequest, NoDaemon
from claudemesh.runtime.keys import KeyPair
from tests.mesh import a_membership


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CLAUDEMESH_MESH", raising=False)
    monkeypatch.setenv("CLAUDEMESH_HOME", str(tmp_path / "home"))


def join(home: Path, *slugs: str) -> Path:
    for slug in slugs:
        state_dir = home / "daemon" / slug
        state_dir.mkdir(parents=True, mode=0o700)
        identity.store(state_dir, KeyPair.generate(), a_membership(slug))
    return home


@pytest.mark.req("C2")
def test_the_only_mesh_that_was_joined_is_the_one_that_is_meant(tmp_path: Path) -> None:
    join(tmp_path / "home", "demo")
    assert Mesh().slug == "demo"
    assert AsyncMesh().slug == "demo"


@pytest.mark.req("C2")
def test_of_several_meshes_none_is_guessed_and_the_error_names_them(tmp_path: Path) -> None:
    join(tmp_path / "home", "prod", "demo")
    with pytest.raises(ConfigError, match="demo, prod") as caught:
        Mesh()
    assert caught.value.extras["meshes"] == ["demo", "prod"]


def test_the_mesh_may_be_named_in_the_program_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(tmp_path / "home", "prod", "demo")
    monkeypatch.setenv("CLAUDEMESH_MESH", "prod")
    assert Mesh().slug == "prod"
    assert Mesh("demo").slug == "demo"


def test_a_mesh_that_was_not_joined_is_an_error_that_names_those_that_were(tmp_path: Path) -> None:
    join(tmp_path / "home", "demo")
    with pytest.raises(ConfigError, match="joined: demo"):
        Mesh("other")


def test_without_any_mesh_the_error_names_how_to_get_into_one() -> None:
    with pytest.raises(ConfigError, match="claudemesh mesh join"):
        Mesh()


def test_another_home_may_be_given(tmp_path: Path) -> None:
    join(tmp_path / "elsewhere", "demo")
    assert Mesh(home=tmp_path / "elsewhere").slug == "demo"
    assert Mesh(home=str(tmp_path / "elsewhere")).slug == "demo"


def test_what_is_no_slug_leads_nowhere(tmp_path: Path) -> None:
    join(tmp_path / "home", "demo")
    with pytest.raises(InvalidRequest):
        Mesh("../demo")


@pytest.mark.req("C2")
def test_without_a_daemon_every_use_is_an_error_that_names_the_command(tmp_path: Path) -> None:
    join(tmp_path / "home", "demo")
    with Mesh() as mesh:
        with pytest.raises(NoDaemon, match="claudemesh daemon up"):
            mesh.send("bob", "hi")
        with pytest.raises(NoDaemon, match="claudemesh daemon up"):
            mesh.events()
        with pytest.raises(NoDaemon, match="claudemesh daemon up"):
            next(mesh.inbox())
    with pytest.raises(NoDaemon, match="claudemesh daemon up"):
        asyncio.run(AsyncMesh().send("bob", "hi"))
