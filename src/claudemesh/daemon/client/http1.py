"""A request into bytes, and bytes into a response or into events: HTTP/1.1 without any IO.

Just what a daemon and its client say to each other. It decides when an answer is complete and what it means; the
bytes come from whoever has the socket, so that a synchronous and an asynchronous client can share it.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from claudemesh.kernel.errors import ConnectionLost, DependencyError, InvalidRequest
from claudemesh.wire import problem

HEAD_BYTES_MAX: Final = 64 << 10

Json = dict[str, Any]
Query = Mapping[str, str | int | bool | None]

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def quote(text: str) -> str:
    """Return text as one segment of a path, or one value of a query."""
    try:
        return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest("a text holds what is not Unicode") from error


def render_request(
    method: str,
    path: str,
    body: object = None,
    query: Query | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of a request, head and body in one: two writes would wait for each other."""
    content = b"" if body is None else _encode(body)
    asked = {name: value for name, value in (query or {}).items() if value is not None and value is not False}
    values = "&".join(f"{quote(name)}={quote('1' if v is True else str(v))}" for name, v in asked.items())
    lines = [f"{method} {path}{'?' + values if values else ''} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None or method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    if any(control in line for line in lines for control in "\r\n\0"):
        raise InvalidRequest("a line break in a header or path")
    return "\r\n".join([*lines, "", ""]).encode() + content


def _encode(body: object) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise InvalidRequest(f"this cannot be said in JSON: {error}") from error


class ResponseReader:
    """One response, out of bytes as they come. Feeding it nothing says that no more will come."""

    def __init__(self) -> None:
        self.status = 0  # of the final response, once its head is there
        self.headers: dict[str, str] = {}
        self.is_done = False
        self.is_last = True  # nothing can follow on this connection
        self._buffer = bytearray()
        self._body = bytearray()
        self._has_ended = False
        self._steps = self._read()
        next(self._steps)

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self._has_ended = not data
        if next(self._steps, self) is self:
            self.is_done = True

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        taken, self._body = bytes(self._body), bytearray()
        return taken

    def _read(self) -> Generator[None, None, None]:
        yield
        while self.status < 200:  # noqa: PLR2004 - what comes before the answer is only said on the way
            self._parse_head((yield from self._until(b"\r\n\r\n")))
        length = self.headers.get("content-length", "")
        if self.status in (204, 304):
            length = "0"
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := _number((yield from self._until(b"\r\n")).partition(b";")[0], 16):
                yield from self._copy(size)
                yield from self._until(b"\r\n")
            while (yield from self._until(b"\r\n")):
                pass  # trailers
        elif length:
            yield from self._copy(_number(length.encode(), 10))
        else:
            yield from self._copy_all()
            return
        self.is_last = self.headers.get("connection", "").lower() == "close"

    def _parse_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise DependencyError("what answers on the daemon's socket does not speak HTTP")
        self.status = _number(rest[:3].encode("latin-1"), 10)
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    def _until(self, mark: bytes) -> Generator[None, None, bytes]:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise DependencyError("the daemon's answer has a head without end")
            yield from self._more()
        found = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return found

    def _copy(self, size: int) -> Generator[None, None, None]:
        while size:
            part = self._buffer[:size]
            self._body += part
            del self._buffer[: len(part)]
            size -= len(part)
            if size:
                yield from self._more()

    def _copy_all(self) -> Generator[None, None, None]:
        while True:
            self._body += self._buffer
            self._buffer.clear()
            if self._has_ended:
                return
            yield

    def _more(self) -> Generator[None, None, None]:
        if self._has_ended:
            raise ConnectionLost("the daemon closed the connection before its answer was complete")
        yield


def _number(text: bytes, base: int) -> int:
    try:
        return int(text, base)
    except ValueError as error:
        raise DependencyError("the daemon's answer is not HTTP") from error


class StreamEvent(NamedTuple):
    """One event of a stream; `id` is what a later stream may start after."""

    id: str
    event: str
    data: str

    @property
    def json(self) -> Json:
        parsed = orjson.loads(self.data) if self.data else {}
        return parsed if isinstance(parsed, dict) else {"data": parsed}


class EventReader:
    """Server-sent events, out of bytes as they come."""

    def __init__(self) -> None:
        self._buffer = b""
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            if text:
                self._take(text)
            elif self._data:
                yield StreamEvent(self._id, self._event or "message", "\n".join(self._data))
                self._event, self._data = "", []

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)


def judge_response(status: int, headers: Mapping[str, str], content: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    """Return what the answer holds, None for nothing, or raise the error that it is."""
    is_json = "json" in headers.get("content-type", "")
    try:
        answer = (orjson.loads(content) if is_json else content.decode("utf-8", "replace")) if content else None
    except orjson.JSONDecodeError as error:
        raise DependencyError("the daemon's answer is not JSON") from error
    if status < 400:  # noqa: PLR2004 - HTTP's own range
        return answer
    refusal = problem.parse(status, answer)
    after = headers.get("retry-after", "")
    if after.isdigit():
        refusal.extras.setdefault("retry_after_ms", int(after) * 1000)
    raise refusal
