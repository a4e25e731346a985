"""Leases out of rows, whichever store selected them: the columns stand in the same order everywhere."""

from typing import Any

import msgspec
import orjson

from claudemesh.broker.presence.model import PresenceEvent, Present, StandingLease, What

Row = Any  # a tuple, or what a driver calls a record


class _Named(msgspec.Struct):
    """Of what a session says of itself only what others are told of it: the rest is passed over unread."""

    display_name: str = ""


def to_standing(row: Row) -> StandingLease:
    id_, uid, instance_id, token, seat, lease_until, presence_only = row
    return StandingLease(
        id=id_,
        uid=uid,
        instance_id=instance_id,
        token=token,
        seat=seat,
        lease_until=lease_until,
        is_presence_only=bool(presence_only),
    )


def to_event(row: Row) -> PresenceEvent:
    mesh_id, seq, what, at, member_id, member_uid, name, pubkey, session_pubkey, presence_uid, because, info = row
    return PresenceEvent(
        mesh_id=mesh_id,
        seq=seq,
        what=What(what),
        at=at,
        member_id=member_id,
        member_uid=member_uid,
        name=name,
        pubkey=pubkey,
        session_pubkey=session_pubkey or None,
        presence_uid=presence_uid,
        because=because,
        display_name=msgspec.json.decode(info, type=_Named).display_name if info else "",
    )


def to_present(row: Row, now_ms: int, ttl_ms: int) -> Present:
    member_id, session_pubkey, uid, instance_id, seat, presence_only, lease_until, connected_at, info = row
    return Present(
        member_id=member_id,
        session_pubkey=session_pubkey or None,
        presence_uid=uid,
        instance_id=instance_id,
        is_online=seat is not None,
        is_presence_only=bool(presence_only),
        lease_left_ms=ttl_ms if lease_until is None else max(0, lease_until - now_ms),
        since=connected_at,
        info=read_info(info),
    )


def read_info(text: str | None) -> dict[str, Any]:
    """Read what a session says of itself; of one that is no longer kept, nothing."""
    return orjson.loads(text) if text else {}


def write_info(info: dict[str, Any]) -> str:
    return orjson.dumps(info).decode()
