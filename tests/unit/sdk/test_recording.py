"""What a client asks and is told is written down, before and after; the pipeline reads it."""

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from claudemesh import AsyncMesh, Draft, Mesh, MeshError
from claudemesh.daemon import identity
from claudemesh.daemon.client import Client
from claudemesh.daemon.client.recording import open_recorder
from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.history import read_history
from claudemesh.runtime.keys import KeyPair
from claudemesh.sdk.find import Place
from tests.mesh import a_membership
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond
from tests.unit.sdk.running import Background, Blocked
from tests.unit.sdk.said import LEASED, MESSAGE, queued, stream

Either = Any  # a Mesh, or an AsyncMesh that is waited for

HASH = sha256(b"hi").hexdigest()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    identity.store(tmp_path, KeyPair.generate(), a_membership(tmp_path.name))  # the folder bears its mesh's name
    return tmp_path / "history.jsonl"


@pytest.fixture(params=["sync", "async"])
def mesh(request: pytest.FixtureRequest, daemon: ScriptedDaemon, log: Path) -> Iterator[Any]:
    assert daemon.path is not None
    place = Place("demo", daemon.path, log)
    if request.param == "sync":
        with Mesh.at(place, timeout=5) as mesh:
            yield mesh
    else:
        with Background() as background, Blocked(AsyncMesh.at(place, timeout=5), background) as blocked:
            yield blocked


def lines(log: Path) -> list[dict[str, Any]]:
    read_history([log])  # what is written can be read
    return [json.loads(line) for line in log.read_text().splitlines()]


def told(log: Path) -> list[tuple[object, ...]]:
    return [(one["f"], one["ev"], one.get("id"), one.get("key"), one.get("version")) for one in lines(log)]


@pytest.mark.req("S3")
def test_a_send_is_written_down_before_it_is_made_and_after_its_answer(
    mesh: Either, daemon: ScriptedDaemon, log: Path
) -> None:
    before: list[list[tuple[object, ...]]] = []

    def answer(asked: Asked) -> bytes:
        before.append(told(log))
        return queued(asked)

    daemon.on("POST", "/v1/send", answer)
    mesh.send("bob", "hi", id="m1")
    assert before == [[("send", "invoke", "m1", "bob", None)]]
    invoke, ok = lines(log)
    assert (ok["ev"], ok["id"], ok["body"], ok["process"]) == ("ok", "m1", HASH, str(os.getpid()))
    assert (ok["mesh"], ok["who"]) == (a_membership("demo").mesh_id, a_membership("demo").member_id)
    assert invoke["t"] == invoke["asked"] == ok["asked"] <= ok["t"]


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("answer", "ev"),
    [
        (refuse(404, "unknown_destination"), "fail"),
        (refuse(507, "insufficient_storage"), "fail"),
        (refuse(409, "idempotency_key_reused", conflict="x", fingerprint_prefix="y"), "unknown"),
    ],
)
def test_only_what_rules_out_that_anything_was_done_is_a_refusal(
    mesh: Either, daemon: ScriptedDaemon, log: Path, answer: bytes, ev: str
) -> None:
    daemon.on("POST", "/v1/send", answer)
    with pytest.raises(MeshError):
        mesh.send("bob", "hi", id="m1")
    assert [one["ev"] for one in lines(log)] == ["invoke", ev]


@pytest.mark.req("S3")
def test_each_try_has_its_own_lines_and_a_lost_answer_is_unknown(
    mesh: Either, daemon: ScriptedDaemon, log: Path
) -> None:
    daemon.on("POST", "/v1/send", None, refuse(503, "store_unavailable"), queued)
    mesh.send("bob", "hi", id="m1")
    assert [one["ev"] for one in lines(log)] == ["invoke", "unknown", "invoke", "unknown", "invoke", "ok"]


@pytest.mark.req("S3")
def test_of_a_batch_each_message_has_its_own_outcome(mesh: Either, daemon: ScriptedDaemon, log: Path) -> None:
    outcomes = [
        {"http_status": 202, "client_message_id": "a", "status": "queued"},
        {"http_status": 404, "client_message_id": "b", "code": "unknown_destination"},
    ]
    daemon.on("POST", "/v1/send/batch", respond(200, {"outcomes": outcomes}))
    mesh.send_many([Draft("bob", "hi", id="a"), Draft("eve", "hi", id="b")])
    assert [(one["ev"], one["id"]) for one in lines(log)] == [
        ("invoke", "a"),
        ("invoke", "b"),
        ("ok", "a"),
        ("fail", "b"),
    ]


@pytest.mark.req("S3")
def test_what_is_shown_as_new_is_received_and_what_was_marked_is_not(
    mesh: Either, daemon: ScriptedDaemon, log: Path
) -> None:
    old = {**MESSAGE, "broker_message_id": "b0", "read_at": MESSAGE["received_at"]}
    daemon.on("GET", "/v1/inbox", respond(200, {"messages": [old, MESSAGE], "next_cursor": None}))
    daemon.on("POST", "/v1/inbox/read", respond(200, {"marked": 1}))
    messages = list(mesh.inbox())
    mesh.mark_read(messages[1:])
    assert told(log) == [
        ("recv", "invoke", None, None, None),
        ("recv", "ok", "m1", "b1", 7),
        ("ack", "invoke", None, "b1", None),
        ("ack", "ok", None, "b1", None),
    ]


@pytest.mark.req("S3")
def test_a_lease_is_written_down_with_its_token(mesh: Either, daemon: ScriptedDaemon, log: Path) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED), respond(204))
    daemon.on("POST", "/v1/queue/ack", refuse(409, "lease_lost"))
    work = mesh.queue("jobs").work()
    with pytest.raises(MeshError):
        work.ack()
    assert mesh.queue("jobs").work() is None
    assert told(log) == [
        ("claim", "invoke", None, "queue:jobs", None),
        ("claim", "ok", "m1", "b1", 3),
        ("done", "invoke", None, "b1", 3),
        ("done", "unknown", None, "b1", 3),
        ("claim", "invoke", None, "queue:jobs", None),
        ("claim", "ok", None, None, None),
    ]


@pytest.mark.req("S3")
def test_what_arrives_on_a_stream_is_received_as_of_its_opening(daemon: ScriptedDaemon, log: Path) -> None:
    assert daemon.path is not None
    daemon.on("GET", "/v1/events", stream((1, "message", MESSAGE), (2, "receipt", {"at": 1}), last=False))
    with Mesh.at(Place("demo", daemon.path, log), timeout=5) as mesh, mesh.messages() as arriving:
        assert next(arriving).broker_message_id == "b1"
    (line,) = lines(log)
    assert (line["f"], line["key"]) == ("recv", "b1")
    assert line["asked"] <= line["t"]


@pytest.mark.req("S3")
def test_the_command_lines_client_writes_the_same(daemon: ScriptedDaemon, log: Path) -> None:
    assert daemon.path is not None
    daemon.on("POST", "/v1/topic/post", None, queued)
    daemon.on("GET", "/v1/inbox", None, respond(200, {"messages": [MESSAGE], "next_cursor": None}))
    with Client(daemon.path, recorder=open_recorder(log, daemon.path)) as client:
        client.send("#news", "hi", client_message_id="m1")
        client.inbox()
    assert told(log) == [
        ("send", "invoke", "m1", "#news", None),
        ("send", "unknown", "m1", "#news", None),
        ("send", "invoke", "m1", "#news", None),
        ("send", "ok", "m1", "#news", None),
        ("recv", "invoke", None, None, None),
        ("recv", "unknown", None, None, None),
        ("recv", "invoke", None, None, None),
        ("recv", "ok", "m1", "b1", 7),
    ]


@pytest.mark.req("S3")
def test_the_log_may_be_named_in_the_program_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = tmp_path / "home" / "daemon" / "demo"
    state_dir.mkdir(parents=True, mode=0o700)
    identity.store(state_dir, KeyPair.generate(), a_membership("demo"))
    monkeypatch.setenv("CLAUDEMESH_HISTORY", str(tmp_path / "said"))
    Mesh(home=tmp_path / "home").close()
    Mesh(home=tmp_path / "home", history=tmp_path / "named").close()
    assert (tmp_path / "said").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "named").exists()


def test_a_log_that_cannot_be_written_is_named_before_anything_is_asked(log: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.*cannot be written"):
        open_recorder(log.parent / "nowhere" / "log", log.parent / "sock")
