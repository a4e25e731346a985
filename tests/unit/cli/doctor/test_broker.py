"""How far one gets to the broker, what time it is there, and what was agreed."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from claudemesh.cli.doctor.checks import broker, delivery, processes
from claudemesh.cli.doctor.model import Verdict
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from tests.certificates import Authority
from tests.unit.cli.doctor.conftest import BROKER_KEY, Judge, Look, enter_mesh
from tests.unit.cli.scripted import Asked, ScriptedDaemon, respond, scripted_daemon

HEALTH = "/v1/health"


def says(skew_ms: int = 0, key: str = BROKER_KEY) -> object:
    def answer(_: Asked) -> bytes:
        now_ms = SystemClock().wall_ms() + skew_ms
        return respond(200, {"broker_key": key, "broker_version": "9", "server_time_ms": now_ms})

    return answer


@pytest.mark.req("C5")
def test_a_broker_that_answers_as_it_should_passes(verdict: Judge, server: ScriptedDaemon) -> None:
    server.on("GET", HEALTH, says())
    assert [verdict(check) for check in broker.CHECKS] == [Verdict.OK] * 3


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("skew_ms", "expected"), [(-90_000, "fail"), (90_000, "fail"), (30_000, "warn"), (0, "ok")]
)
def test_a_clock_that_the_broker_would_refuse_fails(
    verdict: Judge, server: ScriptedDaemon, skew_ms: int, expected: str
) -> None:
    server.on("GET", HEALTH, says(skew_ms))
    assert verdict(broker.clock) == expected


@pytest.mark.req("C5")
def test_another_broker_at_the_same_place_fails(verdict: Judge, server: ScriptedDaemon) -> None:
    server.on("GET", HEALTH, says(key="cd" * 32))
    assert verdict(broker.reachable) is Verdict.OK
    assert verdict(broker.same_broker) is Verdict.FAIL


@pytest.mark.req("C5")
@pytest.mark.parametrize("answer", [respond(200, {"ok": True}), respond(500, {}), respond(200, "no"), None])
def test_what_answers_and_is_no_broker_fails_at_its_answer(
    look: Look, server: ScriptedDaemon, answer: bytes | None
) -> None:
    server.on("GET", HEALTH, answer)
    (found,) = look(broker.reachable)
    assert found.verdict is Verdict.FAIL
    assert "at its answer" in found.detail
    assert [one.verdict for one in look(broker.clock)] == [Verdict.NOT_APPLICABLE]


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("url", "step"),
    [
        ("http://127.0.0.1:9", "port"),
        ("https://nowhere.invalid:7450", "name"),
        ("http://mesh.example.org", "address"),
        ("nonsense", "address"),
    ],
)
def test_the_step_that_fails_is_named_with_its_remedy(look: Look, home: Home, url: str, step: str) -> None:
    enter_mesh(home, "demo", url)
    (found,) = look(broker.reachable)
    assert found.verdict is Verdict.FAIL
    assert f"at its {step}:" in found.detail
    assert found.fix


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("slug", "url", "command"),
    [
        ("demo", "http://127.0.0.1:9", "start it: `claudemesh broker serve --listen 127.0.0.1:9`"),
        ("local", "http://127.0.0.1:9", "start it: `claudemesh up --listen 127.0.0.1:9`"),
        ("demo", "https://127.0.0.2:9", "start it there: `claudemesh broker serve`"),
    ],
)
def test_the_command_that_starts_a_broker_starts_the_one_that_was_joined(
    look: Look, home: Home, slug: str, url: str, command: str
) -> None:
    enter_mesh(home, slug, url)
    (found,) = look(broker.reachable)
    assert found.fix is not None
    assert found.fix.startswith(command)


@pytest.mark.req("C5")
def test_what_up_had_started_is_started_by_it_again_broker_and_daemon_at_once(look: Look, home: Home) -> None:
    for slug in ("local", "team"):  # the second was made at the first one's broker
        enter_mesh(home, slug)
    of_brokers = {found.subject: found.fix for found in look(broker.reachable)}
    of_daemons = {found.subject: found.fix for found in look(processes.daemon)}
    command = "start it: `claudemesh up --listen 127.0.0.1:9`"
    assert [str(fix).startswith(command) for fix in of_brokers.values()] == [True, True]
    assert of_daemons == {"local": command, "team": "start it: `claudemesh daemon up --mesh team`"}


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def distrusted(tmp_path: Path) -> Iterator[str]:
    """Serve with a certificate that nobody here trusts."""
    pair = Authority(tmp_path / "ca").sign("DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    server = HTTPServer(("127.0.0.1", 0), _Quiet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a handshake that fails is what is wanted
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.req("C5")
def test_a_certificate_that_is_not_trusted_is_named_as_the_step(look: Look, home: Home, distrusted: str) -> None:
    enter_mesh(home, "demo", distrusted)
    (found,) = look(broker.reachable)
    assert "at its certificate" in found.detail


# --- what was agreed ---------------------------------------------------------------------------------------


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("health", "expected", "said"),
    [
        ({"connected": True, "link": "connected", "degraded": False}, "ok", "max_payload"),
        ({"connected": False, "link": "closed: 4401 clock_skew", "degraded": False}, "fail", "clock_skew"),
        ({"connected": False, "link": "closed: 4003 replaced", "degraded": True}, "fail", "degraded"),
    ],
)
def test_the_connection_is_judged_with_its_last_reason(
    look: Look, state_dir: Path, health: dict[str, object], expected: str, said: str
) -> None:
    assert [one.verdict for one in look(delivery.negotiation)] == [Verdict.NOT_APPLICABLE]
    with scripted_daemon(state_dir / "sock") as daemon:
        daemon.on("GET", HEALTH, respond(200, health))
        daemon.on("GET", "/v1/version", respond(200, {"broker_features_negotiated": ["max_payload"]}))
        (found,) = look(delivery.negotiation)
    assert found.verdict == expected
    assert said in found.detail
