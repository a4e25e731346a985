"""Who we are, what we go by, and what runs: each planted with what is wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.cli.doctor.checks import identity, program, settings
from claudemesh.cli.doctor.model import Verdict
from claudemesh.runtime.home import Home, write_private
from claudemesh.runtime.keys import KeyPair
from tests.unit.cli.doctor.conftest import Judge, Look
from tests.unit.cli.scripted import ScriptedDaemon, respond, scripted_daemon


@pytest.fixture
def daemon(state_dir: Path) -> Iterator[ScriptedDaemon]:
    with scripted_daemon(state_dir / "sock") as daemon:
        yield daemon


# --- identity ----------------------------------------------------------------------------------------------


@pytest.mark.req("C5")
def test_keys_that_are_damaged_gone_or_anothers_fail(verdict: Judge, state_dir: Path) -> None:
    assert verdict(identity.keys) is Verdict.OK
    path = state_dir / "keypair.json"
    stored = json.loads(path.read_bytes())
    write_private(path, json.dumps({**stored, "pubkey": KeyPair.generate().pubkey}).encode())
    assert verdict(identity.keys) is Verdict.FAIL
    write_private(path, b"{")
    assert verdict(identity.keys) is Verdict.FAIL
    path.unlink()
    assert verdict(identity.keys) is Verdict.FAIL


@pytest.mark.req("C5")
def test_a_daemon_with_another_key_than_the_files_is_told(verdict: Judge, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/health", respond(200, {"member_pubkey": "cd" * 32, "daemon_version": "0"}))
    assert verdict(identity.keys) is Verdict.WARN
    assert verdict(program.same_version) is Verdict.WARN
    own = program.installed("claudemesh")
    daemon.on("GET", "/v1/health", respond(200, {"member_pubkey": "cd" * 32, "daemon_version": own}))
    assert verdict(program.same_version) is Verdict.OK


@pytest.mark.req("C5")
def test_a_state_directory_without_its_membership_is_looked_at_all_the_same(look: Look, state_dir: Path) -> None:
    assert [one.verdict for one in look(identity.membership)] == [Verdict.OK]
    (state_dir / "membership.json").unlink()
    (found,) = look(identity.membership)
    assert (found.verdict, found.subject) == (Verdict.FAIL, "demo")
    assert [one.verdict for one in look(identity.keys)] == [Verdict.OK]


@pytest.mark.req("C5", "D16")
@pytest.mark.parametrize(("policy", "expected"), [("refuse", "fail"), ("warn", "warn"), ("allow", "ok")])
def test_a_copy_on_another_host_is_told_as_the_daemon_would_judge_it(
    verdict: Judge, state_dir: Path, policy: str, expected: str
) -> None:
    assert verdict(identity.host) in {Verdict.OK, Verdict.NOT_APPLICABLE}
    planted = json.dumps({"fingerprint": "00" * 32, "made_of": ["machine-id"]}).encode()
    write_private(state_dir / "host_fingerprint.json", planted)
    (state_dir / "config.toml").write_text(f'[clone]\npolicy = "{policy}"\n')
    assert verdict(identity.host) == expected
    assert (state_dir / "host_fingerprint.json").read_bytes() == planted, "to look is not to accept"


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.req("C5", "O2")
def test_each_settings_file_is_judged_and_the_nearest_name_is_given(
    look: Look, home: Home, state_dir: Path
) -> None:
    (state_dir / "config.toml").write_text("[disk]\nreserved_byte = 1\n")
    (home.root / "broker.toml").write_text("listen = ")
    (home.root / "hub.toml").write_text("pool_max = 4\n")
    found = {one.subject: one for one in look(settings.settings, CLAUDEMESH_EDGE__LISTN="x")}
    assert {subject: one.verdict.value for subject, one in found.items()} == {
        "daemon of demo": "fail",
        "broker": "fail",
        "hub": "ok",
        "relay": "fail",
    }
    assert "did you mean reserved_bytes?" in found["daemon of demo"].detail


@pytest.mark.req("C5", "O2")
def test_a_variable_that_nothing_hears_is_told_with_the_nearest(look: Look) -> None:
    def told(**environment: str) -> str:
        (finding,) = look(settings.variables, **environment)
        return "" if finding.verdict is Verdict.OK else finding.detail

    assert told(CLAUDEMESH_MESH="demo", CLAUDEMESH_DISK__RESERVED_BYTES="1", CLAUDEMESH_EDGE__LISTEN="x") == ""
    assert told(CLAUDEMESH_HOMEE="/x") == "CLAUDEMESH_HOMEE is unknown, did you mean CLAUDEMESH_HOME?"
    assert "did you mean CLAUDEMESH_DISK__RESERVED_BYTES?" in told(CLAUDEMESH_DISK__RESERVED_BYTE="1")


@pytest.mark.req("C5")
def test_a_time_that_is_none_is_told(verdict: Judge) -> None:
    assert verdict(settings.timings) is Verdict.OK
    assert verdict(settings.timings, LEASE_TTL_MS="soon") is Verdict.FAIL


# --- what runs ---------------------------------------------------------------------------------------------


@pytest.mark.req("C5")
def test_an_sqlite_that_can_damage_a_file_fails(verdict: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(program.python) is Verdict.OK
    assert verdict(program.sqlite) is Verdict.OK
    monkeypatch.setattr(program, "library_version", lambda: "3.51.2")
    assert verdict(program.sqlite) is Verdict.FAIL


@pytest.mark.req("C5")
def test_an_extra_that_the_settings_ask_for_must_be_there(
    look: Look, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.ensure()
    (home.root / "broker.toml").write_text(
        'store = "postgresql://u:p4ssw0rd-canary@db/mesh"\nlimiter = "redis://r"\n'
    )
    assert [one.verdict for one in look(program.extras)] == [Verdict.OK]
    monkeypatch.setattr(program, "installed", lambda _: None)
    (found,) = look(program.extras)
    assert found.verdict is Verdict.FAIL
    assert "claudemesh[postgres,redis]" in found.fix
    assert "canary" not in found.detail + found.fix


@pytest.mark.req("C5")
def test_a_daemon_that_is_to_send_spans_needs_what_sends_them(
    look: Look, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state_dir / "config.toml").write_text('[tracing]\nendpoint = "http://127.0.0.1:4318/v1/traces"\n')
    monkeypatch.setattr(program, "installed", lambda _: None)
    (found,) = look(program.extras)
    assert found.verdict is Verdict.FAIL
    assert "claudemesh[otel]" in found.fix
