"""`peer`: who is there."""

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import when


@click.group(cls=Group)
def peer() -> None:
    """Peers: list."""


@peer.command("list")
@click.option("--all", "every", is_flag=True, help="Also who is away, with what would become of a message to them.")
@click.pass_obj
def list_peers(session: Session, *, every: bool) -> None:
    """List the members of the mesh that are there."""
    with session.client() as client:
        answer = client.peers(every=every)
    entries = answer["peers"]
    if every:
        heads = ("name", "status", "transport", "unread", "last read", "public key")
        rows = [
            (e["name"], e["status"], e.get("transport"), e.get("unread"), when(e.get("last_read_at")), e["pubkey"])
            for e in entries
        ]
        session.out.document(answer, session.out.table(heads, rows))
    else:
        short = [(entry["name"], entry["status"], entry["pubkey"]) for entry in entries]
        session.out.document(answer, session.out.table(("name", "status", "public key"), short))
