"""The values that a sender and a store exchange. Where a row goes is a value of whoever has the outbox.

Those that are made for every row are structs: a frozen dataclass takes up to ten times as long to make.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from claudemesh.kernel.outbox import OutboxEvent, OutboxState

D = TypeVar("D", bound=Hashable)  # a destination: what order is kept by, and what a backoff holds back

NO_LIMIT: Final = 1 << 31


class ClaimedRow(msgspec.Struct, Generic[D], frozen=True, kw_only=True):
    """A row in the sender's hands."""

    seq: int
    client_message_id: str
    destination: D
    payload: bytes
    enqueued_at: int
    attempts: int
    server_errors: int


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claimed row, applied only if it is still claimed. Below it stands what an answer brought."""

    seq: int
    event: OutboxEvent
    at: int
    next_attempt_at: int = 0
    attempted: bool = True  # the try counts; a row that expired unsent was not tried
    server_failed: bool = False  # the other side failed at this very row while it took others
    last_error: str | None = None


class Backlog(msgspec.Struct, Generic[D], frozen=True):
    """A destination that has rows to send, as found at the start."""

    destination: D
    next_attempt_at: int  # wall ms, of its oldest row


class ClaimAsked(msgspec.Struct, Generic[D], frozen=True, kw_only=True):
    destinations: tuple[D, ...]
    rows_max: int
    bytes_max: int
    accepted_since: int  # wall ms: what is older is overdue
    rows_each_max: int = NO_LIMIT  # of one destination
    only_tried_are_overdue: bool = False  # what was never sent may go at any age


class Claimed(msgspec.Struct, Generic[D], frozen=True):
    rows: list[ClaimedRow[D]]
    more: set[D]  # with rows that may go and did not fit, or too old ones behind those that go
    stuck: set[D]  # whose oldest row is too old


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsRow:
    """A row as an operator's decision is judged on."""

    seq: int
    row_id: str
    client_message_id: str
    state: OutboxState
    to_asked: str
    payload: bytes
    attempts: int
