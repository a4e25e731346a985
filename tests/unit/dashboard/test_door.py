"""What a bearer of the dashboard may ask, held against all that the daemon serves."""

import re
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from claudemesh.asgi.routes import Route
from claudemesh.daemon.http import daemon_routes
from claudemesh.dashboard.app import dashboard_of
from claudemesh.dashboard.door import _ALLOWED, is_allowed
from claudemesh.runtime.home import Home

WRITES = {
    "/v1/dashboard/outbox/requeue",
    "/v1/dashboard/outbox/drop",
    "/v1/dashboard/relay/decide",
    "/v1/dashboard/logout",
}


@pytest.fixture
def routes(tmp_path: Path) -> list[Route]:
    parts = MagicMock()
    parts.version = "0"
    return daemon_routes(parts, dashboard_of(Home(tmp_path))(parts))


@pytest.mark.req("C4")
def test_of_all_that_changes_anything_it_may_do_four_things(routes: list[Route]) -> None:
    changing = {route.path for route in routes if route.method != "GET"}
    asked = [(route, re.sub(r"\{\w+\}", "x", route.path)) for route in routes if route.method != "GET"]
    allowed = {route.path for route, path in asked if is_allowed(route.method, path)}
    assert allowed == WRITES
    assert {"/v1/send", "/v1/rotate-token", "/v1/dashboard/code", "/v1/member/revoke"} <= changing - allowed


def test_whatever_it_may_ask_is_there(routes: list[Route]) -> None:
    served = {(route.method, route.path) for route in routes}
    assert {(method, path) for method, paths in _ALLOWED.items() for path in paths} <= served


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/health"),
        ("GET", "/v1/outbox/a/b"),
        ("GET", "/v1/health/"),
        ("GET", "/v1/healthz"),
        ("GET", "x/v1/health"),
        ("GET", "/v1/health\n"),
        ("DELETE", "/v1/outbox/x"),
        ("HEAD", "/v1/health"),
        ("", "/v1/health"),
        ("GET", "/v1/metrics"),
        ("GET", "/openapi.json"),
    ],
)
def test_what_is_nearly_on_the_list_is_not(method: str, path: str) -> None:
    assert not is_allowed(method, path)
