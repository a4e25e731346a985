"""Ids: which one a send goes by, what a valid one looks like, and how a fresh one is made.

A key is always scoped (mesh, sender's member id, client_message_id): two members who both call something
`build-42` never meet. The scope is the store's business; this file knows only the text.
"""

from collections.abc import Callable
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
_STEP_SPACE = 1 << ULID_STEP_BITS
_ULID_SPACE = 1 << 128
_LOW_HALF = (1 << 60) - 1


def next_ulid(last: int, wall_ms: int, entropy: int) -> int:
    """Step to an id greater than the last one, whatever the clock did since. Ids are 128-bit numbers here.

    A new millisecond takes `entropy` (80 random bits) as it is. In the same millisecond, or when the clock
    stepped back, the last id is raised by a random step instead of by one, so that neighbours cannot be guessed;
    should the random part overflow, the carry moves the time part on, which keeps the order.
    """
    if wall_ms > last >> ULID_RANDOM_BITS:
        following = wall_ms << ULID_RANDOM_BITS | entropy % _RANDOM_SPACE
    else:
        following = last + 1 + entropy % _STEP_SPACE
    if following >= _ULID_SPACE:
        raise OverflowError("the ULID space is used up")  # the year 10889
    return following


def render_ulid(number: int) -> str:
    # Written out, since a loop takes twice as long; in halves, since small numbers shift faster than large ones.
    high, low, pairs = number >> 60, number & _LOW_HALF, _PAIRS
    return (
        f"{pairs[high >> 60]}{pairs[high >> 50 & 1023]}{pairs[high >> 40 & 1023]}{pairs[high >> 30 & 1023]}"
        f"{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}{pairs[low >> 50]}"
        f"{pairs[low >> 40 & 1023]}{pairs[low >> 30 & 1023]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}"
        f"{pairs[low & 1023]}"
    )
