"""`queue work --ledger` and `queue ack --ledger`: a queue's messages, worked through a ledger."""

from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import IO, TYPE_CHECKING, Any, Final

import click

from claudemesh.cli.command import DONE, FAILED, Session
from claudemesh.cli.ledger import read_json
from claudemesh.cli.render import escape, when
from claudemesh.daemon import identity
from claudemesh.kernel.errors import CassetteUnavailable, MessageCassetteError
from claudemesh.ledger import MessageCassette
from claudemesh.sdk.bridge import LedgerQueue, Task

if TYPE_CHECKING:
    from claudemesh.daemon.client import Client

Json = dict[str, Any]

OUTPUT_SHOWN: Final = 4_000  # of what a command prints, its end goes into the receipt
RENEWALS_PER_TTL: Final = 3
NOT_RUN: Final = 126


def work_ledgered(  # noqa: PLR0913 - the options of `queue work`
    session: Session, client: "Client", name: str, place: Path, *, ttl_s: float, hold: bool, command: Sequence[str]
) -> int:
    if command and which(command[0]) is None:
        raise click.UsageError(f"there is no program {command[0]!r} that can be run")
    with MessageCassette(db_path=place) as ledger:
        queue = _queue(session, client, name, ledger)
        with session.waiting("asking for work"):
            task = queue.take(ttl_s)
        if task is None:
            session.out.document(None, ["nothing to do"])
            return DONE
        if command:
            status, printed = _run(queue, task, command, ttl_s)
            receipt, outcome = {"exit_status": status, "output": printed}, "FAILURE" if status else "SUCCESS"
            receipt_id = queue.complete(task, receipt, outcome)
            document = _document(task) | {"receipt_id": receipt_id, "outcome": outcome, "receipt": receipt}
            session.out.document(document, [*_lines(task), f"{outcome}: receipt {receipt_id}"])
            return DONE
        session.out.document(_document(task), _lines(task))
        if hold:
            return DONE
        try:  # it was printed, and that was the work
            queue.complete(task, {"handed_to": queue.worker_id}, "SUCCESS")
        except MessageCassetteError as error:  # standard output has its one document
            session.out.say(f"{error} [{error.code}]")
            return FAILED
        return DONE


def ack_ledgered(  # noqa: PLR0913, PLR0917 - the options of `queue ack`
    session: Session,
    client: "Client",
    name: str,
    place: Path,
    held: tuple[str, int],
    outcome: str,
    receipt: IO[bytes] | None,
) -> None:
    said = read_json(receipt, "the receipt") if receipt else {}
    with MessageCassette(db_path=place, create=False) as ledger:
        queue = _queue(session, client, name, ledger)
        receipt_id = queue.complete(queue.find(*held), said, outcome)
    document = {"id": held[0], "receipt_id": receipt_id, "outcome": outcome}
    session.out.document(document, [f"{escape(outcome)}: receipt {receipt_id}"])


def _queue(session: Session, client: "Client", name: str, ledger: MessageCassette) -> LedgerQueue:
    member = identity.load_membership(session.state_dir)
    worker_id = f"{member.name}@{session.slug}"
    return LedgerQueue(client, ledger, session.slug, name, worker_id, session.state_dir, session.out.say)


def _run(queue: LedgerQueue, task: Task, command: Sequence[str], ttl_s: float) -> tuple[int, str]:
    from claudemesh.runtime.processes import run_fed  # noqa: PLC0415 - only where there is a command

    def renew() -> None:
        try:
            queue.renew(task, ttl_s)
        except CassetteUnavailable as error:  # busy or failing for now; there are more tries before the lease ends
            queue.warn(f"the lease could not be renewed: {error}")

    try:
        status, printed = run_fed(command, str(task.message.get("body", "")), ttl_s / RENEWALS_PER_TTL, renew)
    except OSError as error:  # a file without `#!`, say; as a shell has it
        return NOT_RUN, str(error)
    return status, printed[-OUTPUT_SHOWN:]


def _document(task: Task) -> Json:
    named = ("client_message_id", "broker_message_id", "from", "body")
    return {
        **{name: task.message.get(name) for name in named},
        "meta": task.message.get("meta", {}),
        "lease_token": task.fencing_token,
        "lease_expires_at": task.lease_expires_at,
        "run_id": task.run_id,
        "step_id": task.step_id,
        "worker_id": task.worker_id,
    }


def _lines(task: Task) -> list[str]:
    lease = f"token {task.fencing_token}  until {when(task.lease_expires_at)}"
    sender = escape(str(task.message.get("from"))[:16])  # of its key; who that is called may change
    return [
        f"{escape(task.message.get('broker_message_id'))}  from {sender}…  {lease}",
        *(f"    {line}" for line in escape(task.message.get("body"), lines=True).split("\n")),
    ]
