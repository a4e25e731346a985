"""Ids: which one a send goes by, what a valid one looks like, and how a fresh one is made.

A key is always scoped (mesh, sender's member id, client_message_id): two members who both call something
`build-42` never meet. The scope is the store's business; this file knows only the text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType

from claudemesh.kernel.errors import InvalidClientMessageId, InvalidRequest

ClientMessageId = NewType("ClientMessageId", str)

CLIENT_MESSAGE_ID_LENGTH_MAX = 128


def parse_client_message_id(text: str) -> ClientMessageId:
    """Accept 1 to 128 visible ASCII characters: they survive every header, log line and shell unchanged."""
    if not 1 <= len(text) <= CLIENT_MESSAGE_ID_LENGTH_MAX:
        raise InvalidClientMessageId(f"length {len(text)} is not within 1 to {CLIENT_MESSAGE_ID_LENGTH_MAX}")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidClientMessageId("only visible ASCII characters are allowed, and no space")
    return ClientMessageId(text)


def derive_client_message_id(header: str | None, body: str | None, mint: Callable[[], str]) -> ClientMessageId:
    """Choose the id of a send: the `Idempotency-Key` header, else the body's `client_message_id`, else a new one.

    Both given and different is a caller that does not know what it asks for, so neither is believed.
    """
    if header is not None and body is not None and header != body:
        raise InvalidRequest("the Idempotency-Key header and client_message_id differ")
    presented = header if header is not None else body
    return parse_client_message_id(mint() if presented is None else presented)


# --- ULIDs -----------------------------------------------------------------------------------------

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]  # ten bits at a time: half the steps
ULID_RANDOM_BITS = 80
ULID_STEP_BITS = 40
_RANDOM_SPACE = 1 << ULID_RANDOM_BITS
_ULID_SPACE = 1 << 128


@dataclass(frozen=True, slots=True)
class UlidState:
    """The last id given, as its 128-bit number; 0 before the first."""

    last: int = 0

    @property
    def text(self) -> str:
        return "".join([_PAIRS[self.last >> shift & 1023] for shift in range(120, -1, -10)])


def next_ulid(state: UlidState, wall_ms: int, entropy: int) -> UlidState:
    """Step to an id greater than the last one, whatever the clock did since.

    A new millisecond takes `entropy` (80 random bits) as it is. In the same millisecond, or when the clock
    stepped back, the last id is raised by a random step instead of by one, so that neighbours cannot be guessed;
    should the random part overflow, the carry moves the time part on, which keeps the order.
    """
    fresh = wall_ms << ULID_RANDOM_BITS | entropy % _RANDOM_SPACE
    if fresh >> ULID_RANDOM_BITS > state.last >> ULID_RANDOM_BITS:
        following = fresh
    else:
        following = state.last + 1 + entropy % (1 << ULID_STEP_BITS)
    if following >= _ULID_SPACE:
        raise OverflowError("the ULID space is used up")  # the year 10889
    return UlidState(following)
