"""An upstream on a real socket that does what a test tells it to: answer, refuse, lose its answer, go away.

It is a small hub in memory: rows with revisions, and keys that are known again, so that a write counts as often as
it was really applied. Or it stands before a real hub, which then does the work. Every answer plants a canary.
"""

import asyncio
import json
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests import canaries
from tests.ports import own_address

WITHIN_S = 30

Headers = list[tuple[str, str]]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  any document
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: Headers
    body: bytes

    def get(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)

    @property
    def key(self) -> str | None:
        return self.get("idempotency-key")

    @property
    def json(self) -> Any:  # noqa: ANN401  any document
        return json.loads(self.body)


@dataclass(frozen=True)
class Say:
    """Answer this, without doing anything."""

    status: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None

    def render(self) -> bytes:
        body = self.raw if self.raw is not None else json.dumps(self.body if self.body is not None else {}).encode()
        planted = (("set-cookie", f"sid={canaries.SET_COOKIE}"), ("content-type", "application/json"))
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in (*planted, *self.headers))]
        return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


class Act(NamedTuple):
    """What is done with a request: whether it is applied, what is sent, and what it waits for before that."""

    applies: bool = True
    says: Say | bytes | None = None  # None: what applying it answers; bytes: sent as they are, and then closed
    loses: bool = False  # the connection is reset instead of an answer
    waits: asyncio.Event | None = None
    leaves: bool = False  # and from then on nobody is there


# A request that is lost on a connection that had been idle is sent once more: so what loses one stays away then.
DO = Act()
LOSE = Act(loses=True, leaves=True)  # applied, and nobody hears of it
DROP = Act(applies=False, loses=True, leaves=True)  # read, and not applied


def say(status: int, body: Any = None, **headers: str) -> Act:  # noqa: ANN401  any document
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Act(applies=False, says=Say(status, body, named))


def problem(status: int, code: str, /, **extra: Any) -> Act:  # noqa: ANN401  any document
    headers = {"retry_after": extra.pop("retry_after")} if "retry_after" in extra else {}
    return say(status, {"code": code, "status": status, **extra}, **headers)


Rule = Callable[[Seen], Act | None]


class Noticing:
    """Something that changes, and that can be waited for."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notice(self) -> None:
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class FakeUpstream(Noticing):
    """Writes are asked of `rule`, then taken from `acts`, one each, then done; reads and probes are just done."""

    def __init__(self, behind: str | None = None) -> None:
        super().__init__()
        self.address = own_address()
        self.behind = behind  # a real hub, which then does the work
        self.acts: deque[Act] = deque()
        self.rule: Rule = lambda _: None
        self.reads: Rule = lambda _: None
        self.seen: list[Seen] = []
        self.applied: Counter[str] = Counter()  # by key
        self.rows: dict[str, dict[str, Any]] = {}  # by path, /tasks/1
        self.log: list[tuple[str, Any]] = []  # what was applied, in order
        self.expiry_s = 30 * 86_400
        self._kept: dict[str, tuple[tuple[str, str, bytes], Say]] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def writes(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method != "GET"]

    def writes_of(self, key: str) -> list[Seen]:
        return [seen for seen in self.writes if seen.key == key]

    def row(self, path: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  any document
        """Have a row, as if somebody else had just written it."""
        standing = self.rows.get(path)
        revision = 1 if standing is None else standing["revision"] + 1
        self.rows[path] = {
            **(standing or {"id": path.rpartition("/")[2], "status": "todo"}),
            **fields,
            "revision": revision,
            "updated_at": f"2026-01-01T00:00:00.{revision:03d}Z",
        }
        return self.rows[path]

    # --- coming and going ----------------------------------------------------------------------------

    async def open(self) -> None:
        if self._server is not None:
            return
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._serve, host, int(port))

    async def close(self) -> None:
        self._leave()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in [*self._open]:
            reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._server is None:  # it was accepted when nobody was to be there any more
            reset(writer)
            return
        self._tasks.add(task)
        self._open.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    self.notice()
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.close()
            self.notice()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        seen = await read_request(reader)
        self.seen.append(seen)
        self.notice()
        act = self._act(seen)
        if act.waits is not None:
            await act.waits.wait()
        answer = await self._apply(seen) if act.applies else None
        says = act.says if act.says is not None else answer
        if act.leaves:
            self._leave()
        if act.loses or says is None:
            reset(writer)
            return False
        writer.write(says if isinstance(says, bytes) else says.render())
        await writer.drain()
        return not isinstance(says, bytes)

    def _act(self, seen: Seen) -> Act:
        if seen.method == "GET":
            return self.reads(seen) or DO
        return self.rule(seen) or (self.acts.popleft() if self.acts else DO)

    # --- the hub in memory ---------------------------------------------------------------------------

    async def _apply(self, seen: Seen) -> Say:
        if self.behind is not None:
            return await self._pass_on(seen)
        if seen.method == "GET":
            return self._read(seen.target.partition("?")[0])
        asked = (seen.method, seen.target, seen.body)
        if seen.key is not None and seen.key in self._kept:
            known, answer = self._kept[seen.key]
            if known != asked:
                return Say(409, {"code": "key_reused"})
            return Say(answer.status, answer.body, (*answer.headers, ("idempotent-replayed", "true")))
        answer = self._write(seen)
        if answer.status < 300:
            self.applied[seen.key or ""] += 1
            self.log.append((f"{seen.method} {seen.target}", seen.json if seen.body else None))
            if seen.key is not None:
                self._kept[seen.key] = asked, answer
        return answer

    def _read(self, path: str) -> Say:
        if path == "/.well-known/idempotency-policy":
            return Say(200, {"expiry_s": self.expiry_s})
        if path in {"/health", "/state/summary"}:
            return Say(200, {"rows": len(self.rows)})
        return Say(200, self.rows[path]) if path in self.rows else Say(404, {"code": "not_found"})

    def _write(self, seen: Seen) -> Say:
        path = seen.target.partition("?")[0].removesuffix("/resolve").removesuffix("/read")
        if path == "/tasks/bulk-status-sync":
            for entry in seen.json["tasks"]:
                self.row(f"/tasks/{entry['id']}", status=entry["status"])
            return Say(200, {"items": []})
        if seen.method == "POST" and path.endswith("/"):
            made = {"id": str(len(self.log)), "revision": 1, **seen.json} if isinstance(seen.json, dict) else {}
            return Say(201, made, (("etag", '"1"'), ("location", f"{path}{len(self.log)}")))
        standing = self.rows.get(path)
        if standing is None:
            return Say(404, {"code": "not_found"})
        fields = seen.json if seen.body else {}
        etag = f'"{standing["revision"]}"'
        if seen.get("if-match") not in {None, etag}:
            return Say(412, {"code": "stale_version", "current": standing})
        for name, column in (("expected_updated_at", "updated_at"), ("expected_status", "status")):
            if fields.get(name) not in {None, standing[column]}:
                return Say(409, {"code": "revision_conflict", "current": standing})
        written = {name: value for name, value in fields.items() if not name.startswith("expected_")}
        previous = {name: standing[name] for name in ("revision", "updated_at", "status")}
        row = self.row(path, **written)
        return Say(200, {**row, "previous": previous}, (("etag", f'"{row["revision"]}"'),))

    async def _pass_on(self, seen: Seen) -> Say:
        assert self.behind is not None
        host, _, port = self.behind.rpartition(":")
        sent = [(name, value) for name, value in seen.headers if name not in {"host", "content-length"}]
        answer = await exchange(
            await asyncio.open_connection(host, int(port)),
            request_bytes(seen.method, seen.target, [("host", self.behind), *sent], seen.body),
        )
        if seen.key is not None and answer.status < 300 and "idempotent-replayed" not in answer.headers:
            self.applied[seen.key] += 1
        kept = tuple((n, v) for n, v in answer.headers.items() if n not in {"content-length", "content-type"})
        return Say(answer.status, headers=kept, raw=answer.body)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close it in such a way that the other side gets an error, not an end."""
    plug = writer.get_extra_info("socket")
    if plug is not None:
        with suppress(OSError):
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# --- HTTP by hand ------------------------------------------------------------------------------------


def request_bytes(method: str, target: str, headers: Headers, body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = [line.partition(":") for line in head[1:] if line]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    length = int(next((value for name, value in headers if name == "content-length"), "0"))
    return Seen(method, target, headers, await reader.readexactly(length))


async def exchange(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], raw: bytes) -> Reply:
    """Send these bytes and read one answer; the connection is closed then."""
    reader, writer = streams
    try:
        async with asyncio.timeout(WITHIN_S):
            with suppress(ConnectionError):  # it may answer before it has read all of it
                writer.write(raw)
                await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
            if "content-length" in headers:
                body = await reader.readexactly(int(headers["content-length"]))
            else:
                body = await reader.read()
            return Reply(int(head[0].split(" ")[1]), headers, body)
    finally:
        writer.close()
