"""Values out of rows, whichever store selected them: the columns stand in the same order everywhere."""

from collections.abc import Iterable, Sequence
from typing import Any

from claudemesh.broker.model import (
    ConnectionPolicy,
    DeliveryState,
    Member,
    Mesh,
    MessageReceipt,
    Progress,
    RecipientReceipt,
    Role,
    Work,
)
from claudemesh.broker.policy import derive_counts, derive_least, derive_message_state, derive_since
from claudemesh.kernel.fingerprint import Kind

Row = Any  # a tuple, or what a driver calls a record

_STATE, _TIMES = 2, slice(3, 7)  # of a recipient's row


def to_mesh(row: Row) -> Mesh:
    id_, uid, slug, policy, sends_per_window = row
    return Mesh(id=id_, uid=uid, slug=slug, policy=ConnectionPolicy(policy), sends_per_window=sends_per_window)


def to_member(row: Row) -> Member:
    id_, uid, mesh_id, pubkey, name, role, about, joined_at, revoked_at = row
    return Member(
        id=id_,
        uid=uid,
        mesh_id=mesh_id,
        pubkey=pubkey,
        name=name,
        role=Role(role),
        about=about,
        joined_at=joined_at,
        revoked_at=revoked_at,
    )


def to_receipt(message: Row, rows: Sequence[Row]) -> MessageReceipt:
    """Make the receipt of a message, given the rows of its recipients."""
    client_message_id, broker_message_id, history_id, history_available, accepted_at, kind, ref = message
    recipients = [_to_recipient(row) for row in rows]
    state = derive_message_state(recipients)
    since = [derive_since(state, accepted_at, row[_TIMES]) for row in rows if row[_STATE] == state]
    return MessageReceipt(
        client_message_id=client_message_id,
        broker_message_id=broker_message_id,
        history_id=history_id,
        kind=None if kind is None else Kind(kind),
        ref=ref,
        accepted_at=accepted_at,
        history_available=bool(history_available),
        state=state,
        at=max(since, default=accepted_at),  # when the last recipient in it came to it
        counts=derive_counts(recipients),
        recipients=recipients,
    )


def to_progress(rows: Iterable[Row]) -> list[Progress]:
    """Make the short receipts of messages, given how many of the recipients of each are in which state."""
    by_message: dict[tuple[str, str], dict[DeliveryState, tuple[int, int]]] = {}
    for client_message_id, broker_message_id, accepted_at, state, count, *times in rows:
        found = by_message.setdefault((client_message_id, broker_message_id), {})
        found[DeliveryState(state)] = (count, derive_since(DeliveryState(state), accepted_at, times))
    return [_progress(*ids, found) for ids, found in by_message.items()]


def _progress(
    client_message_id: str, broker_message_id: str, found: dict[DeliveryState, tuple[int, int]]
) -> Progress:
    state = derive_least(found)
    return Progress(
        client_message_id=client_message_id,
        broker_message_id=broker_message_id,
        state=state,
        at=found[state][1],
        counts={one: count for one, (count, _) in found.items()},
    )


def to_work(row: Row, lease_token: int, lease_ttl_ms: int) -> Work:
    """Make a leased message of the next row of its queue; a store may have selected more than that."""
    history_id, _, returns, sender_id, broker_message_id, client_message_id, pubkey, name = row[:8]
    body, meta, reply_to, accepted_at = row[8:12]
    return Work(
        sender_id=sender_id,
        broker_message_id=broker_message_id,
        client_message_id=client_message_id,
        history_id=history_id,
        sender_pubkey=pubkey,
        sender_name=name,
        body=body,
        meta=meta,
        reply_to=reply_to,
        accepted_at=accepted_at,
        lease_token=lease_token,
        lease_ttl_ms=lease_ttl_ms,
        returns=returns,
    )


def _to_recipient(row: Row) -> RecipientReceipt:
    name, pubkey, state, delivered_at, read_at, acted_at, dead_at, dead_reason, attempts, handed_over = row
    return RecipientReceipt(
        name=name,
        pubkey=pubkey,
        state=DeliveryState(state),
        delivered_at=delivered_at,
        read_at=read_at,
        acted_at=acted_at,
        dead_at=dead_at,
        dead_reason=dead_reason,
        attempts=attempts,
        handed_over=bool(handed_over),
    )
