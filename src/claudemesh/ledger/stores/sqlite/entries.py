"""What is written and read: post, claim, complete, requeue, renew, list.

Each function is one transaction's work. It says what is to be, and the law says whether it may: a refusal is
raised by a trigger, in its own words. What is checked here is what the law has no column for: the run.
"""

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final

import apsw

from claudemesh.kernel.errors import CassetteConflict, MessageCassetteError, NoPendingSteps
from claudemesh.ledger import policy
from claudemesh.ledger.model import Claim, Post, Receipt, Row
from claudemesh.ledger.stores.sqlite import chain, law
from claudemesh.ledger.stores.sqlite.rows import fetch, fetch_named, fetch_one
from claudemesh.storage.sqlfile import load_queries

_HERE: Final = files(__package__)
_SQL: Final = load_queries(_HERE / "entries.sql")
_OF: Final = {version: load_queries(_HERE / f"entries_v{version}.sql") for version in law.VERSIONS}

OPEN: Final = ("PENDING", "LEASED")
CLAIMED: Final = (
    "step_id", "job_id", "message_id", "ordinal", "payload", "fencing_token", "lease_expires_at",
)  # fmt: skip


def post(connection: apsw.Connection, version: int, post: Post) -> tuple[str, str]:
    """Write a message with its jobs and steps; return its id and that of its first job.

    The same key with the same content is the same message, and is not written again.
    """
    if post.idempotency_key is not None:
        standing = fetch_one(connection, _SQL["posted"], (post.run_id, post.idempotency_key))
        if standing is not None:
            return _judge_repeat(post, *standing)
    values = (post.message_id, post.run_id, post.source, post.idempotency_key, post.payload_json)
    order, created_at = fetch(connection, _SQL["post_message"], values)[0]
    for job_ordinal, job in enumerate(post.jobs, start=1):
        job_id = f"{post.message_id}.{job_ordinal}"
        connection.execute(_SQL["post_job"], (job_id, post.message_id, job.intent, job_ordinal, created_at))
        place = (post.run_id, order, job_ordinal) if version >= law.ORDERED_SINCE else ()
        connection.executemany(
            _OF[version]["post_step"],
            [
                (f"{job_id}.{ordinal}", job_id, ordinal, payload, created_at, *place)
                for ordinal, payload in enumerate(job.steps, start=1)
            ],
        )
    _chain(connection, version, "message", post.message_id)
    return post.message_id, f"{post.message_id}.1"


def _judge_repeat(post: Post, message_id: str, source: str, payload_json: str, job_id: str) -> tuple[str, str]:
    if (source, payload_json) != (post.source, post.payload_json):
        what = "payload" if source == post.source else "source"
        raise CassetteConflict(
            f"run {post.run_id!r} has message {message_id} with another {what} under "
            f"idempotency_key {post.idempotency_key!r}"
        )
    return message_id, job_id


def claim(connection: apsw.Connection, version: int, run_id: str, worker_id: str, ttl: str) -> Row:
    found = fetch_one(connection, _OF[version]["next"], (run_id,))
    if found is None:
        raise NoPendingSteps(f"No pending steps in run {run_id!r}{_hint(connection, version, run_id)}")
    place, *step = found
    lease = fetch(connection, _OF[version]["claim"], (place, worker_id, ttl))[0]
    claimed = dict(zip(CLAIMED, (*step, *lease), strict=True))
    return claimed | {"payload": policy.parse_json(claimed["payload"])}


def _hint(connection: apsw.Connection, version: int, run_id: str) -> str:
    """Say what a worker that finds nothing may have to wait for."""
    expired = fetch(connection, _OF[version]["expired"], (run_id,)) if version >= law.REQUEUED_SINCE else []
    return f"; leases expired, which can be requeued: {len(expired)}" if expired else ""


def complete(connection: apsw.Connection, version: int, claim: Claim, receipt: Receipt) -> str:
    job_id = _find(connection, version, claim.run_id, claim.step_id)["job_id"]
    held = (claim.step_id, job_id, claim.worker_id, claim.fencing_token)
    connection.execute(_SQL["complete"], (receipt.receipt_id, *held, receipt.outcome, receipt.receipt_json))
    _chain(connection, version, "receipt", receipt.receipt_id)
    return receipt.receipt_id


def requeue(connection: apsw.Connection, version: int, requeue_id: str, run_id: str, step_id: str) -> str:
    _need_version(version, "requeue")
    standing = _find(connection, version, run_id, step_id)
    lease = (standing["lease_owner"], standing["fencing_token"], standing["lease_expires_at"])
    connection.execute(_SQL["requeue"], (requeue_id, step_id, *lease))
    _chain(connection, version, "requeue", requeue_id)
    return requeue_id


def requeue_expired(
    connection: apsw.Connection, version: int, mint: Callable[[], str], run_id: str
) -> dict[str, str]:
    """Requeue every step of a run whose lease expired; return the records' ids by step."""
    _need_version(version, "requeue")
    expired = [step_id for (step_id,) in fetch(connection, _OF[version]["expired"], (run_id,))]
    return {step_id: requeue(connection, version, mint(), run_id, step_id) for step_id in expired}


def renew(connection: apsw.Connection, version: int, renewal_id: str, claim: Claim, ttl: str) -> str:
    """Extend a live lease; return until when."""
    _need_version(version, "renew")
    ends = _find(connection, version, claim.run_id, claim.step_id)["lease_expires_at"]
    values = (renewal_id, claim.step_id, claim.worker_id, claim.fencing_token, ends, ttl)
    extended: str = fetch(connection, _SQL["renew"], values)[0][0]
    _chain(connection, version, "renewal", renewal_id)
    return extended


def list_steps(  # noqa: PLR0913, PLR0917 - what is asked for, each as its column
    connection: apsw.Connection, run_id: str | None, status: str | None, after: int, limit: int, job_id: str | None
) -> list[Row]:
    return _steps(connection, fetch(connection, _SQL["listing"], (run_id, status, after, limit, job_id)))


def find_held(connection: apsw.Connection, run_id: str, worker_id: str) -> Row | None:
    found = fetch_one(connection, _SQL["held"], (run_id, worker_id))
    if found is None:
        return None
    held = dict(zip(CLAIMED, found, strict=True))
    return held | {"payload": policy.parse_json(held["payload"])}


def find_receipt(connection: apsw.Connection, run_id: str, step_id: str) -> Row | None:
    rows = fetch_named(connection, _SQL["receipt_of"], (run_id, step_id))
    return rows[0] if rows else None


def newest_steps(connection: apsw.Connection, status: str | None, before: int, limit: int) -> list[Row]:
    name = "newest_open" if status in OPEN else "newest"
    return _steps(connection, fetch(connection, _SQL[name], (status, before, limit)))[::-1]


def _steps(connection: apsw.Connection, places: Sequence[tuple[int, ...]]) -> list[Row]:
    """Return the steps at these places, in the order they were posted."""
    rows = fetch_named(connection, _SQL["steps"], (json.dumps([place for (place,) in places]),))
    return [row | {"is_expired": bool(row["is_expired"])} for row in rows]


def count_steps(connection: apsw.Connection) -> tuple[int, int, int, int]:
    """Return how many are pending, leased, leased with an expired lease, and how many there are."""
    pending, leased, expired, steps = fetch(connection, _SQL["count_open"], ())[0]
    return pending, leased, expired, steps


def show_step(connection: apsw.Connection, step_id: str) -> Row:
    found = fetch_one(connection, _SQL["shown"], (step_id,))
    if found is None:
        raise MessageCassetteError(f"Step not found: {step_id!r}")
    place, payload, worker, receipt = found
    return _steps(connection, [(place,)])[0] | {
        "payload": policy.parse_json(payload),
        "receipt_worker": worker,
        "receipt": None if receipt is None else policy.parse_json(receipt),
    }


def find_receipts(connection: apsw.Connection, run_id: str, idempotency_key: str) -> list[Row]:
    return fetch_named(connection, _SQL["receipts"], (run_id, idempotency_key))


def find_step(connection: apsw.Connection, run_id: str, idempotency_key: str) -> Row:
    rows = fetch_named(connection, _SQL["step_of"], (run_id, idempotency_key))
    if not rows:
        raise MessageCassetteError(f"Step not found: run {run_id!r} has nothing under {idempotency_key!r}")
    return rows[0]


def _find(connection: apsw.Connection, version: int, run_id: str, step_id: str) -> dict[str, Any]:
    rows = fetch_named(connection, _OF[version]["standing"], (step_id,))
    if not rows:
        raise MessageCassetteError(f"Step not found: {step_id!r}")
    if rows[0]["run_id"] != run_id:
        raise MessageCassetteError(f"Wrong run_id: step {step_id!r} belongs to run {rows[0]['run_id']!r}")
    return rows[0]


def _need_version(version: int, verb: str) -> None:
    if version < law.REQUEUED_SINCE:
        raise MessageCassetteError(
            f"{verb} needs version {law.REQUEUED_SINCE}, and the ledger has version {version}: "
            "`cortex cassette upgrade` first"
        )


def _chain(connection: apsw.Connection, version: int, kind: str, row_id: str) -> None:
    if version >= law.CHAINED_SINCE:
        chain.append(connection, kind, row_id)
