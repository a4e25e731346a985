"""The fingerprint of a request: 32 bytes that are equal exactly when two requests ask for the same thing.

One framing for every profile: the fields as UTF-8, joined by single zero bytes, hashed with SHA-256. No field may
hold a zero byte, so no two lists of fields share a frame. A profile is nothing but which fields, in which order;
each begins with the version of its form.

    send          version kind ref reply_to priority meta body_hash
    http_request  version method path query body_hash

Fingerprints are computed once, when a request is accepted, and stored. `docs/vectors/` has examples for authors of
other implementations, with a checker that shares no code with this file.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, NewType

from claudemesh.kernel.canonical import Json, canonicalize
from claudemesh.kernel.errors import InvalidRequest

Fingerprint = NewType("Fingerprint", bytes)

VERSION: Final = "1"
PREFIX_BYTES: Final = 8
MENTIONS: Final = "mentions"  # the one reserved name in meta

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Kind(StrEnum):
    TOPIC = "topic"
    DM = "dm"
    QUEUE = "queue"


class Priority(StrEnum):
    """How the receiver is alerted. It never reorders and never drops."""

    NOW = "now"  # wakes the host
    NEXT = "next"  # shows at the host's next turn
    LOW = "low"  # waits to be pulled


class SendRequest(NamedTuple):
    """What a send asks for, in the words of the fingerprint.

    `ref` is the topic's name, the recipient's ed25519 public key in hex, or the queue's name; `reply_to` is a
    broker message id or empty. A named tuple, since one is made for every send and a frozen dataclass takes twice
    as long.
    """

    kind: Kind
    ref: str
    body: str
    reply_to: str = ""
    priority: Priority = Priority.NEXT
    meta: dict[str, Json] | None = None
    mentions: Sequence[str] = ()


def fingerprint_send(request: SendRequest) -> Fingerprint:
    """Fingerprint a send; InvalidRequest if any of its texts has no stored form."""
    if "\0" in request.body:
        raise InvalidRequest("a body holds a NUL")
    return _digest(
        VERSION,
        request.kind,
        request.ref,
        request.reply_to,
        request.priority,
        _canonical_meta(fold_mentions(request.meta, request.mentions)),
        _body_hash(_utf8("body", request.body)),
    )


def fingerprint_http_request(method: str, path: str, query: str, body: bytes) -> Fingerprint:
    """Fingerprint a write that is kept as it came: the body is bytes and is not interpreted."""
    return _digest(VERSION, method, path, query, _body_hash(body))


def prefix(fingerprint: Fingerprint) -> str:
    """Return the part that is shown to people and put into answers, enough to compare by eye."""
    return fingerprint[:PREFIX_BYTES].hex()


def fold_mentions(meta: dict[str, Json] | None, mentions: Sequence[str]) -> dict[str, Json] | None:
    """Put the mentions, sorted by code point, into `meta.mentions`, so that they count in the fingerprint."""
    if not mentions:
        return meta
    if not all(isinstance(mention, str) for mention in mentions):
        raise InvalidRequest("a mention is a text")
    if meta and MENTIONS in meta:
        raise InvalidRequest(f"meta.{MENTIONS} is reserved: name the mentions in one place only")
    return {**(meta or {}), MENTIONS: [*sorted(mentions)]}


def _canonical_meta(meta: dict[str, Json] | None) -> str:
    if not meta:
        return ""  # absent, null and {} ask for the same thing
    form = canonicalize(meta)
    # The form escapes a NUL, which would pass the framing; but no store on the way would keep it.
    if b"\\u0000" in form and _ESCAPED_NUL.search(form):
        raise InvalidRequest("meta holds a NUL")
    return form.decode()


def _body_hash(body: bytes) -> str:
    return sha256(body).hexdigest()


def _digest(*fields: str) -> Fingerprint:
    framed = "\0".join(fields)
    if framed.count("\0") >= len(fields):
        raise InvalidRequest("a field holds a NUL")
    return Fingerprint(sha256(_utf8("field", framed)).digest())


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a {name} holds a lone surrogate") from error
