"""`member`: who may be in the mesh, and as what. Owners and admins decide; the broker is asked."""

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import escape


@click.group(cls=Group)
def member() -> None:
    """Members: revoke, role. To see them, `peer list --all`."""


@member.command()
@click.argument("name")
@click.pass_obj
def revoke(session: Session, name: str) -> None:
    """Put a member out of the mesh for good: neither its key nor its name comes back."""
    with session.client() as client:
        answer = client.member_revoke(name)
    session.out.document(answer, [f"{escape(name)} is out"])


@member.command()
@click.argument("name")
@click.argument("role", type=click.Choice(["owner", "admin", "member"]))
@click.pass_obj
def role(session: Session, name: str, role: str) -> None:
    """Make a member an owner, an admin, or neither. Only owners make and unmake owners."""
    with session.client() as client:
        answer = client.member_role(name, role)
    session.out.document(answer, [f"{escape(name)} is {escape(role)} now"])
