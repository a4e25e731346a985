"""The list of peers: one entry for each member, with its sessions, and whether what is sent now would be seen."""

from collections.abc import Mapping, Sequence
from typing import Any

from claudemesh.broker.model import Backlog, Member
from claudemesh.broker.policy import SESSIONS_SHOWN
from claudemesh.broker.presence.model import Present

Json = dict[str, Any]


def render_peers(
    members: Sequence[Member], present: Sequence[Present], backlogs: Mapping[int, Backlog] | None
) -> list[Json]:
    """Return those who are there; with backlogs everybody, and how each is reached."""
    leases: dict[int, list[Present]] = {}
    for lease in present:
        leases.setdefault(lease.member_id, []).append(lease)
    return [
        _render(member, leases.get(member.id, []), backlogs)
        for member in members
        if backlogs is not None or member.id in leases
    ]


def _render(member: Member, leases: Sequence[Present], backlogs: Mapping[int, Backlog] | None) -> Json:
    is_full = backlogs is not None
    sessions = [one for one in leases if one.session_pubkey is not None]
    entry: Json = {
        "name": member.name,
        "pubkey": member.pubkey,
        "member_id": member.uid,
        "role": member.role,
        "about": member.about,
        "status": "online" if leases else "offline",
        "sessions": [_render_session(one, is_full=is_full) for one in sessions[-SESSIONS_SHOWN:]],
        "session_count": len(sessions),
    }
    if backlogs is None:
        return entry
    backlog = backlogs.get(member.id, Backlog())
    return (
        entry
        | _render_reach(leases)
        | {
            "waiting": backlog.waiting,
            "unread": backlog.unread,
            "last_read_at": backlog.last_read_at,
        }
    )


def _render_session(lease: Present, *, is_full: bool) -> Json:
    shown: Json = {"session_pubkey": lease.session_pubkey, "since": lease.since, **lease.info}
    if is_full:
        shown |= {
            "transport": "online" if lease.is_online else "offline",
            "lease_left_ms": lease.lease_left_ms,
            "instance_id": lease.instance_id,
        }
    return shown


def _render_reach(leases: Sequence[Present]) -> Json:
    """Say what becomes of a message that is sent to the member now: its daemon takes it, or will, or nobody knows.

    A daemon takes it, not a session that only shows that it is there.
    """
    takers = [one for one in leases if not one.is_presence_only and one.session_pubkey is None]
    if any(one.is_online for one in takers):
        transport, reach = "online", "now"
    elif takers:
        transport, reach = "offline", "on_return"
    else:
        transport, reach = "away", "waits"
    return {
        "transport": transport,
        "reach": reach,
        "lease_left_ms": max((one.lease_left_ms for one in takers), default=None),
    }
