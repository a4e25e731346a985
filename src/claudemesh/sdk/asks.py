"""What can be asked of a daemon, and which of it may be asked twice. Nothing here asks.

A send has its id before the first try, so all its tries count once. What only reads, or says again what was said,
may be repeated as well; the rest is asked once, and an answer that was lost is for the caller to look into.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from hashlib import sha256
from typing import Final

import orjson

from claudemesh.daemon.client.http1 import Query, quote
from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.errors import ConnectionLost, Extra, InvalidRequest, MeshError, RateLimited, StoreFull
from claudemesh.kernel.fingerprint import fold_mentions
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.sdk.values import Draft, Json, ReceivedMessage

TOPIC_MARK: Final = "#"
QUEUE_MARK: Final = "queue:"

READ_IDS_MAX: Final = 1_000
BATCH_SENDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 6 << 20  # the daemon takes 8 MiB


class Again(Enum):
    NEVER = auto()
    IF_LOST = auto()  # when the connection was at fault, or the daemon had no hand free
    IF_IT_MAY_PASS = auto()  # whatever the error, unless it would be the same again


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    method: str
    path: str
    body: object = None
    query: Query | None = None
    again: Again = Again.NEVER
    names: Mapping[str, Extra] = field(default_factory=dict)  # what an error is to carry, so that one can try again

    def may_repeat_after(self, error: MeshError) -> bool:
        if self.again is Again.IF_LOST:
            return isinstance(error, ConnectionLost | RateLimited)
        return self.again is Again.IF_IT_MAY_PASS and error.retry != "no" and not isinstance(error, StoreFull)


# --- sending ---------------------------------------------------------------------------------------


def send(draft: Draft, mint: Callable[[], str]) -> Ask:
    body = render_draft(draft, mint)
    return Ask(
        method="POST",
        path="/v1/send",
        body=body,
        again=Again.IF_IT_MAY_PASS,
        names={"client_message_id": body["client_message_id"]},
    )


def render_draft(draft: Draft, mint: Callable[[], str]) -> Json:
    """Return what is said of a send, with its id. InvalidRequest if any of it could not be sent as it is."""
    body: Json = {"to": draft.to, "message": draft.message}
    body["client_message_id"] = mint() if draft.id is None else parse_client_message_id(draft.id)
    if draft.mentions and not draft.to.startswith(TOPIC_MARK):
        raise InvalidRequest("only a message to a #topic mentions others")
    if isinstance(draft.mentions, str):
        raise InvalidRequest("mentions is a list of names, not one text")
    meta = fold_mentions(None if draft.meta is None else dict(draft.meta), draft.mentions)
    if meta:
        canonicalize(meta)  # a NaN would go out as null: what has no JSON form is refused here
        body["meta"] = meta
    optional = {"priority": draft.priority, "reply_to_id": draft.reply_to}
    return body | {name: value for name, value in optional.items() if value is not None}


def send_batches(drafts: Iterable[Draft], mint: Callable[[], str]) -> list[Ask]:
    """Return the drafts as batches that a daemon takes, all checked before the first is sent."""
    return [_batch(bodies) for bodies in _cut([render_draft(draft, mint) for draft in drafts])]


def _cut(bodies: Sequence[Json]) -> Iterator[list[Json]]:
    batch: list[Json] = []
    batch_bytes = 0
    for body in bodies:
        try:
            size = len(orjson.dumps(body)) + 1
        except TypeError as error:
            raise InvalidRequest(f"this cannot be said in JSON: {error}") from error
        if batch and (len(batch) == BATCH_SENDS_MAX or batch_bytes + size > BATCH_BYTES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(body)
        batch_bytes += size
    if batch:
        yield batch


def _batch(bodies: list[Json]) -> Ask:
    return Ask(
        method="POST",
        path="/v1/send/batch",
        body={"sends": bodies},
        again=Again.IF_IT_MAY_PASS,
        names={"client_message_ids": [body["client_message_id"] for body in bodies]},
    )


# --- reading ---------------------------------------------------------------------------------------


def get(path: str, query: Query | None = None) -> Ask:
    return Ask(method="GET", path=path, query=query, again=Again.IF_LOST)


def trace(any_id: str) -> Ask:
    return get(f"/v1/trace/{quote(any_id)}")


def inbox_query(
    *, since: datetime | str | None, topic: str | None, sender: str | None, mentions_me: bool
) -> dict[str, str | None]:
    if isinstance(since, datetime):
        # An instant without a zone is the caller's own time, as Python has it.
        since = since.astimezone(UTC).isoformat()
    return {
        "since": since,
        "topic": None if topic is None else topic_name(topic),
        "from": sender,
        "mentions": "me" if mentions_me else None,
    }


def mark_read(messages: Iterable[ReceivedMessage | str]) -> list[Ask]:
    ids = [message if isinstance(message, str) else message.broker_message_id for message in messages]
    pages = range(0, len(ids), READ_IDS_MAX)
    return [_say("/v1/inbox/read", {"ids": ids[start : start + READ_IDS_MAX]}) for start in pages]


# --- sessions --------------------------------------------------------------------------------------


def register_session(token: str, pid: int, said: Mapping[str, str | Sequence[str] | None]) -> Ask:
    """Register a process as a session. The token makes all tries one."""
    given = {name: value if isinstance(value, str) else list(value) for name, value in said.items() if value}
    return _say("/v1/sessions/register", {"token": token, "pid": pid, **given})


def end_session(token: str) -> Ask:
    """End a session; named by its digest, so that its token stands in no address."""
    name = f"sha256:{sha256(token.encode()).hexdigest()}"
    return Ask(method="DELETE", path=f"/v1/sessions/{quote(name)}", again=Again.IF_LOST)


# --- topics and queues -----------------------------------------------------------------------------


def on_topic(verb: str, topic: str) -> Ask:
    return _say(f"/v1/topic/{verb}", {"topic": topic})


def create_queue(queue: str) -> Ask:
    return _say("/v1/queue/create", {"queue": queue})


def work(queue: str) -> Ask:
    """Ask for work, once: a lost answer may have leased a message, which then comes back by itself."""
    return Ask(method="POST", path="/v1/queue/work", body={"queue": queue})


def ack(queue: str, broker_message_id: str, token: int, *, handed_over: bool = False) -> Ask:
    """Say that work is done, or handed over. Said again it holds again, so it is said until somebody answers."""
    body: Json = {"queue": queue, "id": broker_message_id, "token": token}
    body |= {"handed_over": True} if handed_over else {}
    return Ask(method="POST", path="/v1/queue/ack", body=body, again=Again.IF_IT_MAY_PASS)


def nack(queue: str, broker_message_id: str, token: int) -> Ask:
    body = {"queue": queue, "id": broker_message_id, "token": token}
    return Ask(method="POST", path="/v1/queue/nack", body=body)


def renew(queue: str, broker_message_id: str, token: int) -> Ask:
    return _say("/v1/queue/renew", {"queue": queue, "id": broker_message_id, "token": token})


def topic_name(text: str) -> str:
    return text.removeprefix(TOPIC_MARK)


def queue_name(text: str) -> str:
    return text.removeprefix(QUEUE_MARK)


def _say(path: str, body: Json) -> Ask:
    """Return an ask that changes nothing when it is repeated."""
    return Ask(method="POST", path=path, body=body, again=Again.IF_LOST)
