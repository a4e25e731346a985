"""`queue`: work that one worker at a time takes, under a lease with a token that fences off whoever lost it."""

from typing import Any

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import escape, when
from claudemesh.wire.names import parse_topic


def parse_name(text: str) -> str:
    return parse_topic(text.removeprefix("queue:"))


NAME = click.argument("name", type=parse_name)
ID = click.option("--id", "broker_message_id", required=True, metavar="BROKER_ID", help="As `work` printed it.")
TOKEN = click.option(
    "--token", type=int, required=True, metavar="N", help="The lease's token, as `work` printed it."
)


@click.group(cls=Group)
def queue() -> None:
    """Queues: create, work, ack, nack, renew. To add work, `send queue:NAME TEXT`."""


@queue.command()
@NAME
@click.pass_obj
def create(session: Session, name: str) -> None:
    """Make a queue; one that is there stays as it is."""
    with session.client() as client:
        answer = client.queue_create(name)
    session.out.document(answer, [f"queue:{escape(name)} is there"])


@queue.command()
@NAME
@click.pass_obj
def work(session: Session, name: str) -> None:
    """Take one message under a lease and print it; with --json `null` if there is none."""
    with session.client() as client:
        leased = client.queue_work(name)
    session.out.document(leased, _lines(leased))


def _lines(leased: dict[str, Any] | None) -> list[str]:
    if leased is None:
        return ["nothing to do"]
    sender = leased.get("from_name") or leased.get("from")
    lease = f"token {escape(leased['lease_token'])}  until {when(leased['lease_expires_at'])}"
    return [
        f"{escape(leased['broker_message_id'])}  from {escape(sender)}  {lease}",
        *(f"    {line}" for line in escape(leased["body"], lines=True).split("\n")),
    ]


@queue.command()
@NAME
@ID
@TOKEN
@click.pass_obj
def ack(session: Session, name: str, broker_message_id: str, token: int) -> None:
    """Say that it is done."""
    with session.client() as client:
        answer = client.queue_ack(name, broker_message_id, token)
    session.out.document(answer, [f"done: {escape(broker_message_id)}"])


@queue.command()
@NAME
@ID
@TOKEN
@click.pass_obj
def nack(session: Session, name: str, broker_message_id: str, token: int) -> None:
    """Give it back, for the next worker."""
    with session.client() as client:
        answer = client.queue_nack(name, broker_message_id, token)
    session.out.document(answer, [f"given back: {escape(broker_message_id)}"])


@queue.command()
@NAME
@ID
@TOKEN
@click.pass_obj
def renew(session: Session, name: str, broker_message_id: str, token: int) -> None:
    """Keep it for longer."""
    with session.client() as client:
        answer = client.queue_renew(name, broker_message_id, token)
    until = answer.get("lease_expires_at") if answer else None
    session.out.document(answer, [f"yours until {when(until)}: {escape(broker_message_id)}"])
