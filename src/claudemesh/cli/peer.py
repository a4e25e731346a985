"""`peer`: who is there."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import when

NAMES_MAX: Final = 4  # of sessions, in one line
KEY_CHARS: Final = 8  # of a session that gave no name

HEADS: Final = ("name", "status", "sessions", "role")
MORE_HEADS: Final = ("reach", "waiting", "unread", "last read")


@click.group(cls=Group)
def peer() -> None:
    """Peers: list."""


@peer.command("list")
@click.option("--all", "every", is_flag=True, help="Also who is away, and when each would see a message.")
@click.pass_obj
def list_peers(session: Session, *, every: bool) -> None:
    """List the members of the mesh that are there, with their sessions."""
    with session.client() as client:
        answer = client.peers(every=every)
    if not session.out.as_json and any(entry["status"] == "unknown" for entry in answer["peers"]):
        session.out.say("the broker is not connected: these are the members, and nobody knows who is there")
    heads = (*HEADS, *(MORE_HEADS if every else ()), "public key")
    session.out.document(answer, session.out.table(heads, [_row(entry, every=every) for entry in answer["peers"]]))


def _row(entry: Mapping[str, Any], *, every: bool) -> list[object]:
    row = [entry["name"], entry["status"], _sessions(entry.get("sessions") or ()), entry.get("role")]
    if every:
        row += [_reach(entry), entry.get("waiting"), entry.get("unread"), when(entry.get("last_read_at"))]
    return [*row, entry["pubkey"]]


def _sessions(sessions: Sequence[Mapping[str, Any]]) -> str | None:
    """Say how many there are, and their names."""
    if not sessions:
        return None
    names = [one.get("display_name") or str(one["session_pubkey"])[:KEY_CHARS] for one in sessions]
    rest = f", and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{len(names)}: {', '.join(names[:NAMES_MAX])}{rest}"


def _reach(entry: Mapping[str, Any]) -> str | None:
    """Say in words when a message that is sent now would be seen."""
    match entry.get("reach"):
        case "now":
            return "now: its daemon is connected"
        case "on_return":
            left_s = -(-int(entry.get("lease_left_ms") or 0) // 1000)
            return f"on its return (lease for {left_s} s more)"
        case "waits":
            return "it waits: nobody is there"
        case other:
            return None if other is None else str(other)
