"""What of a request and of an answer is stored, and what is not. No secret is.

Of a request: its key, method and path, who says to have sent it, and a hash of the rest. Of an answer: status, body
and the few headers that describe it. An answer that is too large, that cannot be read, or in which something looks
like a credential is not cut or blacked out, since a replay would then be another answer: only its status is kept.
"""

from collections.abc import Iterable
from typing import Final

import orjson

from claudemesh.idempotency.model import Headers, KeptResponse, Settlement
from claudemesh.kernel.idempotency import MarkState, is_kept
from claudemesh.kernel.secrets import find_secret, find_secret_text

# What describes the body, or the thing that was written. Never a cookie: it is the first caller's alone.
KEPT_HEADERS: Final = frozenset(
    {b"content-type", b"content-language", b"etag", b"last-modified", b"link", b"location", b"vary"}
)
CODING: Final = b"content-encoding"

POLICY_PATH: Final = "/.well-known/idempotency-policy"  # where a client reads what holds for keys
PATH_CHARS_MAX: Final = 1_024
SOURCE_CHARS_MAX: Final = 128
REDACTED: Final = "[redacted]"

_IDENTITY: Final = b"identity"
_RANDOM: Final = "high_entropy"  # nothing gives it away as a credential but that it was not made by hand


def derive_settlement(response: KeptResponse, *, is_too_large: bool = False) -> Settlement:
    """Say what is written of an answer that is kept."""
    if not is_kept(response.status):
        raise ValueError(f"an answer with status {response.status} says nothing final, and is never kept")
    headers = tuple((name.lower(), value) for name, value in response.headers)
    kept = tuple(header for header in headers if header[0] in KEPT_HEADERS)
    if is_too_large or not _is_plain(headers) or _has_secret(kept, response.body):
        return Settlement(MarkState.STATUS_ONLY, KeptResponse(response.status))
    return Settlement(MarkState.SETTLED, KeptResponse(response.status, kept, response.body))


def is_credential(text: str) -> bool:
    """Say whether it looks like one, where something random is expected: a key, an entity tag."""
    found = find_secret_text(text)
    return found is not None and found.kind != _RANDOM


def redact_path(path: str) -> str:
    """Return the path for people to read: without what looks like a credential, and not too long."""
    parts = (REDACTED if find_secret_text(part) else part for part in path.split("/"))
    return "/".join(parts)[:PATH_CHARS_MAX]


def derive_source(value: str | None) -> str:
    """Return what a client says of itself, if it can be stored; else nothing."""
    if value is None or not 1 <= len(value) <= SOURCE_CHARS_MAX:
        return ""
    is_visible = value.isascii() and value.isprintable() and " " not in value
    return value if is_visible and find_secret_text(value) is None else ""


def _is_plain(headers: Headers) -> bool:
    """Say whether the body is what it looks like: in a compressed one nobody finds a secret."""
    return all(value.strip().lower() == _IDENTITY for name, value in headers if name == CODING)


def _has_secret(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    if any(is_credential(value.decode("latin-1")) for _, value in headers):
        return True
    try:
        return find_secret(orjson.loads(body)) is not None
    except orjson.JSONDecodeError:
        return find_secret_text(body.decode(errors="replace")) is not None
