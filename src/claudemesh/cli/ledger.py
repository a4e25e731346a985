"""`ledger`, and `cortex cassette`: work that is posted, claimed and receipted in one file.

Both names have the same verbs. They differ in the file that is meant when none is named: `cortex` has one in the
repository that is worked in, `claudemesh ledger` one in the home.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import click

from claudemesh.cli.command import DONE, FAILED, Group, Session, parse_duration
from claudemesh.cli.render import escape, render_json
from claudemesh.kernel.errors import CassetteInvalid, MessageCassetteError
from claudemesh.ledger import MessageCassette, policy
from claudemesh.ledger.api import PAGE_DEFAULT, TTL_S_DEFAULT, find_place, render_verdict

Json = dict[str, Any]

_PAGE_MAX: Final = 1_000


def _place(session: Session, db: Path | None) -> Path:
    if db is not None:
        return db
    return find_place() if session.program == "cortex" else session.home.ledger_db


def _open(session: Session, db: Path | None) -> MessageCassette:
    """Open the ledger that is meant. One that is not there is mostly a mistake, and only a post makes one."""
    return MessageCassette(db_path=_place(session, db), create=False)


def _open_or_make(session: Session, db: Path | None) -> MessageCassette:
    place = _place(session, db)
    if db is not None and not db.parent.is_dir():
        raise MessageCassetteError(f"there is no directory {db.parent}")
    if session.program != "cortex" and db is None:
        session.home.ensure()
    if not place.exists():
        session.out.say(f"a new ledger: {place}")
    return MessageCassette(db_path=place)


def read_json(file: IO[bytes], what: str) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise CassetteInvalid(f"{what} is not JSON: {error}") from error


# --- options -------------------------------------------------------------------------------------------

Decorator = Callable[[Any], Any]

_DB: Final = click.option(
    "--db", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH",
    help="The ledger's file. [default: ledger.db in the home; of cortex, CORTEX/_generated/system3.db]",
)  # fmt: skip
_RUN: Final = click.option("--run-id", required=True, metavar="ID", help="The run.")
_STEP: Final = click.option("--step", "step_id", required=True, metavar="ID", help="As `claim` printed it.")
_WORKER: Final = click.option("--worker", "worker_id", required=True, metavar="ID", help="Who holds the lease.")
_TOKEN: Final = click.option(
    "--token", "fencing_token", type=int, required=True, metavar="N", help="As `claim` printed it."
)
_TTL: Final = click.option(
    "--ttl", "ttl_seconds", type=parse_duration, default=f"{TTL_S_DEFAULT}s", show_default=True, metavar="TIME",
    help="How long the lease is: seconds, or such as 500ms, 30s, 5m.",
)  # fmt: skip


def _verbs(name: str) -> Group:
    return Group(name, help="Work that is claimed once, receipted once and provable for ever.")


ledger: Final = _verbs("ledger")
cassette: Final = _verbs("cassette")


def _verb(function: Callable[..., Any], *options: Decorator) -> None:
    """Give both groups a verb of the function's name."""
    wrapped: Callable[..., Any] = click.pass_obj(function)
    for option in (_DB, *reversed(options)):
        wrapped = option(wrapped)
    command = click.command(function.__name__.rstrip("_"), cls=ledger.command_class)(wrapped)
    for group in (ledger, cassette):
        group.add_command(command)


# --- verbs ---------------------------------------------------------------------------------------------


def verify(
    session: Session, db: Path | None, run_id: str | None, head: IO[bytes] | None, pubkey: str | None
) -> int:
    """Check schema, rows, chain and leases; exit 1 if anything is wrong."""
    from claudemesh.ledger import heads  # noqa: PLC0415 - only where one is given

    if pubkey is not None and head is None:
        raise click.UsageError("--pubkey is the key of a --head")
    expected = heads.parse(head.read(), pubkey) if head else None
    with _open(session, db) as opened, session.waiting("verifying the ledger"):
        issues = opened.find_issues(run_id, expected)
    sys.stderr.writelines(f"{escape(issue)}\n" for issue in issues)
    sys.stderr.write(f"{render_verdict(issues)}\n")
    session.out.document({"ok": not issues, "issues": issues}, [])
    return FAILED if issues else DONE


_verb(
    verify,
    click.option("--run-id", metavar="ID", help="Heed only this run's leases. [default: those of all runs]"),
    click.option(
        "--head", type=click.File("rb"), metavar="FILE", help="A head from earlier that the chain must still have."
    ),
    click.option("--pubkey", metavar="HEX", help="The key that the head must be signed with. [default: any]"),
)


def post(  # noqa: PLR0913, PLR0917 - its options
    session: Session,
    db: Path | None,
    file: IO[bytes],
    run_id: str,
    source: str,
    idempotency_key: str | None,
) -> None:
    """Post a message from a JSON file: one job of one step, or as many as its `jobs` says."""
    session.as_json = (
        True  # here `--json FILE` is the payload, as it always was, and what is printed is JSON anyway
    )
    payload = read_json(file, "the payload")
    policy.parse_jobs(payload)  # what is refused makes no ledger
    policy.check_source(source)
    with _open_or_make(session, db) as opened:
        message_id, job_id = opened.post_message(payload, run_id, source, idempotency_key)
    session.out.document({"message_id": message_id, "job_id": job_id}, [])


_verb(
    post,
    click.option(
        "--json", "file", type=click.File("rb"), required=True, metavar="FILE", help="The payload; - is stdin."
    ),
    _RUN,
    click.option("--source", required=True, metavar="SRC", help="USER, PLANNER, SYSTEM or WORKER."),
    click.option("--idempotency-key", metavar="KEY", help="The same key again is the same message."),
)


def claim(session: Session, db: Path | None, run_id: str, worker_id: str, ttl_seconds: float) -> None:
    """Claim the first pending step of a run."""
    with _open(session, db) as opened:
        step = opened.claim_step(run_id, worker_id, ttl_seconds)
    head = f"{escape(step['step_id'])}  token {step['fencing_token']}  until {step['lease_expires_at']}"
    session.out.document(step, [head, f"    {escape(render_json(step['payload']))}"])


_verb(claim, _RUN, _WORKER, _TTL)


def complete(  # noqa: PLR0913, PLR0917 - its options
    session: Session,
    db: Path | None,
    run_id: str,
    step_id: str,
    worker_id: str,
    fencing_token: int,
    receipt: IO[bytes],
    outcome: str,
) -> None:
    """Complete a step with a receipt from a JSON file."""
    said = read_json(receipt, "the receipt")
    with _open(session, db) as opened:
        receipt_id = opened.complete_step(run_id, step_id, worker_id, fencing_token, said, outcome)
    session.out.document(
        {"receipt_id": receipt_id, "step_id": step_id, "outcome": outcome}, [f"receipt {receipt_id}"]
    )


_verb(
    complete,
    _RUN,
    _STEP,
    _WORKER,
    _TOKEN,
    click.option(
        "--receipt", type=click.File("rb"), required=True, metavar="FILE", help="The receipt; - is stdin."
    ),
    click.option("--outcome", required=True, metavar="OUT", help="SUCCESS, FAILURE or ABORTED."),
)


def requeue(session: Session, db: Path | None, run_id: str, step_id: str | None) -> None:
    """Make steps pending again whose leases expired: one, or all of the run."""
    with _open(session, db) as opened:
        if step_id is None:
            requeued = opened.requeue_expired(run_id)
        else:
            requeued = {step_id: opened.requeue_step(run_id, step_id)}
    rows = [{"step_id": step, "requeue_id": record} for step, record in requeued.items()]
    lines = [f"requeued {escape(row['step_id'])}" for row in rows] or ["nothing has expired"]
    session.out.document({"requeued": rows}, lines)


_verb(
    requeue,
    _RUN,
    click.option(
        "--step",
        "step_id",
        metavar="ID",
        help="Only this one. [default: every step of the run whose lease expired]",
    ),
)


def renew(  # noqa: PLR0913, PLR0917 - its options
    session: Session,
    db: Path | None,
    run_id: str,
    step_id: str,
    worker_id: str,
    fencing_token: int,
    ttl_seconds: float,
) -> None:
    """Hold a live lease longer."""
    with _open(session, db) as opened:
        until = opened.renew_lease(run_id, step_id, worker_id, fencing_token, ttl_seconds)
    session.out.document({"step_id": step_id, "lease_expires_at": until}, [f"yours until {until}"])


_verb(renew, _RUN, _STEP, _WORKER, _TOKEN, _TTL)


def upgrade(session: Session, db: Path | None) -> None:
    """Bring a ledger of version 1 to version 2; live leases stay."""
    with _open(session, db) as opened, session.waiting("upgrading the ledger"):
        had, has = opened.upgrade()
    line = f"version {has} already" if had == has else f"version {had} is version {has} now"
    session.out.document({"from": had, "to": has}, [line])


_verb(upgrade)


def head(session: Session, db: Path | None) -> None:
    """Print a signed head of the chain, as JSON, to be kept where the ledger is not."""
    from claudemesh.ledger import heads  # noqa: PLC0415 - as in `verify`
    from claudemesh.runtime.clock import SystemClock  # noqa: PLC0415 - as above
    from claudemesh.wire.instants import render_instant  # noqa: PLC0415 - as above

    with _open(session, db) as opened:
        ledger_id, end = opened.read_end()
    session.home.ensure()
    keys, at = heads.signing_key(session.home.root / "ledger.key"), render_instant(SystemClock().wall_ms())
    session.as_json = True  # it is for a program to read, whoever keeps it
    session.out.document(heads.sign(keys, ledger_id, end.seq, end.hash, at), [])


_verb(head)


def list_(  # noqa: PLR0913, PLR0917 - its options
    session: Session, db: Path | None, run_id: str | None, status: str | None, after: int, limit: int
) -> None:
    """List steps in the order they were posted, with how they stand."""
    with _open(session, db) as opened:
        found = opened.list_steps(run_id, status, after=after, limit=limit + 1)
    steps = found[:limit]
    more = steps[-1]["place"] if len(found) > limit else None
    shown = ("run_id", "step_id", "intent", "status", "outcome", "lease_owner", "fencing_token")
    rows = [(*(step[name] for name in shown), _lease(step)) for step in steps]
    lines = session.out.table(("run", "step", "intent", "status", "outcome", "worker", "token", "lease"), rows)
    if more:
        lines.append(f"more: --after {more}")
    session.out.document({"steps": steps, "next_after": more}, lines)


_verb(
    list_,
    click.option("--run-id", metavar="ID", help="Only this run's."),
    click.option("--status", metavar="S", help="Only PENDING, LEASED or COMMITTED ones."),
    click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Go on after this place."),
    click.option(
        "--limit",
        type=click.IntRange(1, _PAGE_MAX),
        default=PAGE_DEFAULT,
        show_default=True,
        metavar="N",
        help="At most so many.",
    ),
)


def _lease(step: Json) -> str | None:
    if step["status"] != "LEASED":
        return None
    return f"{'expired' if step['is_expired'] else 'until'} {step['lease_expires_at']}"
