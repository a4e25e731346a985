"""`daemon outbox`: the rows that were promised to be sent, for an operator."""

from pathlib import Path
from typing import Any

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import Output, escape

ROW = click.option("--id", "row", required=True, metavar="ROW", help="The row's id, as `list` prints it.")
FORCE = click.option(
    "--force", is_flag=True, help="Even if the broker cannot say whether it arrived: may send twice."
)
PATCH_BYTES_MAX = 1 << 20


@click.group(cls=Group)
def outbox() -> None:
    """Rows: list, inspect, requeue, drop, prune. A used id is never released."""


@outbox.command("list")
@click.option("--failed", is_flag=True, help="Only those that are dead.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("--cursor", metavar="CURSOR", help="Go on where `next_cursor` of another page says.")
@click.pass_obj
def list_rows(session: Session, *, failed: bool, limit: int | None, cursor: str | None) -> None:
    """List rows, oldest first."""
    with session.client() as client:
        answer = client.outbox_list(failed=failed, limit=limit, cursor=cursor)
    out = session.out
    rows = [
        (row["id"], row["status"], row.get("to"), row["attempts"], row["last_error"], row["client_message_id"])
        for row in answer["rows"]
    ]
    lines = out.table(("row", "status", "to", "attempts", "last error", "client message id"), rows)
    if answer.get("next_cursor"):
        lines.append(out.paint(f"more: --cursor {escape(answer['next_cursor'])}", "dim"))
    out.document(answer, lines)


@outbox.command()
@ROW
@click.pass_obj
def inspect(session: Session, row: str) -> None:
    """Show one row, and the chain of rows that it belongs to."""
    with session.client() as client:
        answer = client.outbox_inspect(row)
    session.out.document(answer, _inspected(session.out, answer))


@outbox.command()
@ROW
@click.option("--new-client-id", metavar="ID", help="The id of the new message.")
@click.option("--auto", is_flag=True, help="A fresh id (the default).")
@click.option(
    "--patch-payload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to change, as JSON: any of to, message, meta, priority.",
)
@FORCE
@click.pass_obj
def requeue(  # noqa: PLR0913 - the options of one command
    session: Session, *, row: str, new_client_id: str | None, auto: bool, patch_payload: Path | None, force: bool
) -> None:
    """Give a dead or pending row up, and send its message anew under a new id."""
    if auto and new_client_id is not None:
        raise click.UsageError("--auto and --new-client-id exclude each other")
    patch = None if patch_payload is None else _read_patch(patch_payload)
    with session.client() as client:
        answer = client.outbox_requeue(row, new_client_id=new_client_id, patch=patch, force=force)
    session.out.document(answer, _decision(answer))


@outbox.command()
@ROW
@FORCE
@click.pass_obj
def drop(session: Session, *, row: str, force: bool) -> None:
    """Give a dead or pending row up for good."""
    with session.client() as client:
        answer = client.outbox_drop(row, force=force)
    session.out.document(answer, _decision(answer))


@outbox.command()
@click.option("--confirm", is_flag=True, help="Yes, for good: nothing is forgotten without it.")
@click.pass_obj
def prune(session: Session, *, confirm: bool) -> None:
    """Forget the contents of old done and aborted rows; their ids go on answering as before."""
    if not confirm:
        raise click.UsageError("this forgets contents for good: say --confirm")
    with session.client() as client, session.waiting("pruning"):
        answer = client.outbox_prune()
    session.out.document(answer, [f"pruned: {escape(answer.get('pruned', '?'))}"])


def _read_patch(path: Path) -> dict[str, Any]:
    from claudemesh.cli.messages import parse_meta  # noqa: PLC0415 - only with a patch

    try:
        with path.open("rb") as file:
            text = file.read(PATCH_BYTES_MAX + 1)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--patch-payload") from error
    if len(text) > PATCH_BYTES_MAX:
        raise click.BadParameter(f"{path} is larger than any message", param_hint="--patch-payload")
    return parse_meta(text.decode("utf-8", "replace"))


def _decision(answer: dict[str, Any]) -> list[str]:
    if answer["status"] == "done":
        return [f"the broker had it all along, as {escape(answer.get('broker_message_id'))}: nothing was sent anew"]
    successor = answer.get("client_message_id")
    return [f"given up{f'; sent anew as {escape(successor)}' if successor else ''}"]


def _inspected(out: Output, answer: dict[str, Any]) -> list[str]:
    row = {**answer["row"], "took the place of": ", ".join(answer["ancestors"]) or None}
    width = max(map(len, row))
    return [f"{escape(name):<{width}}  {out.state('-' if value is None else value)}" for name, value in row.items()]
