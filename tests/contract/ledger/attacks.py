# ruff: noqa: S106, S608 - statements that are put together from a table, and fencing tokens
"""A table of raw statements that the ledger's law refuses, and the words that each is refused with.

What stands in braces is an id or an instant of `scenes.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

APPEND_ONLY = "append-only"
LEASE_FIELDS = "Lease fields can only be set"
MISMATCH = "Fencing token mismatch"
NOT_LEASED = "Step is not leased"
EXPIRED = "lease expired"
FOREIGN_KEY = "FOREIGN KEY"
CHECK = "CHECK"
TYPE = "cannot store|datatype mismatch"  # SQLite's own words for a value that its column cannot hold
MISSING = "NOT NULL"

# What a statement may ask to be done about a row that is in its way.
CLAUSES = ("", "OR ABORT", "OR FAIL", "OR IGNORE", "OR REPLACE", "OR ROLLBACK")
ROWIDS = ("1", "0", "-1", "1000", "9223372036854775807")
MALFORMED = (
    "'tomorrow'", "'now'", "''", "'2037-01-01'", "'2037-01-01T00:00:00Z'", "'2037-01-01T00:00:00.000'", "'2500000'",
    "'2037-01-01T00:00:00.000z'", "'2037-13-01T00:00:00.000Z'", "'2037-02-30T00:00:00.000Z'",
    "'2037-01-01T24:00:00.000Z'", "'2037-01-01T00:00:00.000Z' || char(0)",
)  # fmt: skip

# A message may have been written down elsewhere, in another form, but on a day that there is.
NO_DAYS = (
    "'tomorrow'",
    "'now'",
    "''",
    "'2500000'",
    "'12:00:00'",
    "'2037-13-01T00:00:00.000Z'",
    "'2037-01-01 noon'",
    "NULL",
)
NOT_NOW = ("'{past}'", "'{future}'", "NULL", *MALFORMED)


@dataclass(frozen=True)
class Attack:
    sql: str
    words: str
    versions: tuple[int, ...] = (1, 2)


def insert(table: str, clause: str = "", **values: str) -> str:
    names, row = ", ".join(values), ", ".join(values.values())
    return f"INSERT {clause} INTO {table} ({names}) VALUES ({row})".replace("INSERT  ", "INSERT ")


MESSAGE = {"message_id": "'m'", "run_id": "'nightly'", "source": "'USER'", "payload_json": "'{}'"}
JOB = {"job_id": "'j'", "message_id": "'{message}'", "intent": "'i'", "ordinal": "9"}
STEP = {"step_id": "'s'", "job_id": "'{job}'", "ordinal": "9", "payload_json": "'{}'"}
RECEIPT = {
    "receipt_id": "'r'", "step_id": "'{held}'", "job_id": "'{job}'", "worker_id": "'ben'", "fencing_token": "1",
    "outcome": "'SUCCESS'", "receipt_json": "'{}'",
}  # fmt: skip
CLAIM = {
    "status": "'LEASED'", "lease_owner": "'eve'", "lease_expires_at": "'{future}'",
    "fencing_token": "fencing_token + 1",
}  # fmt: skip


def update(table: str, where: str, clause: str = "", **values: str) -> str:
    row = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"UPDATE {clause} {table} SET {row} WHERE {where}".replace("UPDATE  ", "UPDATE ")


def claim(**changed: str) -> str:
    return update("cassette_steps", "step_id = '{free}'", **(CLAIM | changed))


def receipt(**changed: str) -> str:
    return insert("cassette_receipts", **(RECEIPT | changed))


# --- rows that are in the way --------------------------------------------------------------------------


def replacing() -> Iterator[Attack]:
    """Insert, in every way that SQL has, what would take the place of a row that is there."""
    in_the_way = (
        ("cassette_messages", MESSAGE, {"message_id": "'{message}'"}),
        ("cassette_messages", MESSAGE, {"run_id": "'nightly'", "idempotency_key": "'key-1'"}),
        ("cassette_jobs", JOB, {"job_id": "'{job}'"}),
        ("cassette_jobs", JOB, {"ordinal": "1"}),
        ("cassette_steps", STEP, {"step_id": "'{done}'"}),
        ("cassette_steps", STEP, {"ordinal": "1"}),
        ("cassette_receipts", RECEIPT, {"receipt_id": "'{receipt}'"}),
        ("cassette_meta", {"key": "'db_version'", "value": "'3'"}, {}),
        ("cassette_meta", {"key": "'ledger_id'", "value": "'0123456789abcdef'"}, {}),
    )
    for clause in CLAUSES:
        for table, row, change in in_the_way:
            yield Attack(insert(table, clause, **(row | change)), APPEND_ONLY)
        same_step = RECEIPT | {"step_id": "'{done}'", "worker_id": "'ann'"}
        yield Attack(insert("cassette_receipts", clause, **same_step), NOT_LEASED)
    for table, row, key in (
        ("cassette_messages", MESSAGE | {"message_id": "'{message}'"}, "message_id"),
        ("cassette_jobs", JOB | {"ordinal": "1"}, "message_id, ordinal"),
        ("cassette_steps", STEP | {"step_id": "'{free}'"}, "step_id"),
        ("cassette_receipts", RECEIPT | {"receipt_id": "'{receipt}'"}, "receipt_id"),
        ("cassette_meta", {"key": "'db_version'", "value": "'3'"}, "key"),
    ):
        changed = next(name for name in reversed(row) if name not in key)
        upsert = f"{insert(table, **row)} ON CONFLICT ({key}) DO"
        yield Attack(f"{upsert} UPDATE SET {changed} = excluded.{changed}", APPEND_ONLY)
        yield Attack(f"{upsert} NOTHING", APPEND_ONLY)


def placing() -> Iterator[Attack]:
    """Choose a rowid: that is the order of posting."""
    for table, row, last in (
        ("cassette_messages", MESSAGE, "3"),
        ("cassette_jobs", JOB, "4"),
        ("cassette_steps", STEP, "5"),
        ("cassette_receipts", RECEIPT, "1"),
    ):
        is_sealed = table in {"cassette_jobs", "cassette_steps"}  # version 2 has other words for these
        for clause in ("", "OR REPLACE"):
            for rowid in (*ROWIDS, last):
                yield Attack(insert(table, clause, rowid=rowid, **row), APPEND_ONLY, (1,) if is_sealed else (1, 2))
    yield Attack(
        insert("cassette_meta", "OR REPLACE", rowid="1", key="'ledger_id'", value="'0123456789abcdef'"), APPEND_ONLY
    )
    several = f"{insert('cassette_messages', **MESSAGE)}, ('{{message}}', 'nightly', 'USER', '{{}}')"
    yield Attack(several, APPEND_ONLY)


# --- what never changes --------------------------------------------------------------------------------

FIXED = {
    "cassette_messages": "message_id run_id source idempotency_key payload_json created_at rowid",
    "cassette_jobs": "job_id message_id intent ordinal created_at rowid",
    "cassette_steps": "step_id job_id ordinal payload_json created_at rowid",
    "cassette_receipts": "receipt_id step_id job_id worker_id fencing_token outcome receipt_json created_at rowid",
    "cassette_meta": "key value rowid",
}


def rewriting() -> Iterator[Attack]:
    for table, columns in FIXED.items():
        for column in columns.split():
            value = "77" if column in {"ordinal", "fencing_token", "rowid"} else "'x'"
            where = "status = 'PENDING'" if table == "cassette_steps" else "1"  # of others the state speaks first
            yield Attack(update(table, where, "OR REPLACE", **{column: value}), APPEND_ONLY)
        yield Attack(f"DELETE FROM {table}", APPEND_ONLY)
        yield Attack(f"WITH x AS (SELECT 1) DELETE FROM {table} WHERE rowid = 1", APPEND_ONLY)
    yield Attack("UPDATE OR REPLACE cassette_steps SET rowid = 1 WHERE step_id = '{free}'", APPEND_ONLY)
    yield Attack("UPDATE cassette_steps SET job_id = '{other_job}' WHERE step_id = '{free}'", APPEND_ONLY)
    yield Attack("UPDATE cassette_jobs SET message_id = '{other}' WHERE job_id = '{job}'", APPEND_ONLY)
    from_another = (
        "UPDATE cassette_steps SET ordinal = 8 + m.rowid FROM cassette_messages AS m WHERE status = 'PENDING'"
    )
    yield Attack(from_another, APPEND_ONLY)
    yield Attack(update("cassette_steps", "status = 'PENDING'", ordinal="NULL"), APPEND_ONLY)


# --- what is not a row of a ledger ---------------------------------------------------------------------


def malformed() -> Iterator[Attack]:
    for wrong in ("''", "NULL"):
        yield Attack(insert("cassette_messages", **(MESSAGE | {"message_id": wrong})), CHECK)
        yield Attack(insert("cassette_messages", **(MESSAGE | {"run_id": wrong})), CHECK)
        yield Attack(insert("cassette_messages", **(MESSAGE | {"source": wrong})), "Invalid source")
        yield Attack(insert("cassette_messages", **(MESSAGE | {"payload_json": wrong})), CHECK)
        yield Attack(insert("cassette_jobs", **(JOB | {"job_id": wrong})), CHECK, (1,))
        yield Attack(insert("cassette_jobs", **(JOB | {"message_id": wrong})), FOREIGN_KEY)
        yield Attack(insert("cassette_jobs", **(JOB | {"intent": wrong})), CHECK, (1,))
        yield Attack(insert("cassette_steps", **(STEP | {"step_id": wrong})), CHECK, (1,))
        yield Attack(insert("cassette_steps", **(STEP | {"job_id": wrong})), FOREIGN_KEY)
        yield Attack(insert("cassette_steps", **(STEP | {"payload_json": wrong})), CHECK, (1,))
        yield Attack(receipt(receipt_id=wrong), CHECK)
        yield Attack(receipt(receipt_json=wrong), CHECK)
        yield Attack(receipt(outcome=wrong), "Invalid outcome")
    yield Attack(insert("cassette_messages", **MESSAGE, idempotency_key="''"), CHECK)
    yield Attack(insert("cassette_messages", **(MESSAGE | {"source": "'user'"})), "Invalid source")
    yield Attack(receipt(outcome="'DONE'"), "Invalid outcome")
    for wrong in ("0", "-1", "NULL", "2147483648"):
        yield Attack(insert("cassette_jobs", **(JOB | {"ordinal": wrong})), CHECK, (1,))
        yield Attack(insert("cassette_steps", **(STEP | {"ordinal": wrong})), CHECK, (1,))
    for wrong in ("'{'", "'NaN'", "'{} {}'"):
        yield Attack(insert("cassette_messages", **(MESSAGE | {"payload_json": wrong})), CHECK)
        yield Attack(insert("cassette_steps", **(STEP | {"payload_json": wrong})), CHECK, (1,))
        yield Attack(receipt(receipt_json=wrong), CHECK)
    for wrong in NO_DAYS:
        yield Attack(insert("cassette_messages", **MESSAGE, created_at=wrong), CHECK)
        yield Attack(insert("cassette_jobs", **JOB, created_at=wrong), CHECK, (1,))
        yield Attack(insert("cassette_steps", **STEP, created_at=wrong), CHECK, (1,))
    for wrong in NOT_NOW:
        yield Attack(receipt(created_at=wrong), CHECK)
    yield Attack(insert("cassette_messages", **(MESSAGE | {"payload_json": "x'7b7d'"})), TYPE)
    yield Attack(insert("cassette_jobs", **(JOB | {"ordinal": "'first'"})), TYPE)
    yield Attack(insert("cassette_steps", **(STEP | {"ordinal": "1.5"})), TYPE)
    yield Attack(insert("cassette_messages", rowid="'first'", **MESSAGE), TYPE)
    yield Attack(receipt(fencing_token="'one'"), TYPE)
    yield Attack(claim(lease_owner="x'65'"), TYPE)
    yield Attack(insert("cassette_jobs", **(JOB | {"message_id": "'nobody'"})), FOREIGN_KEY)
    yield Attack(insert("cassette_steps", **(STEP | {"job_id": "'nobody'"})), FOREIGN_KEY)


# --- steps and their leases ----------------------------------------------------------------------------


def skipping() -> Iterator[Attack]:
    """Have a step in a state that it did not come to."""
    for status in ("'LEASED'", "'COMMITTED'", "'DONE'", "NULL", "''"):
        yield Attack(insert("cassette_steps", **STEP, status=status), "Invalid status")
        yield Attack(insert("cassette_steps", "OR IGNORE", **STEP, status=status), "Invalid status")
    whole = {"status": "'LEASED'", "lease_owner": "'eve'", "lease_expires_at": "'{future}'", "fencing_token": "1"}
    yield Attack(insert("cassette_steps", **STEP, **whole), "Invalid status")
    for column, value in (("lease_owner", "'eve'"), ("lease_expires_at", "'{future}'"), ("fencing_token", "1")):
        yield Attack(insert("cassette_steps", **STEP, **{column: value}), LEASE_FIELDS)
    yield Attack(insert("cassette_steps", **STEP, fencing_token="NULL"), LEASE_FIELDS)
    for step, status, words in (
        ("free", "COMMITTED", "PENDING -> COMMITTED"),
        ("held", "PENDING", "LEASED -> PENDING"),
        ("late", "PENDING", "LEASED -> PENDING"),
        ("held", "LEASED", "LEASED -> LEASED"),
        ("held", "COMMITTED", "LEASED -> COMMITTED"),
        ("late", "COMMITTED", "LEASED -> COMMITTED"),
        ("done", "LEASED", "COMMITTED -> LEASED"),
        ("done", "PENDING", "COMMITTED -> PENDING"),
        ("done", "COMMITTED", "COMMITTED -> COMMITTED"),
    ):
        for clause in ("", "OR REPLACE", "OR IGNORE"):
            yield Attack(update("cassette_steps", f"step_id = '{{{step}}}'", clause, status=f"'{status}'"), words)
    for wrong in ("NULL", "'pending'", "''"):
        for step in ("free", "held", "done"):
            yield Attack(update("cassette_steps", f"step_id = '{{{step}}}'", status=wrong), "Invalid status")
    yield Attack(
        "UPDATE cassette_steps SET status = 'COMMITTED', lease_owner = 'eve' WHERE step_id = '{held}'", LEASE_FIELDS
    )


def leasing() -> Iterator[Attack]:
    for wrong in ("fencing_token", "fencing_token + 2", "-1", "NULL", "9223372036854775807"):
        yield Attack(claim(fencing_token=wrong), MISMATCH)
    for wrong in ("NULL", "''"):
        yield Attack(claim(lease_owner=wrong), LEASE_FIELDS)
    for wrong in ("NULL", *MALFORMED):
        yield Attack(claim(lease_expires_at=wrong), LEASE_FIELDS)
    for wrong in ("'{past}'", "'{then}'", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"):
        yield Attack(claim(lease_expires_at=wrong), EXPIRED)
    for step, words in (("free", LEASE_FIELDS), ("held", "LEASED -> LEASED"), ("done", "COMMITTED -> COMMITTED")):
        for column, value in (
            ("lease_owner", "'eve'"),
            ("lease_owner", "''"),
            ("lease_expires_at", "'2038-01-01T00:00:00.000Z'"),
            ("fencing_token", "fencing_token + 1"),
            ("fencing_token", "NULL"),
        ):
            yield Attack(update("cassette_steps", f"step_id = '{{{step}}}'", **{column: value}), words)
    steal = update("cassette_steps", "step_id = '{held}'", **(CLAIM | {"fencing_token": "2"}))
    yield Attack(steal, "LEASED -> LEASED")
    yield Attack(update("cassette_steps", "step_id = '{done}'", **CLAIM), "COMMITTED -> LEASED")


def receipting() -> Iterator[Attack]:
    for wrong in ("0", "2", "-1", "NULL"):
        yield Attack(receipt(fencing_token=wrong), MISMATCH)
    for wrong in ("'eve'", "''", "NULL", "'BEN'"):
        yield Attack(receipt(worker_id=wrong), "Wrong worker")
    for wrong in ("'{job_2}'", "'nobody'", "NULL"):
        yield Attack(receipt(job_id=wrong), FOREIGN_KEY)
    for wrong in ("'nobody'", "NULL"):
        yield Attack(receipt(step_id=wrong), FOREIGN_KEY)
    late = {"step_id": "'{late}'", "job_id": "'{job_2}'", "worker_id": "'cat'", "fencing_token": "{late_token}"}
    for clause in CLAUSES:
        yield Attack(insert("cassette_receipts", clause, **(RECEIPT | late)), EXPIRED)
    yield Attack(receipt(step_id="'{free}'", job_id="'{free_job}'", fencing_token="0"), NOT_LEASED)
    yield Attack(
        receipt(step_id="'{free}'", job_id="'{free_job}'", worker_id="NULL", fencing_token="0"), NOT_LEASED
    )
    yield Attack(receipt(step_id="'{done}'", worker_id="'ann'"), NOT_LEASED)
