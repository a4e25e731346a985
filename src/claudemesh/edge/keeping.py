"""What of a request and of an answer may be kept on the disk: nothing that looks like a credential.

What is in a body is for `kernel.secrets`; here is what stands around it. A path, a query and a header hold what was
made by chance (ids, entity tags), so that only what has the shape of a credential counts, encoded or not.
"""

from typing import Final
from urllib.parse import unquote

import orjson

from claudemesh.edge.model import Answer
from claudemesh.idempotency.policy import is_credential
from claudemesh.kernel.secrets import find_secret

KEPT_BYTES_MAX: Final = 64 * 1024  # of an answer that is kept for a retry

CREDENTIAL_CHARS_MIN: Final = 8  # what is shorter has no shape, and names nothing secret with a value

_KEPT_HEADERS: Final = frozenset({b"content-type", b"etag", b"location", b"last-modified"})


def holds_credential(text: str) -> bool:
    """Say whether something in a path, a query or a header looks like one, encoded or not."""
    forms = {text, unquote(text)} if "%" in text else {text}
    parts = {part for form in forms for part in (form, *form.split("/"))}
    return any(is_credential(part) for part in parts if len(part) >= CREDENTIAL_CHARS_MIN)


def kept(answer: Answer) -> Answer:
    """Return what of an answer may be kept on the disk: nothing of its body if that is large or holds a secret."""
    headers = tuple(
        (name, value)
        for name, value in answer.headers
        if name in _KEPT_HEADERS and not holds_credential(value.decode("latin-1"))
    )
    return Answer(status=answer.status, headers=headers, body=kept_json(answer.body) or b"")


def kept_json(body: bytes | None) -> bytes | None:
    """Return JSON that may be kept on the disk, or None."""
    if not body or len(body) > KEPT_BYTES_MAX:
        return None
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return None if find_secret(parsed) is not None else body
