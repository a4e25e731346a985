"""Routes: one table for dispatch, for checking what is sent, and for the OpenAPI document.

This file decides which handler is called, and that it is called only with what the route's types say. Everything
else becomes a problem: an error of ours as it is, anything unexpected as a bare 500 that tells the caller nothing
and the observer where it happened.

A path without parameters is found by one look-up, since the hot routes are of that kind.
"""

import re
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from claudemesh.asgi.events import RequestAnswered, RequestFailed
from claudemesh.asgi.limits import leave
from claudemesh.asgi.messages import (
    App,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamResponse,
    problem_response,
    refuse,
    send_response,
    send_stream,
)
from claudemesh.asgi.policy import BODY_BYTES_MAX, judge_form
from claudemesh.kernel.errors import InvalidRequest, MeshError, MethodNotAllowed, NotFound, PayloadTooLarge
from claudemesh.runtime.observe import Observer, stopwatch_s

Handler: TypeAlias = Callable[[Request], Awaitable[Response | StreamResponse]]

DETAIL_CHARS_MAX: Final = 300  # of what a decoder says, which may quote the request
QUERY_FIELDS_MAX: Final = 100
FRAMES_MAX: Final = 8
INTEGER_MAX: Final = 2**53 - 1  # beyond, a float does not say which integer was meant

# Which of two would count is a matter of taste, and an attacker's choice.
_ONCE: Final = frozenset({
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"host",
    b"idempotency-key",
    b"origin",
    b"transfer-encoding",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """A request header that a handler reads, for the document."""

    name: str
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str  # "/v1/trace/{id}": a parameter is one whole segment
    handler: Handler
    summary: str
    request: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    response: Any = None  # a type; None for an empty answer, or one that is not JSON
    content_type: str = "application/json"  # of the answer
    status: int = 200
    statuses: Mapping[int, str] | None = None  # further ones with the same type of answer, and when
    headers: tuple[Header, ...] = ()
    errors: tuple[type[MeshError], ...] = ()
    body_bytes_max: int | None = None  # of requests to this route; None: as to any other


class _Entry:
    """A route made ready: what would otherwise be worked out with every request."""

    __slots__ = ("bytes_max", "decoder", "handler", "pattern", "query", "route")

    def __init__(self, route: Route, body_bytes_max: int) -> None:
        self.route = route
        self.bytes_max = route.body_bytes_max or body_bytes_max
        self.handler = route.handler
        self.query = route.query
        self.decoder = None if route.request is None else msgspec.json.Decoder(route.request)
        parts = re.split(r"\{(\w+)\}", route.path)  # text, name, text, name, …
        named = (f"(?P<{part}>[^/]+)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
        self.pattern = re.compile("".join(named)) if len(parts) > 1 else None


class Router:
    """An ASGI application. WebSockets go to the app of their path, as they are."""

    def __init__(
        self,
        routes: Iterable[Route],
        observer: Observer,
        websockets: Mapping[str, App] | None = None,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._observer = observer
        self._websockets = dict(websockets or {})
        self._exact: dict[str, dict[str, _Entry]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, _Entry]]] = {}
        for route in routes:
            self._add(_Entry(route, body_bytes_max))

    def _add(self, entry: _Entry) -> None:
        path, method = entry.route.path, entry.route.method
        if entry.pattern is None:
            methods = self._exact.setdefault(path, {})
        else:
            _, methods = self._patterns.setdefault(path, (entry.pattern, {}))
        if method in methods:
            raise ValueError(f"two routes for {method} {path}")
        methods[method] = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._open_websocket(scope, receive, send)
            return
        started_s = stopwatch_s() if self._observer.hears(RequestAnswered) else None
        entry: _Entry | None = None
        code = ""
        response: Response | StreamResponse
        try:
            entry, params = self._find(scope["method"], scope["path"])
            response = await entry.handler(await _parse(entry, params, scope, receive))
        except _ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last place to answer it
            known = self._judge(error, scope, entry)
            code, response = known.code, problem_response(known)
        if isinstance(response, Response):
            await send_response(response, scope, send)
        else:
            leave(scope)
            await self._stream(response, entry, scope, receive, send)
        if started_s is not None:
            path = entry.route.path if entry else ""
            seconds = stopwatch_s() - started_s
            self._observer.publish(RequestAnswered(scope["method"], path, response.status, code, seconds))

    def serves(self, method: str, path: str) -> bool:
        """Say whether there is a handler for this, for whatever stands before the routes."""
        try:
            self._find(method, path)
        except MeshError:
            return False
        return True

    def _find(self, method: str, path: str) -> tuple[_Entry, dict[str, str]]:
        methods = self._exact.get(path)
        params: dict[str, str] = {}
        if methods is None:
            methods, params = self._match(path)
        entry = methods.get(method)
        if entry is None:
            raise MethodNotAllowed(allow=sorted(methods))
        return entry, params

    def _match(self, path: str) -> tuple[dict[str, _Entry], dict[str, str]]:
        for pattern, methods in self._patterns.values():
            # A parameter with control characters is nobody's name.
            if (found := pattern.fullmatch(path)) and path.isprintable():
                return methods, found.groupdict()
        raise NotFound("there is nothing at this address")

    def _judge(self, error: Exception, scope: Scope, entry: _Entry | None) -> MeshError:
        """Return what the caller is told; of what was not expected, no more than that."""
        known = error if isinstance(error, MeshError) else MeshError()
        if known.status == MeshError.status:
            path = entry.route.path if entry else ""
            self._observer.publish(RequestFailed(scope["method"], path, type(error).__name__, _frames(error)))
        return known

    async def _stream(
        self, response: StreamResponse, entry: _Entry | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            await send_stream(response, scope, receive, send)
        except Exception as error:
            self._judge(error, scope, entry)
            raise  # the answer has begun: to cut it short is all that is left, and the server does that

    async def _open_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            raise ValueError(f"nothing here speaks {scope['type']}")
        app = self._websockets.get(scope["path"])
        if app is None:
            await refuse(NotFound("there is nothing at this address"), scope, receive, send)
        else:
            await app(scope, receive, send)


# --- what was sent ---------------------------------------------------------------------------------


class _ClientGone(Exception):
    """Nobody waits for an answer any more."""


async def _parse(entry: _Entry, params: dict[str, str], scope: Scope, receive: Receive) -> Request:
    sent = scope["headers"]
    headers = dict(sent)
    if len(headers) != len(sent):
        _refuse_repeats(sent)
    query = None if entry.query is None else _parse_query(scope["query_string"], entry.query)
    bytes_max = entry.bytes_max
    length = headers.get(b"content-length")
    if (length is not None and length != b"0") or b"transfer-encoding" in headers:
        _refuse_by_head(headers, length, bytes_max)
    if entry.decoder is None:
        return Request(scope, headers, params, query, b"", None)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _ClientGone
    raw: bytes = message.get("body", b"")
    if message.get("more_body"):
        raw = await _read_on(raw, bytes_max, receive)
    if len(raw) > bytes_max:
        raise PayloadTooLarge(bytes_max=bytes_max)
    return Request(scope, headers, params, query, raw, _parse_body(raw, entry.decoder))


def _parse_body(raw: bytes, decoder: msgspec.json.Decoder[msgspec.Struct]) -> msgspec.Struct:
    try:
        if not raw.isascii():
            raw.decode()  # the decoder does not look into fields that it skips
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        return _parse_again(raw, decoder.type, error)
    except ValueError as error:
        raise _invalid("the body", error) from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply") from error


def _parse_again(raw: bytes, wanted: type[msgspec.Struct], refusal: msgspec.ValidationError) -> msgspec.Struct:
    """Take 8.0 where 8 is wanted: JSON knows numbers only, and some clients write whole ones like that."""
    try:
        return msgspec.convert(_with_integers(msgspec.json.decode(raw)), wanted)
    except (ValueError, RecursionError):
        raise _invalid("the body", refusal) from refusal


def _with_integers(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_integers(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_integers(member) for member in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= INTEGER_MAX:
        return int(value)
    return value


def _refuse_by_head(headers: Mapping[bytes, bytes], length: bytes | None, bytes_max: int) -> None:
    """Refuse a body before it is read, by what is said of it."""
    refusal = judge_form(headers.get(b"content-type"), headers.get(b"content-encoding"))
    if refusal is not None:
        raise refusal
    if length is not None and int(length) > bytes_max:
        raise PayloadTooLarge(bytes_max=bytes_max)


async def _read_on(begin: bytes, bytes_max: int, receive: Receive) -> bytes:
    """Return the whole body, or as much of it as shows that it is too large."""
    parts, size = [begin], len(begin)
    more = True
    while more and size <= bytes_max:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


def _parse_query(query_string: bytes, query: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
        values = dict(pairs)
        if len(values) != len(pairs):
            raise InvalidRequest("a parameter of the query is given twice")
        return msgspec.convert(values, query, strict=False)
    except ValueError as error:  # of the decoder, or of msgspec
        raise _invalid("the query", error) from error


def _invalid(what: str, error: Exception) -> InvalidRequest:
    # Only a validation error is put in words for the caller; the others quote bytes of what was sent.
    said = str(error) if isinstance(error, msgspec.ValidationError) else "it cannot be read"
    return InvalidRequest(f"{what}: {said}"[:DETAIL_CHARS_MAX])


def _refuse_repeats(sent: Iterable[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in sent:
        if name in seen and name in _ONCE:
            raise InvalidRequest(f"the header {name.decode()} was sent twice")
        seen.add(name)


def _frames(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, BaseExceptionGroup):  # of a stream's tasks: the first is the one that ended the others
        return _frames(error.exceptions[0])
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return (type(error).__name__, *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames))
