"""A hub with a token."""

import stat
from pathlib import Path

import pytest

from tests.integration.hub_process import Hub


@pytest.fixture
def alone(tmp_path: Path) -> Hub:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Hub(home, f"sqlite:///{home / 'hub.db'}")


def test_with_a_token_file_every_request_needs_the_token(alone: Hub) -> None:
    path = alone.home / "token"
    with alone.serving("--token-file", str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert alone.ask("GET", "/health").status == 200
        for method, where, body in (("GET", "/tasks/", None), ("POST", "/tasks/", {"title": "t"})):
            assert alone.ask(method, where, body).code == "missing_token"
            assert alone.ask(method, where, body, authorization="Bearer " + "x" * 43).code == "bad_token"
        alone.token = path.read_text().strip()
        row = alone.make("/tasks/", {"title": "t"})
        assert alone.listed("/tasks/") == [row]
        assert alone.ask("GET", "/openapi.json").json["security"] == [{"bearer": []}]
        assert alone.token not in (alone.home / "log").read_text()


@pytest.mark.req("R1", "R2")
def test_a_key_is_known_after_the_token_was_changed(alone: Hub) -> None:
    path = alone.home / "token"
    note = {"agent": "a", "summary": "s"}
    with alone.serving("--token-file", str(path)):
        alone.token = path.read_text().strip()
        row = alone.make("/progress/", note, idempotency_key="k")
        again = alone.ask("POST", "/progress/", note, idempotency_key="k", authorization=f"bearer {alone.token}")
        assert (again.json, again.headers["idempotent-replayed"]) == (row, "true")
    path.write_text("n" * 43)
    with alone.serving("--token-file", str(path)):
        alone.token = "n" * 43
        again = alone.ask("POST", "/progress/", note, idempotency_key="k")
        assert (again.json, again.headers["idempotent-replayed"]) == (row, "true")
        assert alone.listed("/progress/") == [row]
