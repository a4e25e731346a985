"""`queue`: work that one worker at a time takes, under a lease with a token that fences off whoever lost it."""

from pathlib import Path
from typing import IO, Any, Final

import click

from claudemesh.cli.command import DONE, Group, Session, parse_duration
from claudemesh.cli.render import escape, when
from claudemesh.sdk.notes import is_noted
from claudemesh.wire.names import parse_topic


def parse_name(text: str) -> str:
    return parse_topic(text.removeprefix("queue:"))


NAME = click.argument("name", type=parse_name)
LEASE_TTL_S: Final = 300.0

ID = click.option("--id", "broker_message_id", required=True, metavar="BROKER_ID", help="As `work` printed it.")
TOKEN = click.option(
    "--token", type=int, required=True, metavar="N", help="The lease's token, as `work` printed it."
)

LEDGER: Final = click.option(
    "--ledger",
    "place",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Work through a ledger.",
)


@click.group(cls=Group)
def queue() -> None:
    """Queues: list, create, work, ack, nack, renew. To add work, `send queue:NAME TEXT`."""


@queue.command("list")
@click.pass_obj
def list_queues(session: Session) -> None:
    """List the work queues of the mesh, with how much waits in each and how much is leased."""
    with session.client() as client:
        answer = client.queue_list()
    rows = [(entry["name"], entry["ready"], entry["leased"], entry["created_at"]) for entry in answer["queues"]]
    session.out.document(answer, session.out.table(("queue", "ready", "leased", "made"), rows))


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
@LEDGER
@click.option(
    "--ttl", type=parse_duration, metavar="TIME", help="With a ledger: how long the lease is. [default: 300s]"
)
@click.option("--hold", is_flag=True, help="With a ledger: leave the step leased, for `ack --ledger` to complete.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@click.pass_obj
def work(  # noqa: PLR0913 - its options
    session: Session, name: str, place: Path | None, ttl: float | None, *, hold: bool, command: tuple[str, ...]
) -> int:
    """Take one message under a lease and print it; with --json `null` if there is none.

    With --ledger it is posted into a ledger once, claimed there, printed, completed, and its receipt is sent to
    whoever sent it. A COMMAND is run with the message on its standard input, and its exit status is the outcome.
    """
    if place is None and (command or hold or ttl is not None):
        raise click.UsageError("a COMMAND, --hold and --ttl need --ledger")
    if command and hold:
        raise click.UsageError("a COMMAND completes what it is given, and --hold leaves it: say one of them")
    with session.client() as client:
        if place is None:
            with session.waiting("asking for work"):
                leased = client.queue_work(name)
            session.out.document(leased, _lines(leased))
            return DONE
        from claudemesh.cli.ledgered import work_ledgered  # noqa: PLC0415 - only with a ledger

        return work_ledgered(session, client, name, place, ttl_s=ttl or LEASE_TTL_S, hold=hold, command=command)


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
@click.option("--handed-over", is_flag=True, help="A ledger has it: it is done once you reply, or ack it again.")
@LEDGER
@click.option("--outcome", metavar="OUT", help="With a ledger: how it ended. [default: SUCCESS]")
@click.option(
    "--receipt", type=click.File("rb"), metavar="FILE", help="With a ledger: the receipt, JSON; - is stdin."
)
@click.pass_obj
def ack(  # noqa: PLR0913 - its options
    session: Session,
    name: str,
    broker_message_id: str,
    token: int,
    *,
    handed_over: bool,
    place: Path | None,
    outcome: str | None,
    receipt: IO[bytes] | None,
) -> None:
    """Say that it is done; with --ledger, complete what `work --ledger --hold` took, and answer its sender."""
    if place is None and (outcome or receipt):
        raise click.UsageError("--outcome and --receipt need --ledger")
    if place is not None and handed_over:
        raise click.UsageError("what is in a ledger was handed over already")
    if place is None and is_noted(session.state_dir, broker_message_id):
        raise click.UsageError("it was handed over to a ledger, and is done with its receipt: say --ledger PATH")
    with session.client() as client:
        if place is not None:
            from claudemesh.cli.ledgered import ack_ledgered  # noqa: PLC0415 - only with a ledger

            ack_ledgered(session, client, name, place, (broker_message_id, token), outcome or "SUCCESS", receipt)
            return
        answer = client.queue_ack(name, broker_message_id, token, handed_over=handed_over)
    session.out.document(answer, [f"{'handed over' if handed_over else 'done'}: {escape(broker_message_id)}"])


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
