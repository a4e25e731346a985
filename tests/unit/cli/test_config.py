"""`config show`: every value in force, and where it came from."""

import re
from pathlib import Path
from typing import Any

import pytest

import claudemesh
from claudemesh.broker.settings import BrokerSettings
from claudemesh.cli.settings_files import HIDDEN, hide_passwords
from claudemesh.daemon.settings import Config
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub.settings import HubSettings
from claudemesh.runtime.home import Home
from claudemesh.runtime.settings import describe
from claudemesh.runtime.variables import VARIABLES
from tests.unit.cli.conftest import Run, join_mesh

PASSWORD = "c0rrect-h0rse-canary"  # noqa: S105 - it opens nothing
KEY = "ab" * 32


def by_name(settings: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["name"]: (one["value"], one["source"]["kind"], one["source"]["name"]) for one in settings}


def part(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(file for file in document["files"] if file["part"] == name)


@pytest.mark.req("O2")
@pytest.mark.prints("claudemesh config show")
def test_each_value_in_force_is_shown_with_its_source(
    run: Run, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_mesh(home, "demo")
    file = home.mesh_dir("demo") / "config.toml"
    file.write_text('[clone]\npolicy = "warn"\n')
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("CLAUDEMESH_DISK__RESERVED_BYTES", "2000000")
    monkeypatch.setenv("LEASE_TTL_MS", "4000")
    ran = run("config", "show", "--json")
    assert ran.code == 0
    around = by_name(ran.json["surroundings"])
    assert around["home"] == (str(home.root), "environment", "CLAUDEMESH_HOME")
    assert around["mesh"] == ("demo", "default", None)
    assert around["daemon.ephemeral"] == (True, "environment", "CI")
    daemon = by_name(part(ran.json, "daemon")["settings"])
    assert daemon["clone.policy"] == ("warn", "file", str(file))
    assert daemon["disk.reserved_bytes"] == (2_000_000, "environment", "CLAUDEMESH_DISK__RESERVED_BYTES")
    assert daemon["inbox.keep_days"] == (30, "default", None)
    broker = by_name(part(ran.json, "broker")["settings"])
    assert broker["presence.lease_ttl_ms"] == (4_000, "environment", "LEASE_TTL_MS")
    lines = run("config", "show").out.splitlines()
    assert any(re.fullmatch(r'clone\.policy = "warn" +# file, line 2', line) for line in lines)
    named = by_name(run("config", "show", "--mesh", "demo", "--json").json["surroundings"])
    assert named["mesh"] == ("demo", "command line", "--mesh")


@pytest.mark.req("O2")
def test_every_setting_of_every_file_is_shown(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    shown = run("config", "show", "--json").json
    structs = {"daemon": Config, "broker": BrokerSettings, "hub": HubSettings, "relay": EdgeSettings}
    for name, struct in structs.items():
        assert set(by_name(part(shown, name)["settings"])) == {setting.name for setting in describe(struct)}


@pytest.mark.req("O2")
def test_what_is_wrong_is_named_beside_what_is_right(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    (home.root / "broker.toml").write_text("[limits]\nsends_per_windo = 1\nwindow_s = 5\n")
    ran = run("config", "show", "--json")
    assert ran.code == 1
    broker = part(ran.json, "broker")
    assert broker["problems"] == ["limits.sends_per_windo is unknown, did you mean sends_per_window?"]
    assert by_name(broker["settings"])["limits.window_s"][0] == 5
    assert "did you mean sends_per_window?" in run("config", "show").out


@pytest.mark.req("O2")
def test_no_secret_is_shown(run: Run, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.ensure()
    store = f"postgresql://mesh:{PASSWORD}@db:5432/mesh?sslpassword={PASSWORD}&sslmode=require"
    (home.root / "broker.toml").write_text(
        f'store = "{store}"\nlimiter = "redis://:{PASSWORD}@r"\nresume_token_key = "{KEY}"\n'
    )
    monkeypatch.setenv("STATEHUB_TOKEN", PASSWORD)
    ran, told = run("config", "show", "--json"), run("config", "show")
    assert PASSWORD not in ran.out + told.out
    assert KEY not in ran.out + told.out
    settings = by_name(part(ran.json, "broker")["settings"])
    assert settings["store"][0] == f"postgresql://mesh:{HIDDEN}@db:5432/mesh?sslpassword={HIDDEN}&sslmode=require"
    assert settings["resume_token_key"][0] == HIDDEN
    monkeypatch.setenv("RESUME_TOKEN_KEY", "cd" * 32)
    assert "cdcd" not in run("config", "show", "--json").out


@pytest.mark.req("O2")
@pytest.mark.parametrize("password", ["Tr0ub4dor/3xyz", "Corr#ectHorse", "Batt?ery9", "c0rrect@h0rse", "two w0rds"])
def test_a_password_that_nobody_escaped_is_not_shown_either(run: Run, home: Home, password: str) -> None:
    home.ensure()
    (home.root / "broker.toml").write_text(
        f'store = "postgresql://app:{password}@db/mesh"\nlimiter = "redis://:{password}@r"\n'
    )
    said = run("config", "show", "--json").out + run("config", "show").out
    assert HIDDEN in said
    assert password not in said
    assert password[:5] not in said, "nor what stands before the character that was not escaped"
    assert password[-5:] not in said, "nor what stands behind it"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("redis://u:a:b@h", f"redis://u:{HIDDEN}@h"),
        ("postgresql://u:p@ss@h/db", f"postgresql://u:{HIDDEN}@h/db"),
        ("postgresql://app:Tr0ub4dor/3xyz@db/mesh", f"postgresql://app:{HIDDEN}@db/mesh"),
        ("redis://:Corr#ectHorse@r", f"redis://:{HIDDEN}@r"),
        ("http://bob:Batt?ery9@h:1/x", f"http://bob:{HIDDEN}@h:1/x"),
        ("of redis://:Corr#Horse@r, and http://bob:B@d/9@h", f"of redis://:{HIDDEN}@r, and http://bob:{HIDDEN}@h"),
        ("http://127.0.0.1:18000/a is not at a@b", "http://127.0.0.1:18000/a is not at a@b"),
        ("http://bob@h/a:b", "http://bob@h/a:b"),
        ("redis:/:pw@h", f"redis:/:{HIDDEN}@h"),
        ("redis//u:pw@h", f"redis//u:{HIDDEN}@h"),
        ("redis:pw@h", f"redis:{HIDDEN}@h"),
        ("a:b of bob@h", "a:b of bob@h"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_only_the_password_of_a_url_is_hidden(text: str, hidden: str) -> None:
    assert hide_passwords(text) == hidden


@pytest.mark.req("O2")
def test_every_variable_that_is_read_is_listed() -> None:
    """Look for what reads the environment by a name; names made of settings are listed with these."""
    package = Path(next(iter(claudemesh.__path__)))
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    reads = re.compile(r"""(?:environ|environment|read_environment\(\))(?:\.get\(|\[)f?"([A-Z_]+)\"""")
    named = re.compile(r'_milliseconds\(environment, "([A-Z_]+)"')
    own = re.compile(r'"variable": "([A-Z_]+)"')
    found = {name for text in texts for pattern in (reads, named, own) for name in pattern.findall(text)}
    listed = {variable.name for variable in VARIABLES}
    assert {"CLAUDEMESH_HOME", "LEASE_TTL_MS", "RESUME_TOKEN_KEY"} <= found
    assert found - listed == set()
    assert len(listed) == len(VARIABLES)
