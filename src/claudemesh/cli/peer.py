"""`peer`: who is there."""

import click

from claudemesh.cli.command import Group, Session


@click.group(cls=Group)
def peer() -> None:
    """Peers: list."""


@peer.command("list")
@click.option("--all", "every", is_flag=True, help="Also who is away.")
@click.pass_obj
def list_peers(session: Session, *, every: bool) -> None:
    """List the members of the mesh that are there."""
    with session.client() as client:
        answer = client.peers(every=every)
    rows = [(entry["name"], entry["status"], entry.get("role"), entry["pubkey"]) for entry in answer["peers"]]
    session.out.document(answer, session.out.table(("name", "status", "role", "public key"), rows))
