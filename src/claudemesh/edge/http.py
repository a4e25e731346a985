"""The relay's surface: its own few addresses, and everything else passed on.

Requests that are relayed take no route table: what may be asked is for `door` and the policy to say. Whatever is
refused is answered as a problem; of what nobody expected the caller is told nothing more.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from claudemesh.asgi.events import RequestFailed
from claudemesh.asgi.messages import (
    TARGET,
    App,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    json_response,
    problem_response,
    send_response,
)
from claudemesh.asgi.policy import judge_form
from claudemesh.asgi.routes import Route
from claudemesh.edge import door
from claudemesh.edge.metrics import EdgeMetrics, read_figures
from claudemesh.edge.model import Answer, Headers, Source
from claudemesh.edge.operate import Operating
from claudemesh.edge.ports import CountingStore
from claudemesh.edge.reach import Reach
from claudemesh.edge.reads import Reading
from claudemesh.edge.replay import source_headers
from claudemesh.edge.service import Relaying
from claudemesh.edge.sorting import NOWHERE, Asked
from claudemesh.idempotency.policy import derive_source, is_credential
from claudemesh.kernel.errors import (
    MeshError,
    MethodNotAllowed,
    PayloadTooLarge,
    StoreCorrupt,
    StoreUnavailable,
)
from claudemesh.kernel.idempotency import parse_key
from claudemesh.kernel.write_errors import BadIdempotencyKey
from claudemesh.runtime.metrics import CONTENT_TYPE
from claudemesh.runtime.world import World

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
FRAMES_MAX: Final = 8

# Of an upstream's answer: what tells about it and nothing about who asked. Cookies are the relay's, and stay here.
_PASSED_BACK: Final = frozenset({
    b"allow",
    b"cache-control",
    b"content-language",
    b"content-type",
    b"etag",
    b"idempotent-replayed",
    b"last-modified",
    b"link",
    b"location",
    b"retry-after",
    b"vary",
    b"x-relay-queued",
    b"x-relay-stale-since",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the surface speaks for."""

    version: str
    upstream: str  # its address, without what is secret in it
    listen: Callable[[], str]  # where callers reach it: a free port is known only once it serves
    relaying: Relaying
    reading: Reading
    operating: Operating | None  # None while the outbox cannot be used
    outbox: CountingStore | None
    metrics: EdgeMetrics
    reach: Reach
    body_bytes_max: int
    damaged: Callable[[str], None]  # is told when the outbox turns out to be
    world: World


class RelayApp:
    """An ASGI application: the addresses in `own` are the router's, all others are relayed."""

    def __init__(self, parts: Parts, own: frozenset[str], router: App) -> None:
        self._parts = parts
        self._own = own
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["path"] in self._own and TARGET not in scope  # one that names a host is nobody's
        if scope["type"] != "http" or is_own:
            await self._router(scope, receive, send)
            return
        try:
            response = _response(await self._relay(scope, receive))
        except _ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last place to answer it
            response = problem_response(self._judge(error, scope))
        await send_response(response, scope, send)

    async def _relay(self, scope: Scope, receive: Receive) -> Answer:
        path, query = door.check_target(scope)
        method: str = scope["method"]
        headers = tuple(door.forward_headers(scope["headers"]))
        if method == "GET":
            return await self._parts.reading.read(path, query, headers)
        if method not in WRITES:
            raise MethodNotAllowed(allow=["GET", *sorted(WRITES)])
        raw = await self._body(scope, receive)
        return await self._parts.relaying.write(_asked(method, path, query, headers, raw))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        bytes_max = self._parts.body_bytes_max
        door.check_length(scope["headers"], bytes_max)
        sent = dict(scope["headers"])
        raw = await _read(receive, bytes_max)
        if raw:
            refusal = judge_form(sent.get(b"content-type"), None)
            if refusal is not None:
                raise refusal
        return door.decode_body(raw, sent.get(b"content-encoding"), bytes_max)

    def _judge(self, error: Exception, scope: Scope) -> MeshError:
        if isinstance(error, StoreCorrupt):
            self._parts.damaged(str(error))
            return StoreUnavailable("the relay's outbox is damaged, and nothing was done: ask again")
        if isinstance(error, MeshError) and error.status != MeshError.status:
            return error
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
        where = tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        self._parts.world.observer.publish(RequestFailed(scope["method"], "", type(error).__name__, where))
        return error if isinstance(error, MeshError) else MeshError()


class _ClientGone(Exception):
    """Nobody waits for an answer any more."""


async def _read(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise PayloadTooLarge(bytes_max=bytes_max)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _asked(method: str, path: str, query: str, headers: Headers, raw: bytes) -> Asked:
    given = {name: value.decode("latin-1") for name, value in headers if name in _READ_HERE}
    source = NOWHERE
    passed = tuple([header for header in headers if header[0] != _KEY and not header[0].startswith(b"x-source-")])
    if not _SAID.isdisjoint(given):
        source = Source(**{name: _source(given, name) for name in SOURCES})
        passed += source_headers(source)
    body = door.parse_body(raw)
    return Asked(
        method=method,
        path=path,
        query=query,
        body={} if body is None else body,
        raw=raw,
        headers=passed,
        key=_key(given.get(_KEY)),
        if_match=given.get(b"if-match"),
        source=source,
    )


SOURCES: Final = ("agent", "host", "repo", "session")
_KEY: Final = b"idempotency-key"
_SAID: Final = frozenset(b"x-source-" + name.encode() for name in SOURCES)
_READ_HERE: Final = frozenset({_KEY, b"if-match", *_SAID})


def _key(given: str | None) -> str | None:
    if given is None:
        return None
    key = parse_key(given)
    if is_credential(key):
        raise BadIdempotencyKey("the key looks like a credential: keys are written down")
    return key


def _source(given: dict[bytes, str], name: str) -> str | None:
    """Return who says to have sent it; what is no plain name, or looks like a credential, is not passed on."""
    return derive_source(given.get(b"x-source-" + name.encode())) or None


def _response(answer: Answer) -> Response:
    headers = tuple([header for header in answer.headers if header[0] in _PASSED_BACK])
    return Response(answer.status, answer.body, headers)


# --- its own addresses -------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    version: str
    outbox_usable: bool


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the upstream is there, and what waits for it. `pending` is of what was said and is not done."""

    upstream_reachable: bool
    upstream_state: str
    upstream: str
    listen: str  # where it takes requests, whatever its settings say
    pending: int
    blocked: int  # of these, how many wait behind a conflict
    oldest_pending_age_s: int
    conflicts: int
    dead: int
    outbox_usable: bool


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    pending: int


def public_routes(parts: Parts) -> list[Route]:
    """Return what every caller may ask."""

    async def health(_: Request) -> Response:
        return json_response(Health(ok=True, version=parts.version, outbox_usable=parts.outbox is not None))

    async def status(_: Request) -> Response:
        figures = await read_figures(parts.outbox, parts.world.steady_ms())
        return json_response(
            Status(
                upstream_reachable=parts.reach.is_online,
                upstream_state=parts.reach.state.value,
                upstream=parts.upstream,
                listen=parts.listen(),
                pending=figures.pending,
                blocked=figures.blocked,
                oldest_pending_age_s=figures.oldest_pending_age_s,
                conflicts=figures.conflicts,
                dead=figures.dead,
                outbox_usable=parts.outbox is not None,
            )
        )

    async def metrics(_: Request) -> Response:
        return Response(200, await parts.metrics.render(), ((b"content-type", CONTENT_TYPE.encode()),))

    async def replay(_: Request) -> Response:
        parts.reach.poke()
        figures = await read_figures(parts.outbox, parts.world.steady_ms())
        return json_response(Replayed(pending=figures.pending), 202)

    return [
        Route(method="GET", path="/health", handler=health, summary="Whether the relay runs", response=Health),
        Route(
            method="GET", path="/status", handler=status, summary="What waits, and for how long", response=Status
        ),
        Route(
            method="GET",
            path="/metrics",
            handler=metrics,
            summary="Metrics for Prometheus",
            content_type=CONTENT_TYPE,
        ),
        Route(
            method="POST",
            path="/replay",
            handler=replay,
            summary="Ask the upstream at once whether it is there, and send what waits",
            response=Replayed,
            status=202,
        ),
    ]
