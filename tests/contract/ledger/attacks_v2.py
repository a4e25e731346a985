# ruff: noqa: S106, S608 - as in attacks.py
"""Raw statements on what only version 2 has: requeues, renewals, the order of claims and the chain."""

from collections.abc import Iterator

from tests.contract.ledger.attacks import (
    APPEND_ONLY,
    CHECK,
    CLAUSES,
    EXPIRED,
    FOREIGN_KEY,
    JOB,
    LEASE_FIELDS,
    MALFORMED,
    MESSAGE,
    MISMATCH,
    MISSING,
    NO_DAYS,
    NOT_LEASED,
    NOT_NOW,
    ROWIDS,
    STEP,
    TYPE,
    Attack,
    claim,
    insert,
    update,
)

REQUEUE = {
    "requeue_id": "'q'", "step_id": "'{late}'", "worker_id": "'cat'", "fencing_token": "2",
    "lease_expires_at": "'{ended}'",
}  # fmt: skip
RENEWAL = {
    "renewal_id": "'n'", "step_id": "'{held}'", "worker_id": "'ben'", "fencing_token": "1",
    "lease_expires_at": "'{future}'",
}  # fmt: skip
LINK = {
    "seq": "{next}",
    "kind": "'receipt'",
    "row_id": "'{receipt}'",
    "previous_hash": "'{end}'",
    "hash": "'{hash}'",
}
RECORDS = ("cassette_requeues", "cassette_renewals")


def of_two(sql: str, words: str) -> Attack:
    return Attack(sql, words, (2,))


def requeue(clause: str = "", **changed: str) -> str:
    return insert("cassette_requeues", clause, **(REQUEUE | changed))


def renewal(clause: str = "", **changed: str) -> str:
    return insert("cassette_renewals", clause, **(RENEWAL | changed))


def link(clause: str = "", **changed: str) -> str:
    return insert("cassette_chain", clause, **(LINK | changed))


def rewriting() -> Iterator[Attack]:
    columns = "step_id worker_id fencing_token lease_expires_at created_at rowid"
    for table in (*RECORDS, "cassette_chain"):
        own = "seq kind row_id previous_hash hash" if table == "cassette_chain" else columns
        for column in own.split():
            value = "77" if column in {"seq", "fencing_token", "rowid"} else "'x'"
            yield of_two(f"UPDATE OR REPLACE {table} SET {column} = {value}", APPEND_ONLY)
        yield of_two(f"DELETE FROM {table}", APPEND_ONLY)
    for column, value in (
        ("run_id", "'weekly'"),
        ("message_order", "77"),
        ("job_ordinal", "77"),
        ("run_id", "NULL"),
    ):
        for step in ("free", "held", "done"):
            words = f"{APPEND_ONLY}|COMMITTED -> COMMITTED|LEASED -> LEASED"
            yield of_two(update("cassette_steps", f"step_id = '{{{step}}}'", **{column: value}), words)
    yield of_two(
        update("cassette_steps", "step_id = '{free}'", message_order="NULL", job_ordinal="NULL"), APPEND_ONLY
    )
    yield of_two(claim(run_id="'weekly'"), APPEND_ONLY)


def growing() -> Iterator[Attack]:
    """Add to a message that is chained."""
    yield of_two(insert("cassette_jobs", **JOB), APPEND_ONLY)
    yield of_two(insert("cassette_steps", **STEP), APPEND_ONLY)
    for clause in CLAUSES:
        yield of_two(
            insert("cassette_steps", clause, **STEP, run_id="'nightly'", message_order="1", job_ordinal="1"),
            APPEND_ONLY,
        )
    for wrong in (
        {"run_id": "'weekly'", "message_order": "1", "job_ordinal": "1"},
        {"run_id": "'nightly'", "message_order": "2", "job_ordinal": "1"},
        {"run_id": "'nightly'", "message_order": "1", "job_ordinal": "2"},
        {"run_id": "'nightly'"},
        {"message_order": "1"},
        {"job_ordinal": "1"},
    ):
        yield of_two(insert("cassette_steps", **STEP, **wrong), APPEND_ONLY)
    yield of_two(insert("cassette_steps", **STEP, claimed_at="'{past}'"), LEASE_FIELDS)


OPEN = (  # a message that is not chained yet, with a job and a step
    insert("cassette_messages", **MESSAGE),
    insert("cassette_jobs", **(JOB | {"message_id": "'m'"})),
    insert("cassette_steps", **(STEP | {"job_id": "'j'"})),
)


def opening() -> Iterator[Attack]:
    """Add to the message that is not chained yet what no message may have."""
    job, step = (
        JOB | {"job_id": "'j2'", "message_id": "'m'", "ordinal": "2"},
        STEP | {"job_id": "'j'", "ordinal": "2"},
    )
    step |= {"step_id": "'s2'"}
    for clause in CLAUSES:
        for change in ({"step_id": "'s'"}, {"ordinal": "9"}, {"rowid": "6"}, {"step_id": "'{done}'"}):
            yield of_two(insert("cassette_steps", clause, **(step | change)), APPEND_ONLY)
        for change in ({"job_id": "'j'"}, {"ordinal": "9"}, {"rowid": "5"}, {"job_id": "'{job}'"}):
            yield of_two(insert("cassette_jobs", clause, **(job | change)), APPEND_ONLY)
    for rowid in ROWIDS:
        yield of_two(insert("cassette_jobs", rowid=rowid, **job), APPEND_ONLY)
        yield of_two(insert("cassette_steps", rowid=rowid, **step), APPEND_ONLY)
    for wrong in ("0", "-1", "NULL", "2147483648"):
        yield of_two(insert("cassette_jobs", **(job | {"ordinal": wrong})), CHECK)
        yield of_two(insert("cassette_steps", **(step | {"ordinal": wrong})), CHECK)
    for wrong in ("''", "NULL"):
        yield of_two(insert("cassette_jobs", **(job | {"job_id": wrong})), CHECK)
        yield of_two(insert("cassette_jobs", **(job | {"intent": wrong})), CHECK)
        yield of_two(insert("cassette_steps", **(step | {"step_id": wrong})), CHECK)
        yield of_two(insert("cassette_steps", **(step | {"payload_json": wrong})), CHECK)
    for wrong in NO_DAYS:
        yield of_two(insert("cassette_jobs", **job, created_at=wrong), CHECK)
        yield of_two(insert("cassette_steps", **step, created_at=wrong), CHECK)


def claiming() -> Iterator[Attack]:
    for wrong in ("'{past}'", "'{future}'", "'now'"):
        yield of_two(claim(claimed_at=wrong), LEASE_FIELDS)
    yield of_two(update("cassette_steps", "step_id = '{free}'", claimed_at="'{past}'"), LEASE_FIELDS)
    yield of_two(update("cassette_steps", "step_id = '{held}'", claimed_at="NULL"), "LEASED -> LEASED")
    later = update("cassette_steps", "step_id = '{held}'", lease_expires_at="'{future}'")
    yield of_two(later, "LEASED -> LEASED")
    yield of_two(update("cassette_steps", "step_id = '{held}'", lease_expires_at="'{then}'"), "LEASED -> LEASED")
    yield of_two(update("cassette_steps", "step_id = '{held}'", lease_expires_at="NULL"), "LEASED -> LEASED")


def requeuing() -> Iterator[Attack]:
    live = {"step_id": "'{held}'", "worker_id": "'ben'", "fencing_token": "1", "lease_expires_at": "'{held_until}'"}
    for clause in CLAUSES:
        yield of_two(requeue(clause, **live), "lease is live")
        yield of_two(requeue(clause, requeue_id="'{requeue}'"), APPEND_ONLY)
        yield of_two(requeue(clause, fencing_token="1"), MISMATCH)  # that one was requeued
    for wrong in ("0", "3", "NULL"):
        yield of_two(requeue(fencing_token=wrong), MISMATCH)
    for wrong in ("'ann'", "''", "NULL"):
        yield of_two(requeue(worker_id=wrong), "Wrong worker")
    for wrong in ("'{past}'", "'{future}'", "NULL"):
        yield of_two(requeue(lease_expires_at=wrong), "Wrong worker")
    for wrong in ("'nobody'", "NULL"):
        yield of_two(requeue(step_id=wrong), FOREIGN_KEY)
    yield of_two(
        requeue(step_id="'{free}'", worker_id="NULL", fencing_token="0", lease_expires_at="NULL"), NOT_LEASED
    )
    yield of_two(requeue(step_id="'{done}'", worker_id="'ann'", fencing_token="1"), NOT_LEASED)
    for wrong in ("''", "NULL"):
        yield of_two(requeue(requeue_id=wrong), CHECK)
    for wrong in NOT_NOW:
        yield of_two(requeue(created_at=wrong), CHECK)
    for rowid in ROWIDS:
        yield of_two(requeue(rowid=rowid), APPEND_ONLY)
    yield of_two(requeue(fencing_token="'two'"), TYPE)
    again = requeue(requeue_id="'{requeue}'")
    yield of_two(f"{again} ON CONFLICT DO UPDATE SET worker_id = 'eve'", APPEND_ONLY)


def renewing() -> Iterator[Attack]:
    late = {"step_id": "'{late}'", "worker_id": "'cat'", "fencing_token": "2"}
    for clause in CLAUSES:
        yield of_two(renewal(clause, **late), EXPIRED)
        yield of_two(renewal(clause, lease_expires_at="'{held_until}'"), LEASE_FIELDS)
    for wrong in ("0", "2", "NULL"):
        yield of_two(renewal(fencing_token=wrong), MISMATCH)
    for wrong in ("'eve'", "''", "NULL"):
        yield of_two(renewal(worker_id=wrong), "Wrong worker")
    for wrong in ("'{past}'", "'{then}'", "NULL", *MALFORMED):
        yield of_two(renewal(lease_expires_at=wrong), LEASE_FIELDS)
    for wrong in ("'nobody'", "NULL"):
        yield of_two(renewal(step_id=wrong), FOREIGN_KEY)
    yield of_two(renewal(step_id="'{free}'", worker_id="NULL", fencing_token="0"), NOT_LEASED)
    yield of_two(renewal(step_id="'{done}'", worker_id="'ann'"), NOT_LEASED)
    for wrong in ("''", "NULL"):
        yield of_two(renewal(renewal_id=wrong), CHECK)
    for wrong in NOT_NOW:
        yield of_two(renewal(created_at=wrong), CHECK)
    for rowid in ROWIDS:
        yield of_two(renewal(rowid=rowid), APPEND_ONLY)


def chaining() -> Iterator[Attack]:
    for wrong in ("1", "{seq}", "{next} + 1", "0", "-1", "NULL", "9223372036854775807"):
        yield of_two(link(seq=wrong), APPEND_ONLY)
        yield of_two(link("OR REPLACE", seq=wrong), APPEND_ONLY)
    for wrong in ("1", "{seq}", "{next} + 1", "0", "-1", "9223372036854775807"):
        before = f"coalesce((SELECT hash FROM cassette_chain WHERE seq = {wrong} - 1), '{'0' * 64}')"
        yield of_two(link("OR REPLACE", seq=wrong, previous_hash=before), APPEND_ONLY)
    for wrong in ("'{hash}'", "''", "NULL", "'x'"):
        yield of_two(link(previous_hash=wrong), APPEND_ONLY)
    for wrong in ("''", "'abc'", "upper('{hash}')", "'{hash}' || '00'", "substr('{hash}', 2) || 'g'"):
        yield of_two(link(hash=wrong), CHECK)
    for wrong in ("'nobody'", "NULL"):
        for kind in ("message", "receipt", "requeue", "renewal"):
            yield of_two(link(kind=f"'{kind}'", row_id=wrong), FOREIGN_KEY)
    for wrong in ("'step'", "''", "NULL", "'Receipt'"):
        yield of_two(link(kind=wrong), FOREIGN_KEY)
    yield of_two(link(hash="NULL"), MISSING)
    yield of_two(link(hash="x'00'"), TYPE)
    for clause in CLAUSES:
        yield of_two(link(clause, kind="'message'", row_id="'{message}'"), APPEND_ONLY)
    yield of_two(f"{link(seq='1')} ON CONFLICT DO UPDATE SET hash = excluded.hash", APPEND_ONLY)
