"""What a client asks and what it is told, line by line: docs/reference/history-log.md.

A line is in the file before the call is made, and one after its answer came: whatever happens in between, it can be
compared with what the stores hold. A body is never written, only its hash.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError, MeshError, NoDaemon, StoreFull
from claudemesh.runtime.clock import SystemClock, read_boot
from claudemesh.wire import problem

Said = dict[str, Any]
Told = Callable[[Any], None]
Note = Callable[[StreamEvent], None]

_DONE: Final = range(200, 400)
_REFUSED: Final = range(400, 500)
_UNSURE: Final = (408, 409)  # it did not arrive in time; the id stands for something, whatever that is


def judge_failure(error: MeshError) -> str:
    """Say whether an error rules out that anything was done."""
    is_refused = error.status in _REFUSED and error.status not in _UNSURE
    return "fail" if is_refused or isinstance(error, NoDaemon | StoreFull) else "unknown"


class Recorder:
    """Writes for one member of one mesh. Threads, tasks and processes may share a file."""

    def __init__(self, path: Path, mesh: str, who: str, clock: Clock) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the history log {path} cannot be written: {error.strerror}") from error
        self._of = {"boot": read_boot(), "mesh": mesh, "who": who}
        self._clock = clock

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @contextmanager
    def call(self, path: str, body: Any) -> Iterator[Told]:  # noqa: ANN401 - JSON is anything
        """Record a call to a route of the daemon. What leaves without an answer stays without one."""
        route = _ROUTES.get(path)
        if route is None:
            yield _not_told
            return
        said = route.read_call(body)
        asked_ms = self._clock.monotonic_ms()
        self._write(route.f, asked_ms, (("invoke", one) for one in said))
        try:
            yield lambda answer: self._write(route.f, asked_ms, route.read_answer(said, answer))
        except MeshError as error:
            self._write(route.f, asked_ms, ((judge_failure(error), one) for one in said))
            raise

    def listening(self) -> Note:
        """Return what is to be told the events of a stream that is about to be opened."""
        asked_ms = self._clock.monotonic_ms()
        return lambda heard: self._write(
            "recv", asked_ms, _unread([heard.json] if heard.event == "message" else [])
        )

    def _write(self, f: str, asked_ms: int, outcomes: Iterable[tuple[str, Said]]) -> None:
        for ev, said in outcomes:
            t_ms = asked_ms if ev == "invoke" else self._clock.monotonic_ms()
            times = {"t": t_ms / 1000, "asked": asked_ms / 1000, "at": self._clock.wall_ms()}
            line = {**times, "process": str(os.getpid()), "ev": ev, "f": f, **self._of, **said}
            os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def open_recorder(path: Path, sock: Path) -> Recorder:
    """Record what is asked of the daemon at a socket, for the member whose it is."""
    from claudemesh.daemon.identity import load_membership  # noqa: PLC0415 - few record

    joined = load_membership(sock.parent)
    return Recorder(path, joined.mesh_id, joined.member_id, SystemClock())


def unrecorded(_path: str, _body: object) -> AbstractContextManager[Told]:
    return nullcontext(_not_told)


def unheard() -> Note:
    return _not_told


def _not_told(_: object) -> None:
    pass


# --- what the routes are about -----------------------------------------------------------------------


def _done(said: list[Said], _: object) -> list[tuple[str, Said]]:
    return [("ok", one) for one in said]


class _Route(NamedTuple):
    """What a call is about, and what became of it."""

    f: str
    read_call: Callable[[Any], list[Said]]
    read_answer: Callable[[list[Said], Any], list[tuple[str, Said]]] = _done


def _send(body: Said) -> list[Said]:
    to = f"#{body['topic']}" if "topic" in body else body["to"]
    return [{"id": body["client_message_id"], "key": to, "body": _hash(body["message"])}]


def _batch(body: Said) -> list[Said]:
    return [said for one in body["sends"] for said in _send(one)]


def _outcomes(said: list[Said], answer: Said) -> list[tuple[str, Said]]:
    return [
        ("ok" if one["http_status"] in _DONE else judge_failure(problem.parse(one["http_status"], one)), sent)
        for sent, one in zip(said, answer["outcomes"], strict=True)
    ]


def _unread(messages: list[Mapping[str, Any]]) -> list[tuple[str, Said]]:
    """Return what is shown as new; what its reader has marked is only looked at again."""
    return [
        (
            "ok",
            {
                "id": one["client_message_id"],
                "key": one["broker_message_id"],
                "version": one["history_id"],
                "body": _hash(one["body"]),
            },
        )
        for one in messages
        if one.get("read_at") is None
    ]


def _claim(_: list[Said], leased: Said | None) -> list[tuple[str, Said]]:
    if leased is None:
        return [("ok", {})]
    ids = {"id": leased["client_message_id"], "key": leased["broker_message_id"]}
    return [("ok", {**ids, "version": leased["lease_token"], "body": _hash(leased["body"])})]


def _hash(text: str) -> str:
    from hashlib import sha256  # noqa: PLC0415 - few record, and most commands start fast

    return sha256(text.encode()).hexdigest()


_INBOX: Final = _Route("recv", lambda _: [{}], lambda _, page: _unread(page["messages"]))

_ROUTES: Final = {
    "/v1/send": _Route("send", _send),
    "/v1/topic/post": _Route("send", _send),
    "/v1/send/batch": _Route("send", _batch, _outcomes),
    "/v1/inbox": _INBOX,
    "/v1/inbox/search": _INBOX,
    "/v1/inbox/read": _Route("ack", lambda body: [{"key": one} for one in body.get("ids") or ()]),
    "/v1/queue/work": _Route("claim", lambda body: [{"key": f"queue:{body['queue']}"}], _claim),
    "/v1/queue/ack": _Route("done", lambda body: [{"key": body["id"], "version": body["token"]}]),
}
