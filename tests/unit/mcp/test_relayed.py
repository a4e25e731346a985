"""Writes through a relay, as an agent is told of them; the relay's answers are scripted, its file is real."""

import json
import socket
from dataclasses import replace
from typing import Any, cast

import pytest

from claudemesh.edge.asking import Answered
from claudemesh.edge.http import public_routes
from claudemesh.kernel.write_errors import NotQueueable, OutcomeUnknown
from claudemesh.mcp.parts import Parts
from claudemesh.mcp.relay import Relay
from claudemesh.mcp.relayed import RELAYS_OWN
from claudemesh.mcp.tools import TOOLS, Answer, call
from claudemesh.runtime.observe import Observer
from claudemesh.wire import problem
from tests.unit.cli.scripted import respond, scripted_daemon
from tests.unit.edge.well import WELL

QUEUED = {"queued": True, "outbox_id": "E1", "idempotency_key": "k1", "upstream": "unreachable"}


class Scripted(Relay):
    """Answers every write with the same."""

    def __init__(self, parts: Parts, status: int, json: object, **headers: str) -> None:
        super().__init__(parts.home)
        self._answer = Answered(status, {name.replace("_", "-"): text for name, text in headers.items()}, json)

    async def write(self, *_: object) -> Answered:
        return self._answer


async def write(parts: Parts, status: int, json: object, **headers: str) -> Answer:
    told = replace(parts, relay=Scripted(parts, status, json, **headers))
    return await call(told, TOOLS["write"], {"path": "/progress/", "idempotency_key": "k1"}, Observer())


@pytest.mark.req("C3")
@pytest.mark.parametrize("state", ["queued", "sending", "conflict"])
async def test_a_write_that_waits_is_never_presented_as_done(parts: Parts, state: str) -> None:
    told = (await write(parts, 202, {**QUEUED, "state": state})).data
    assert (told["outcome"], told["is_done"], told["outbox_id"], told["answer"]) == (state, False, "E1", None)
    assert not told["said"].startswith("Done")


@pytest.mark.req("C3")
async def test_what_the_hub_answered_is_done_and_a_replay_is_called_one(parts: Parts) -> None:
    told = (await write(parts, 201, {"id": "1", "summary": "a\x1b"}, idempotent_replayed="true")).data
    assert (told["outcome"], told["is_done"], told["replayed"]) == ("forwarded", True, True)
    assert told["answer"] == {"id": "1", "summary": "a\\x1b"}
    assert (await write(parts, 201, {"id": "1"})).data["replayed"] is False


@pytest.mark.req("C3")
async def test_what_the_hub_answered_is_done_however_deep_it_is_nested(parts: Parts) -> None:
    told = await write(parts, 200, {"x": json.loads("[" * 300 + "]" * 300)})
    assert (told.is_error, told.data["is_done"]) == (False, True)
    assert "nested too deep" in told.text


@pytest.mark.req("C3")
async def test_what_the_relay_answers_by_itself_is_no_write(parts: Parts) -> None:
    assert {route.path for route in public_routes(cast("Any", None))} == RELAYS_OWN
    scripted = replace(parts, relay=Scripted(parts, 202, {"pending": 2}))
    for path in (*RELAYS_OWN, "/repla%79", "/replay?now"):
        told = await call(scripted, TOOLS["write"], {"path": path}, Observer())
        assert (told.is_error, told.data["code"], told.data["retry"]) == (True, "invalid_request", "no")


@pytest.mark.parametrize(
    ("error", "code"),
    [(NotQueueable(reason="online_only"), "not_queueable"), (OutcomeUnknown(), "outcome_unknown")],
)
async def test_what_was_not_sent_and_what_nobody_knows_are_told_apart(parts: Parts, error: Any, code: str) -> None:  # noqa: ANN401
    told = await write(parts, error.status, problem.render(error))
    assert (told.is_error, told.data["code"], told.data["retry"]) == (True, code, error.retry)


async def test_a_refusal_of_the_hub_is_an_error_with_its_status(parts: Parts) -> None:
    told = await write(parts, 404, {"detail": "no task"})
    assert (told.is_error, told.data["retry"], told.data["unknown_status"]) == (True, "no", 404)


class Asked(Relay):
    """Gives a status, and nothing else."""

    def __init__(self, parts: Parts, **changed: object) -> None:
        super().__init__(parts.home)
        self._status = {"running": True, "outbox": "there", **WELL, **changed}

    async def status(self) -> dict[str, Any]:
        return self._status


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, []),
        ({"upstream_state": "refused"}, []),
        ({"pending": 2}, ["2 writes are queued at the relay"]),
        ({"conflicts": 1, "dead": 3}, ["1 writes are in conflict", "3 writes are dead at the relay"]),
        ({"outbox_usable": False}, ["nobody knows what waits at the relay"]),
    ],
)
async def test_what_waits_at_a_relay_keeps_work_from_being_done(
    parts: Parts, changed: dict[str, Any], why: list[str]
) -> None:
    told = (await call(replace(parts, relay=Asked(parts, **changed)), TOOLS["status"], {}, Observer())).data
    without_daemon = told["why"][1:]  # no daemon runs here
    assert [text.partition(":")[0] for text in without_daemon] == why


@pytest.mark.req("C3")
async def test_a_relay_whose_place_is_no_folder_is_not_known_and_the_rest_is_told(parts: Parts) -> None:
    parts.home.edge_dir.write_text("")
    told = await call(parts, TOOLS["status"], {}, Observer())
    assert (told.is_error, told.data["nothing_waits"], told.data["relay"]["is_known"]) == (False, False, False)
    assert "the daemon cannot be asked" in told.data["why"][0]
    assert "the relay's queue is not known" in told.data["why"][1]
    conflicts = await call(parts, TOOLS["conflicts"], {}, Observer())
    assert (conflicts.is_error, conflicts.data["code"]) == (True, "dependency_failed")


async def test_without_a_relay_nothing_is_in_conflict_and_nothing_can_be_decided(parts: Parts) -> None:
    listed = await call(parts, TOOLS["conflicts"], {}, Observer())
    assert (listed.is_error, listed.data["conflicts"]) == (False, [])
    decided = await call(parts, TOOLS["conflicts"], {"id": "E1", "keep": "mine"}, Observer())
    assert (decided.is_error, decided.data["code"]) == (True, "not_found")
    assert (await call(parts, TOOLS["conflicts"], {"keep": "mine"}, Observer())).data["code"] == "invalid_request"
    assert (await call(parts, TOOLS["conflicts"], {"cursor": "x"}, Observer())).data["code"] == "invalid_request"


@pytest.mark.req("C3")
async def test_whoever_listens_at_the_port_of_a_relay_that_is_down_is_sent_neither_write_nor_token(
    parts: Parts,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        squatter.settimeout(0)
        (parts.home.root / "edge.toml").write_text(f'listen = "127.0.0.1:{squatter.getsockname()[1]}"\n')
        told = await call(parts, TOOLS["write"], {"path": "/progress/", "body": {"a": 1}}, Observer())
        assert (told.is_error, "nothing was sent" in told.text) == (True, True)
        with pytest.raises(BlockingIOError):
            squatter.accept()


async def test_a_relay_that_does_not_tell_where_it_listens_is_sent_nothing(parts: Parts) -> None:
    older = {name: value for name, value in WELL.items() if name != "listen"}
    with scripted_daemon(parts.home.ensure_dir(parts.home.edge_dir) / "sock") as relay:
        relay.on("GET", "/status", respond(200, older))
        told = await call(parts, TOOLS["write"], {"path": "/progress/", "body": {"a": 1}}, Observer())
        assert (told.is_error, "nothing was sent" in told.text) == (True, True)


@pytest.mark.parametrize(
    "wrong", [{"path": "/a b"}, {"path": "/a\r\nX: y"}, {"path": "/a\n"}, {"path": "/é"}, {"if_match": "a\r\nX: y"}]
)
async def test_what_no_request_can_hold_is_refused_as_such(parts: Parts, wrong: dict[str, str]) -> None:
    told = await call(parts, TOOLS["write"], {"path": "/progress/", **wrong}, Observer())
    assert (told.data["code"], told.data["retry"]) == ("invalid_request", "no")
