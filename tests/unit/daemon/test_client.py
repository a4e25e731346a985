"""The client asks a daemon once, and a send until it is answered, always under the id of its first try."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.daemon.client import Client, StreamEvent
from claudemesh.kernel.errors import (
    ConfigError,
    ConnectionLost,
    DaemonBusy,
    DeadlineExceeded,
    DependencyError,
    IdempotencyConflict,
    InvalidClientMessageId,
    InvalidRequest,
    NoDaemon,
    PayloadTooLarge,
    StoreFull,
    StoreUnavailable,
    TooManyStreams,
    UnknownDestination,
)
from claudemesh.runtime.home import write_private
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond, scripted_daemon


class Time:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.slept: list[float] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ms += int(seconds * 1000)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    with scripted_daemon(tmp_path / "sock") as daemon:
        yield daemon


@pytest.fixture
def client(daemon: ScriptedDaemon, time: Time) -> Iterator[Client]:
    with Client(daemon.path, 30, clock=time, sleep=time.sleep, jitter=lambda: 0.5) as client:
        yield client


def queued(asked: Asked) -> bytes:
    return respond(202, {"client_message_id": asked.json["client_message_id"], "status": "queued"})


# --- asking --------------------------------------------------------------------------------------------


def test_an_answer_is_returned_with_its_status_and_the_connection_is_kept(
    daemon: ScriptedDaemon, client: Client
) -> None:
    daemon.on("GET", "/v1/health", respond(200, {"connected": True}))
    assert client.request("GET", "/v1/health") == (200, {"connected": True})
    assert client.health() == {"connected": True}
    assert daemon.connections == 1


def test_a_connection_that_the_daemon_closed_meanwhile_is_made_again(
    daemon: ScriptedDaemon, client: Client
) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, None))
    client.queue_work("jobs")
    daemon.stop()
    daemon.start()
    client.queue_work("jobs")
    assert daemon.connections == 2
    assert len(daemon.asked) == 2


def test_without_a_socket_there_is_no_daemon_and_the_error_names_the_command_and_the_mesh(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon, match="`claudemesh daemon up --mesh demo`"):
        Client(tmp_path / "demo" / "sock").health()


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_socket_that_nobody_listens_on_is_no_daemon(tmp_path: Path, *, is_elsewhere: bool) -> None:
    sock = tmp_path / "demo" / "sock"
    sock.parent.mkdir()
    dead_sock = tmp_path / "short.sock" if is_elsewhere else sock
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(dead_sock))
    if is_elsewhere:  # as where the state directory's path is too long for a socket
        write_private(sock, os.fsencode(dead_sock))
    with pytest.raises(NoDaemon, match="`claudemesh daemon up --mesh demo`"):
        Client(sock).send("bob", "hi")


def test_a_file_in_place_of_the_socket_names_it(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    daemon.on("GET", "/v1/health", respond(200, {}))
    named = tmp_path / ("d" * 200) / "sock"
    named.parent.mkdir()
    write_private(named, f"{daemon.path}\n".encode())
    with Client(named) as client:
        assert client.health() == {}


def test_a_path_that_no_socket_can_have_is_explained(tmp_path: Path) -> None:
    write_private(tmp_path / "sock", f"/{'x' * 200}\n".encode())
    with pytest.raises(ConfigError, match="too long"):
        Client(tmp_path / "sock").health()


def test_a_readable_file_in_place_of_the_socket_is_not_believed(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    pointer = tmp_path / "pointer"
    pointer.write_text(str(daemon.path))
    pointer.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Client(pointer).health()


def test_an_error_arrives_as_the_class_it_was(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on(
        "POST",
        "/v1/send",
        refuse(
            409, "idempotency_key_reused", conflict="outbox_done_fingerprint_mismatch", fingerprint_prefix="ab" * 8
        ),
    )
    with pytest.raises(IdempotencyConflict) as caught:
        client.send("bob", "hi", client_message_id="build-42")
    assert caught.value.conflict == "outbox_done_fingerprint_mismatch"
    assert caught.value.extras["client_message_id"] == "build-42"


def test_an_answer_that_is_not_json_is_not_taken_for_one(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on(
        "GET", "/v1/health", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{}}"
    )
    with pytest.raises(DependencyError):
        client.health()


def test_metrics_are_text(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("GET", "/v1/metrics", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nup 1")
    assert client.metrics() == "up 1"


def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_unknown(daemon: ScriptedDaemon) -> None:
    with Client(daemon.path, 0.05) as client:
        daemon.on("GET", "/v1/health", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        with pytest.raises(DeadlineExceeded):
            client.health()


def test_what_only_reads_is_asked_again_when_the_connection_ended(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("GET", "/v1/health", None, respond(200, {"connected": True}))
    assert client.health() == {"connected": True}
    daemon.on("GET", "/v1/health", None)
    with pytest.raises(ConnectionLost):
        client.health()


def test_another_users_process_on_the_socket_is_not_talked_to(
    daemon: ScriptedDaemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(ConfigError, match="another user"):
        client.send("bob", "hi")
    assert daemon.asked == []


def test_what_is_not_a_send_is_never_made_twice(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("POST", "/v1/queue/work", None)
    with pytest.raises(ConnectionLost):
        client.queue_work("jobs")
    assert len(daemon.asked) == 1


def test_a_refusal_before_the_request_was_read_is_heard(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(tmp_path / "sock"))
        listener.listen()

        def refuse_early() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10)
                connection.sendall(refuse(413, "payload_too_large"))

        thread = threading.Thread(target=refuse_early)
        thread.start()
        with Client(tmp_path / "sock") as client, pytest.raises(PayloadTooLarge):
            client.inbox_read(["x" * 4_000_000])
        thread.join(10)


# --- sending -------------------------------------------------------------------------------------------


def test_a_send_has_an_id_before_it_is_sent(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("POST", "/v1/send", queued)
    answer = client.send("bob", "hi", priority="now", meta={"a": 1}, reply_to_id="m1")
    (asked,) = daemon.asked
    assert asked.json == {
        "to": "bob",
        "message": "hi",
        "priority": "now",
        "meta": {"a": 1},
        "reply_to_id": "m1",
        "client_message_id": answer["client_message_id"],
    }
    assert len(answer["client_message_id"]) == 26


def test_a_topic_is_posted_to_and_a_queue_is_sent_to(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("POST", "/v1/send", queued).on("POST", "/v1/topic/post", queued)
    client.send("#ops", "hi")
    client.send("queue:jobs", "hi")
    assert [(asked.path, asked.json.get("topic"), asked.json.get("to")) for asked in daemon.asked] == [
        ("/v1/topic/post", "ops", None),
        ("/v1/send", None, "queue:jobs"),
    ]


@pytest.mark.req("F1")
def test_a_send_whose_answer_was_lost_is_tried_again_under_the_same_id(
    daemon: ScriptedDaemon, client: Client, time: Time
) -> None:
    daemon.on("POST", "/v1/send", None, refuse(503, "store_unavailable", retry="same_id"), queued)
    answer = client.send("bob", "hi")
    assert {asked.json["client_message_id"] for asked in daemon.asked} == {answer["client_message_id"]}
    assert len({asked.body for asked in daemon.asked}) == 1
    assert time.slept == [0.25, 0.5]


def test_retry_after_is_honoured(daemon: ScriptedDaemon, client: Client, time: Time) -> None:
    daemon.on(
        "POST",
        "/v1/send",
        refuse(429, "daemon_busy", retry="after", retry_after_ms=2000),
        refuse(429, "daemon_busy").replace(b"\r\n\r\n", b"\r\nRetry-After: 3\r\n\r\n", 1),
        queued,
    )
    client.send("bob", "hi")
    assert time.slept == [2.25, 3.5]


def test_a_daemon_that_comes_back_meanwhile_gets_the_send(daemon: ScriptedDaemon, time: Time) -> None:
    def go_away(_: Asked) -> None:
        daemon.path.rename(daemon.path.with_name("gone"))

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if len(time.slept) == 3:
            daemon.path.with_name("gone").rename(daemon.path)

    daemon.on("POST", "/v1/send", go_away, queued)
    with Client(daemon.path, 30, clock=time, sleep=sleep, jitter=lambda: 0.5) as client:
        assert client.send("bob", "hi")["status"] == "queued"
    assert len(daemon.asked) == 2


def test_a_send_gives_up_when_its_time_is_over_and_says_under_which_id(
    daemon: ScriptedDaemon, client: Client, time: Time
) -> None:
    daemon.on("POST", "/v1/send", None)
    before = time.now_ms
    with pytest.raises(ConnectionLost) as caught:
        client.send("bob", "hi", client_message_id="mine")
    assert caught.value.extras["client_message_id"] == "mine"
    assert caught.value.retry == "same_id"
    assert time.now_ms - before <= 30_000
    assert len(daemon.asked) > 3


def test_a_daemon_that_never_comes_back_leaves_the_outcome_unknown_not_failed(
    daemon: ScriptedDaemon, client: Client
) -> None:
    def go_away(_: Asked) -> None:
        daemon.path.unlink()

    daemon.on("POST", "/v1/send", go_away)
    with pytest.raises(ConnectionLost):
        client.send("bob", "hi")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuse(404, "unknown_destination", retry="no"), UnknownDestination),
        (refuse(507, "insufficient_storage", retry="same_id"), StoreFull),
    ],
)
def test_what_will_not_pass_by_waiting_is_not_tried_again(
    daemon: ScriptedDaemon, client: Client, answer: bytes, error: type[Exception]
) -> None:
    daemon.on("POST", "/v1/send", answer)
    with pytest.raises(error):
        client.send("bob", "hi")
    assert len(daemon.asked) == 1


def test_each_send_of_a_batch_keeps_its_id_over_tries(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("POST", "/v1/send/batch", None, respond(200, {"outcomes": []}))
    no_id = {"to": "bob", "message": "2", "client_message_id": None}
    client.send_batch([{"to": "bob", "message": "1", "client_message_id": "one"}, no_id])
    first, second = (asked.json["sends"] for asked in daemon.asked)
    assert first == second
    assert first[0]["client_message_id"] == "one"
    assert len(first[1]["client_message_id"]) == 26


def test_an_id_that_is_none_is_refused_before_anything_is_sent(daemon: ScriptedDaemon, client: Client) -> None:
    with pytest.raises(InvalidClientMessageId):
        client.send("bob", "hi", client_message_id="a b")
    with pytest.raises(InvalidRequest):
        client.send("bob", "\udcff")
    assert daemon.asked == []


@pytest.mark.parametrize("code", ["daemon_busy", "store_unavailable"])
def test_retries_end_with_the_error_that_caused_them(daemon: ScriptedDaemon, time: Time, code: str) -> None:
    daemon.on("POST", "/v1/send", refuse(503, code))
    expected = {"daemon_busy": DaemonBusy, "store_unavailable": StoreUnavailable}[code]
    with (
        Client(daemon.path, 1, clock=time, sleep=time.sleep, jitter=lambda: 0.9) as client,
        pytest.raises(expected),
    ):
        client.send("bob", "hi")


# --- everything else that can be asked -------------------------------------------------------------------


def test_each_method_asks_for_what_it_says(daemon: ScriptedDaemon, client: Client) -> None:
    def note(_: Asked) -> bytes:
        return respond(200, {})

    calls = {
        ("GET", "/v1/inbox", "since=2026-01-01T00%3A00%3A00Z&topic=ops&from=bob&mentions=me&limit=5&cursor=e.1"): (
            lambda: client.inbox(
                since="2026-01-01T00:00:00Z", topic="ops", sender="bob", mentions_me=True, limit=5, cursor="e.1"
            )
        ),
        ("GET", "/v1/inbox/search", "q=a%20b%26c"): lambda: client.inbox_search("a b&c"),
        ("POST", "/v1/inbox/read", ""): lambda: client.inbox_read(["m1"]),
        ("GET", "/v1/peers", "all=1"): lambda: client.peers(every=True),
        ("GET", "/v1/trace/a%2Fb%3Fc", ""): lambda: client.trace("a/b?c"),
        ("GET", "/v1/outbox", "failed=1"): lambda: client.outbox_list(failed=True),
        ("GET", "/v1/outbox/r1", ""): lambda: client.outbox_inspect("r1"),
        ("POST", "/v1/outbox/requeue", ""): lambda: client.outbox_requeue("r1", patch={"to": "eve"}, force=True),
        ("POST", "/v1/outbox/drop", ""): lambda: client.outbox_drop("r1"),
        ("POST", "/v1/outbox/prune", ""): client.outbox_prune,
        ("POST", "/v1/topic/create", ""): lambda: client.topic_create("ops"),
        ("POST", "/v1/topic/subscribe", ""): lambda: client.topic_subscribe("ops"),
        ("POST", "/v1/topic/unsubscribe", ""): lambda: client.topic_unsubscribe("ops"),
        ("GET", "/v1/topic/list", ""): client.topic_list,
        ("GET", "/v1/queue/list", ""): client.queue_list,
        ("POST", "/v1/queue/create", ""): lambda: client.queue_create("jobs"),
        ("POST", "/v1/queue/ack", ""): lambda: client.queue_ack("jobs", "m1", 7),
        ("POST", "/v1/queue/nack", ""): lambda: client.queue_nack("jobs", "m1", 7),
        ("POST", "/v1/queue/renew", ""): lambda: client.queue_renew("jobs", "m1", 7),
        ("GET", "/v1/version", ""): client.version,
    }
    for method, path, _ in calls:
        daemon.on(method, path, note)
    for call in calls.values():
        call()
    assert [(asked.method, asked.path, asked.query) for asked in daemon.asked] == list(calls)
    by_path = {asked.path: asked.json for asked in daemon.asked if asked.method == "POST"}
    assert by_path["/v1/queue/ack"] == {"queue": "jobs", "id": "m1", "token": 7}
    client.queue_ack("jobs", "m1", 7, handed_over=True)
    assert daemon.asked[-1].json == {"queue": "jobs", "id": "m1", "token": 7, "handed_over": True}
    assert by_path["/v1/outbox/requeue"]["patch"] == {"to": "eve"}
    assert by_path["/v1/outbox/requeue"]["force"] is True
    assert by_path["/v1/outbox/prune"] == {"confirm": True}


# --- streams -------------------------------------------------------------------------------------------


def chunk(text: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text.encode()), text.encode())


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_events_are_yielded_until_the_daemon_ends_the_stream(daemon: ScriptedDaemon, client: Client) -> None:
    said = (
        STREAM_HEAD
        + chunk(': hello\n\nid: e.1\nevent: message\ndata: {"a":')
        + chunk(' "ü"}\n\nevent: peer_left\n')
    )
    daemon.on("GET", "/v1/events", said + chunk("data: x\ndata: y\n\n") + b"0\r\n\r\n")
    with client.stream(last_event_id="e.0") as stream:
        events = list(stream)
    assert events == [StreamEvent("e.1", "message", '{"a": "ü"}'), StreamEvent("e.1", "peer_left", "x\ny")]
    assert events[0].json == {"a": "ü"}
    assert daemon.asked[0].headers["last-event-id"] == "e.0"


def test_a_stream_that_is_cut_ends_like_one_that_stops(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("GET", "/v1/events", STREAM_HEAD + chunk("data: 1\n\n") + b"5\r\nda")
    with client.stream() as stream:
        events = iter(stream)
        assert next(events).data == "1"
        daemon.drop_connections()
        assert list(events) == []


def test_a_stream_that_is_refused_raises_the_refusal(daemon: ScriptedDaemon, client: Client) -> None:
    daemon.on("GET", "/v1/events", refuse(429, "too_many_streams", retry="after"))
    with pytest.raises(TooManyStreams):
        client.stream()
