"""Stores of keys, and what they share: how an answer is written down."""

from typing import Any

import orjson

from claudemesh.idempotency.model import Headers, KeptResponse, KeyRow, Settlement
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.idempotency import MarkState

Row = Any  # a tuple, or what a driver calls a record


def render_settlement(settlement: Settlement) -> tuple[MarkState, int, bytes | None, bytes | None]:
    state, (status, headers, body) = settlement
    if state is not MarkState.SETTLED:
        return state, status, None, None
    return state, status, _render_headers(headers), body


def _render_headers(headers: Headers) -> bytes:
    return orjson.dumps([[part.decode("latin-1") for part in header] for header in headers])


def to_response(status: int | None, headers: bytes | None, body: bytes | None) -> KeptResponse:
    """Return what was kept of an answer; status 0 of a mark that has none yet."""
    pairs = orjson.loads(headers) if headers else ()
    kept = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
    return KeptResponse(status or 0, kept, body or b"")


def to_key_row(row: Row) -> KeyRow:
    seq, caller, key, method, path, state, status, fingerprint, *rest = row
    return KeyRow(seq, caller, key, method, path, MarkState(state), status, Fingerprint(bytes(fingerprint)), *rest)
