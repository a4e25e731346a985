"""`claudemesh dashboard`: a link from the daemon, or what keeps it from having one."""

import os
import webbrowser

import pytest

from claudemesh.runtime.home import Home, InstanceLock
from tests.unit.cli.conftest import Run, join_mesh
from tests.unit.cli.scripted import ScriptedDaemon, refuse, respond, scripted_daemon

URL = "http://127.0.0.1:4711/ui/#a-code"
ADDRESS = ("POST", "/v1/dashboard/code")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what was handed to a browser; there is none that could be started."""
    found: list[str] = []

    def refuse_to_open(url: str) -> bool:
        found.append(url)
        return False

    monkeypatch.setattr(webbrowser, "open", refuse_to_open)
    return found


@pytest.mark.req("C4")
@pytest.mark.prints("claudemesh dashboard")
def test_a_fresh_link_is_printed_and_nothing_is_opened_unasked(
    run: Run, daemon: ScriptedDaemon, opened: list[str]
) -> None:
    daemon.on(*ADDRESS, respond(200, {"code": "a-code", "url": URL, "expires_in_s": 120}))
    assert run("dashboard", "--json").json == {"mesh": "demo", "url": URL, "expires_in_s": 120}
    ran = run("dashboard")
    assert (ran.code, ran.out) == (0, f"{URL}\n")
    assert opened == []
    ran = run("dashboard", "--open")
    assert opened == [URL]
    assert "open the link yourself" in ran.err


@pytest.mark.req("C4")
def test_a_daemon_without_a_port_is_an_error_that_names_the_way(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on(*ADDRESS, respond(200, {"code": "a-code", "url": None, "expires_in_s": 120}))
    ran = run("dashboard", "--json")
    assert ran.code == 1
    assert "stop it, and `claudemesh daemon up --tcp --mesh demo`" in ran.json["detail"]
    assert "a-code" not in ran.out + ran.err


def test_of_a_daemon_without_a_port_that_up_keeps_running_up_is_what_to_start_anew(run: Run, home: Home) -> None:
    join_mesh(home, "local")
    with scripted_daemon(home.mesh_dir("local") / "sock") as daemon, InstanceLock(home.up_lock):
        daemon.on(*ADDRESS, respond(200, {"code": "a-code", "url": None, "expires_in_s": 120}))
        ran = run("dashboard", "--json")
    assert ran.code == 1
    assert ran.json["detail"].endswith(f"stop `claudemesh up` (process {os.getpid()}), then `claudemesh up --tcp`")


def test_a_daemon_that_has_no_dashboard_is_told_apart(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on(*ADDRESS, refuse(404, "not_found"))
    ran = run("dashboard")
    assert ran.code == 1
    assert "daemon restart" in ran.err
