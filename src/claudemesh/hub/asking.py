"""What a request asks of the hub: its headers and its body as values, or the reason why it is refused."""

import re
from typing import Final

import msgspec

from claudemesh.asgi.messages import Request
from claudemesh.hub.bodies import Expecting, New
from claudemesh.hub.model import NO_OPINION, Create, Expectation, FieldValue, Origin, Update
from claudemesh.idempotency import MARK, Mark
from claudemesh.idempotency.policy import derive_source
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.write_errors import BadHeader, TooDeep, Unstorable
from claudemesh.wire.instants import parse_instant

DEPTH_MAX: Final = 64

_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_OURS: Final = re.compile(r"[1-9][0-9]{0,17}")
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

_encode: Final = msgspec.json.Encoder().encode


def mark_of(request: Request) -> Mark | None:
    found: Mark | None = request.scope.get(MARK)
    return found


def origin_of(request: Request, mark: Mark | None) -> Origin:
    """Return where the write came from. What looks like a credential is nobody's name."""
    scope, headers = request.scope, request.last_headers
    return Origin(
        scope["method"],
        scope["path"],
        None if mark is None else mark.key,
        _source(headers.get(b"x-source-host")),
        _source(headers.get(b"x-source-agent")),
    )


def _source(said: bytes | None) -> str | None:
    return None if said is None else derive_source(said.decode("latin-1")) or None


# --- bodies ----------------------------------------------------------------------------------------


def creation_of(request: Request) -> Create:
    """Return the fields of a new row as they are stored."""
    body: New = request.body
    refuse_unstorable(request.raw)
    return Create(f"{_encode(body).decode()[:-1]}{body.beside}}}")


def update_of(request: Request) -> Update:
    """Return the fields that change."""
    body: Expecting = request.body
    refuse_unstorable(request.raw)
    values: dict[str, FieldValue] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if value is not msgspec.UNSET and name not in Expecting.__struct_fields__:
            values[name] = value
    if not values:
        raise InvalidRequest("the body changes nothing: name a field that is to change")
    return Update(values)


def refuse_unstorable(raw: bytes) -> None:
    """Refuse what decodes well and still cannot be kept by every store, or read back by every reader."""
    if b"u0000" in raw and _ESCAPED_NUL.search(raw):
        raise Unstorable("a text holds a NUL")
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _depth(msgspec.json.decode(raw)) > DEPTH_MAX:
        raise TooDeep(f"more than {DEPTH_MAX} levels")


def _depth(value: object) -> int:
    """Return how deep it is nested; level by level, since a deep one would overflow a recursion."""
    depth, level = 0, [value]
    while True:
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        if not any(isinstance(one, dict | list) for one in level):
            return depth
        depth, level = depth + 1, below


# --- expectations ----------------------------------------------------------------------------------


def expectation_of(request: Request, said: Expecting | None = None) -> Expectation:
    """Return what the caller takes the row to be, by If-Match and by the body."""
    revisions = parse_if_match(request.header("if-match"))
    by_body = NO_OPINION if said is None else body_expectation(said)
    if revisions is None:
        return by_body
    return Expectation(revisions, by_body.updated_at, by_body.status)


def body_expectation(said: Expecting) -> Expectation:
    if said.expected_updated_at is None and said.expected_status is None:
        return NO_OPINION
    at = None if said.expected_updated_at is None else parse_instant(said.expected_updated_at)
    return Expectation(None, at, said.expected_status)


def parse_if_match(header: str | None) -> tuple[int, ...] | None:
    """Return the revisions that are named; None if any will do. A tag that is not one of ours matches nothing."""
    if header is None or header.strip() == "*":
        return None
    found = [_TAG.fullmatch(part.strip()) for part in header.split(",")]
    if not all(found):
        raise BadHeader('If-Match is not a list of entity tags, such as "3", nor *')
    tags = (tag for tag in found if tag is not None and tag[1] is None)  # a weak one never matches
    return tuple(int(tag[2]) for tag in tags if _OURS.fullmatch(tag[2]))
