"""An ASGI application called as a server would call it, without a server."""

import json
from dataclasses import dataclass, field
from typing import Any

from claudemesh.asgi.messages import App, Message
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.observe import Observer


class HandClock(Clock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


@dataclass
class Answer:
    sent: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self) -> Any:  # noqa: ANN401 - a document of any form
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        assert problem["retry"] in ("no", "same_id", "after")
        return self.status, problem["code"]


JSON = {"content-type": "application/json"}


def scope_of(
    method: str, target: str, headers: list[tuple[str, str]] | dict[str, str], body: bytes | list[bytes]
) -> dict[str, Any]:
    path, _, query = target.partition("?")
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    if isinstance(body, list):
        pairs.append(("transfer-encoding", "chunked"))
    elif body:
        pairs.append(("content-length", str(len(body))))
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
        "client": ("127.0.0.1", 5),
    }


async def ask(
    app: App,
    method: str,
    target: str,
    body: bytes | list[bytes] = b"",
    headers: list[tuple[str, str]] | dict[str, str] | None = None,
) -> Answer:
    """Ask with a body in one piece or in chunks; after the last of them the client is gone."""
    if headers is None:
        headers = JSON if body else {}
    chunks = body if isinstance(body, list) else [body]
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks)
    ]
    answer = Answer()

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answer.sent.append(message)

    await app(scope_of(method, target, headers, body), receive, send)
    return answer


def recorded(observer: Observer) -> list[Any]:
    """Return a list that everything published from now on is added to."""
    events: list[Any] = []
    observer.subscribe(object, events.append)
    return events
