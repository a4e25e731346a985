"""What the scripted daemon of these tests says."""

import json

from tests.unit.cli.scripted import Asked, respond

MESSAGE = {
    "client_message_id": "m1",
    "broker_message_id": "b1",
    "history_id": 7,
    "from": "ab" * 32,
    "from_name": "ana",
    "topic": None,
    "body": "hello",
    "meta": None,
    "priority": "next",
    "reply_to_id": None,
    "accepted_at": "2026-01-31T12:00:00.000Z",
    "received_at": "2026-01-31T12:00:00.250Z",
    "read_at": None,
    "cursor": "e.1",
}
LEASED = {
    "client_message_id": "m1",
    "broker_message_id": "b1",
    "from": "ab" * 32,
    "from_name": "ana",
    "body": "job",
    "meta": {"n": 1},
    "reply_to_id": None,
    "lease_token": 3,
    "lease_expires_at": "2026-01-31T12:05:00.000Z",
}


def queued(asked: Asked) -> bytes:
    return respond(202, {"client_message_id": asked.json["client_message_id"], "status": "queued"})


def stream(*events: tuple[int, str, dict[str, object]], last: bool = True) -> bytes:
    """Return a stream that ends, unless more is to come."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunk(b": here you are\n\n") + more(*events) + (b"0\r\n\r\n" if last else b"")


def more(*events: tuple[int, str, dict[str, object]]) -> bytes:
    return b"".join(
        chunk(f"id: e.{number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode())
        for number, kind, data in events
    )


def chunk(said: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(said), said)
