"""`statehub`: what its settings are taken from. What it serves is asked in tests/integration/test_hub.py."""

from pathlib import Path

import pytest

from claudemesh.cli.command import Session
from claudemesh.cli.statehub.hub import build_settings
from claudemesh.cli.statehub.main import main
from claudemesh.kernel.errors import ConfigError

pytestmark = pytest.mark.req("R2")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDEMESH_HOME", str(tmp_path / "home"))
    for name in ("CLAUDEMESH_LISTEN", "CLAUDEMESH_HUB__LISTEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def test_by_itself_it_keeps_its_rows_in_the_home_and_listens_on_loopback(home: Path) -> None:
    settings = build_settings(Session("statehub"), {})
    assert settings.store == f"sqlite:///{home / 'hub.db'}"
    assert (settings.listen, settings.token_file, settings.key_expiry_days) == ("127.0.0.1:18000", None, 30)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "hub.toml").write_text('listen = "127.0.0.1:1"\ntoken_file = "secret"\nkey_expiry_days = 90\n')
    settings = build_settings(Session("statehub"), {})
    assert (settings.listen, settings.key_expiry_days) == ("127.0.0.1:1", 90)
    assert settings.token_file == str(home / "secret"), "beside the file that names it"
    monkeypatch.setenv("CLAUDEMESH_HUB__LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("CLAUDEMESH_LISTEN", "127.0.0.1:7450")  # a broker's
    assert build_settings(Session("statehub"), {"listen": None}).listen == "127.0.0.1:2"
    assert build_settings(Session("statehub"), {"listen": "127.0.0.1:3"}).listen == "127.0.0.1:3"


@pytest.mark.parametrize("text", ["key_expiry_days = 29", 'lisen = "x"', "pool_max = 0"])
def test_a_setting_that_cannot_be_is_refused(home: Path, text: str) -> None:
    (home / "hub.toml").write_text(text)
    with pytest.raises(ConfigError):
        build_settings(Session("statehub"), {})


@pytest.mark.usefixtures("home")
def test_it_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert {"serve", "idempotency"} <= set(capsys.readouterr().out.split())
