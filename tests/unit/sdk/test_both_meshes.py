"""Mesh and AsyncMesh against a daemon that says what it is told to: each test runs with both."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claudemesh import AsyncMesh, Draft, Mesh
from claudemesh.kernel.errors import (
    DeadlineExceeded,
    IdempotencyConflict,
    UnknownDestination,
)
from claudemesh.sdk.find import Place
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond
from tests.unit.sdk.running import Background, Blocked
from tests.unit.sdk.said import queued, stream
from tests.unit.sdk.stage import trace

# --- sending -----------------------------------------------------------------------------------------


@pytest.mark.req("C2")
def test_a_send_says_all_that_was_asked_and_returns_a_receipt(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/send", queued)
    receipt = mesh.send("bob", "hi", priority="now", meta={"n": 1}, reply_to="b7", id="build-42")
    assert daemon.asked[0].json == {
        "to": "bob",
        "message": "hi",
        "client_message_id": "build-42",
        "meta": {"n": 1},
        "priority": "now",
        "reply_to_id": "b7",
    }
    assert (receipt.client_message_id, receipt.status, receipt.duplicate, receipt.state) == (
        "build-42",
        "queued",
        False,
        "queued",
    )


def test_a_send_that_was_accepted_before_says_so(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    again = {"client_message_id": "m1", "status": "accepted", "duplicate": True, "broker_message_id": "b1"}
    daemon.on("POST", "/v1/send", respond(200, again | {"history_id": 7}))
    receipt = mesh.send("bob", "hi", id="m1")
    assert (receipt.duplicate, receipt.state, receipt.broker_message_id, receipt.history_id) == (
        True,
        "accepted",
        "b1",
        7,
    )


@pytest.mark.req("C2", "F1")
def test_a_lost_answer_is_asked_for_again_under_the_same_id(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/send", None, None, queued)
    receipt = mesh.send("bob", "hi")
    assert [asked.json["client_message_id"] for asked in daemon.asked] == [receipt.client_message_id] * 3


@pytest.mark.req("F7")
def test_an_error_of_the_daemon_arrives_as_its_class(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    conflict = "outbox_done_fingerprint_mismatch"
    daemon.on(
        "POST",
        "/v1/send",
        refuse(409, "idempotency_key_reused", conflict=conflict, fingerprint_prefix="ab", broker_message_id="b1"),
        refuse(404, "unknown_destination"),
    )
    with pytest.raises(IdempotencyConflict) as caught:
        mesh.send("bob", "hi", id="m1")
    assert (caught.value.conflict, caught.value.extras["broker_message_id"]) == (conflict, "b1")
    with pytest.raises(UnknownDestination):
        mesh.send("bob", "hi")


def test_many_sends_have_each_their_own_outcome(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    outcomes = [
        {"http_status": 202, "client_message_id": "m1", "status": "queued"},
        {"http_status": 404, "code": "unknown_destination", "retry": "no", "detail": "nobody"},
    ]
    daemon.on("POST", "/v1/send/batch", respond(200, {"outcomes": outcomes}))
    receipt, refusal = mesh.send_many([Draft("bob", "1", id="m1"), Draft("nobody", "2")])
    assert receipt.client_message_id == "m1"
    assert isinstance(refusal, UnknownDestination)


def test_a_connection_is_kept_and_made_again_when_the_daemon_closed_it(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200))
    assert mesh.queue("jobs").work() is None
    assert mesh.queue("jobs").work() is None
    assert daemon.connections == 1
    daemon.stop()
    daemon.start()
    assert mesh.queue("jobs").work() is None, "asked once, and not on the connection that had ended"
    assert (daemon.connections, len(daemon.asked)) == (2, 3)


def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_unknown(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    release = threading.Event()

    def late(_: Asked) -> bytes | None:
        release.wait(30)
        return None

    daemon.on("POST", "/v1/send", late)
    with Mesh.at(Place("demo", tmp_path / "sock"), timeout=0.2) as mesh, pytest.raises(DeadlineExceeded) as caught:
        mesh.send("bob", "hi", id="m1")
    assert caught.value.extras["client_message_id"] == "m1"
    with Background() as background:
        asynchronous = AsyncMesh.at(Place("demo", tmp_path / "sock"), timeout=0.2)
        with Blocked(asynchronous, background) as blocked, pytest.raises(DeadlineExceeded):
            blocked.send("bob", "hi")
    release.set()


# --- receipts ----------------------------------------------------------------------------------------


@pytest.mark.req("Q6")
def test_waiting_listens_for_events_and_looks_at_the_trace(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/send", queued)
    moved = threading.Event()

    def say(asked: Asked) -> bytes:
        moved.set()
        return stream((1, "receipt", {"client_message_id": "m1", "at": asked.method}), last=False)

    daemon.on("GET", "/v1/events", say)
    daemon.on(
        "GET",
        "/v1/trace/m1",
        lambda _: respond(200, trace("delivered" if moved.is_set() else "queued", broker_message_id="b1")),
    )
    receipt = mesh.send("bob", "hi", id="m1")
    assert receipt.wait("delivered", timeout=20).state == "delivered"
    assert (receipt.state, receipt.broker_message_id, receipt.status) == ("delivered", "b1", "queued")


@pytest.mark.req("Q6")
def test_running_out_of_time_tells_and_notes_how_far_it_came(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/send", queued)
    daemon.on("GET", "/v1/events", refuse(429, "too_many_streams"))
    daemon.on("GET", "/v1/trace/m1", respond(200, trace("accepted")))
    receipt = mesh.send("bob", "hi", id="m1")
    with pytest.raises(DeadlineExceeded) as caught:
        receipt.wait("read", timeout=0.05)
    assert caught.value.extras["state"] == "accepted"
    assert receipt.state == "accepted"
    assert receipt.trace().steps[1].evidence == "because"


# --- many callers ------------------------------------------------------------------------------------


@pytest.mark.req("C2")
def test_many_threads_share_a_mesh_and_none_gets_anothers_answer(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    daemon.on("POST", "/v1/send", queued)
    with Mesh.at(Place("demo", tmp_path / "sock")) as mesh, ThreadPoolExecutor(16) as pool:
        ids = [f"m{number}" for number in range(400)]
        receipts = [*pool.map(lambda each: mesh.send("bob", "hi", id=each), ids)]
    assert [receipt.client_message_id for receipt in receipts] == ids
    assert daemon.connections <= 16


@pytest.mark.req("C2")
async def test_many_tasks_share_a_mesh_and_none_gets_anothers_answer(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    daemon.on("POST", "/v1/send", queued)
    async with AsyncMesh.at(Place("demo", tmp_path / "sock")) as mesh:
        ids = [f"m{number}" for number in range(1_000)]
        receipts = await asyncio.gather(*(mesh.send("bob", "hi", id=each) for each in ids))
    assert [receipt.client_message_id for receipt in receipts] == ids
    assert daemon.connections <= 64, "however many tasks there are"


async def test_a_task_that_is_cancelled_leaves_no_answer_for_the_next(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    asked, release = threading.Event(), threading.Event()

    def late(one: Asked) -> bytes:
        asked.set()
        release.wait(30)
        return queued(one)

    daemon.on("POST", "/v1/send", late, queued)
    async with AsyncMesh.at(Place("demo", tmp_path / "sock")) as mesh:
        task = asyncio.create_task(mesh.send("bob", "first", id="m1"))
        await asyncio.to_thread(asked.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        receipt = await mesh.send("bob", "second", id="m2")
        release.set()
    assert receipt.client_message_id == "m2"


def test_a_forked_child_does_not_use_its_parents_connection(
    daemon: ScriptedDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.on("POST", "/v1/send", queued)
    with Mesh.at(Place("demo", tmp_path / "sock")) as mesh:
        mesh.send("bob", "hi")
        pid = os.getpid()
        monkeypatch.setattr("claudemesh.sdk.sockets.os.getpid", lambda: pid + 1)
        mesh.send("bob", "hi")
    assert daemon.connections == 2


def test_a_closed_mesh_keeps_nothing_open(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/send", queued)
    mesh.send("bob", "hi")
    mesh.close()
    mesh.close()
    mesh.send("bob", "hi")
    mesh.send("bob", "hi")
    assert daemon.connections == 3
