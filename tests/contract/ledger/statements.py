# ruff: noqa: S608 - statements that are put together at random are the point
"""Raw statements at random: over all tables and columns, with every conflict clause, and values that nearly fit."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.contract.ledger.attacks import CLAUSES

COLUMNS = {
    "cassette_messages": "message_id run_id source idempotency_key payload_json created_at",
    "cassette_jobs": "job_id message_id intent ordinal created_at",
    "cassette_steps": (
        "step_id job_id ordinal status lease_owner lease_expires_at fencing_token payload_json created_at"
    ),
    "cassette_receipts": "receipt_id step_id job_id worker_id fencing_token outcome receipt_json created_at",
    "cassette_meta": "key value",
}
COLUMNS_V2 = {
    **COLUMNS,
    "cassette_steps": f"{COLUMNS['cassette_steps']} run_id message_order job_ordinal claimed_at",
    "cassette_requeues": "requeue_id step_id worker_id fencing_token lease_expires_at created_at",
    "cassette_renewals": "renewal_id step_id worker_id fencing_token lease_expires_at created_at",
    "cassette_chain": "seq kind row_id previous_hash hash",
}

_IDS = {
    "message_id": ("'{message}'", "'{second}'", "'m-new'"),
    "job_id": ("'{job}'", "'{free_job}'", "'{other_job}'", "'j-new'"),
    "step_id": ("'{free}'", "'{held}'", "'{late}'", "'{done}'", "'{last}'", "'s-new'"),
    "receipt_id": ("'{receipt}'", "'r-new'"),
    "requeue_id": ("'q-new'", "'q-2'"),
    "renewal_id": ("'n-new'", "'n-2'"),
    "row_id": ("'{message}'", "'m-new'", "'{receipt}'", "'r-new'", "'q-new'"),
}
_WORKERS = ("'ann'", "'ben'", "'cat'", "'eve'")
_INSTANTS = ("'{future}'", "'{past}'", "'{ended}'", "'{held_until}'", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
_NUMBERS = ("0", "1", "2", "3", "-1", "fencing_token + 1", "9223372036854775807")
_JSON = ("'{}'", "'[1]'", "'{'")
_FITTING: dict[str, tuple[str, ...]] = _IDS | {
    "run_id": ("'nightly'", "'weekly'"),
    "source": ("'USER'", "'WORKER'"),
    "idempotency_key": ("'key-1'", "'key-2'"),
    "payload_json": _JSON,
    "receipt_json": _JSON,
    "intent": ("'i'",),
    "ordinal": ("1", "2", "3"),
    "status": ("'PENDING'", "'LEASED'", "'COMMITTED'"),
    "lease_owner": _WORKERS,
    "worker_id": _WORKERS,
    "lease_expires_at": _INSTANTS,
    "created_at": _INSTANTS,
    "claimed_at": _INSTANTS,
    "fencing_token": _NUMBERS,
    "message_order": ("1", "2", "3", "4"),
    "job_ordinal": ("1", "2"),
    "outcome": ("'SUCCESS'", "'ABORTED'"),
    "key": ("'db_version'", "'ledger_id'", "'other'"),
    "value": ("'1'", "'0123456789abcdef'"),
    "seq": ("{seq}", "{next}", "1"),
    "kind": ("'message'", "'receipt'", "'requeue'"),
    "previous_hash": ("'{end}'", "'{hash}'"),
    "hash": ("'{hash}'", "'x'"),
    "rowid": ("1", "2", "4", "6", "-1", "9223372036854775807"),
}
_OPTIONAL = {"idempotency_key", "created_at", "lease_owner", "lease_expires_at", "fencing_token", "status"}
_OPTIONAL |= {"run_id", "message_order", "job_ordinal", "claimed_at"}


@st.composite
def value(draw: DrawFn, column: str) -> str:
    """Draw what fits most of the time; otherwise anything."""
    if draw(st.integers(0, 9)):
        return draw(st.sampled_from(_FITTING[column]))
    others = ("NULL", "''", "0", "x'00'", "'x'", "-1", *_IDS["step_id"], *_WORKERS, *_INSTANTS)
    return draw(st.sampled_from(others))


@st.composite
def _insert(draw: DrawFn, table: str, columns: str) -> str:
    names = [
        name
        for name in columns.split()
        if draw(st.integers(0, 9)) > (6 if name in _OPTIONAL and table != "cassette_renewals" else 0)
    ]
    names += ["rowid"] if not names or not draw(st.integers(0, 9)) else []
    row = ", ".join(draw(value(name)) for name in names).replace("fencing_token + 1", "1")
    verb = f"INSERT {draw(st.sampled_from(CLAUSES))} INTO"
    upsert = " ON CONFLICT DO UPDATE SET " + f"{names[0]} = excluded.{names[0]}"
    return f"{verb} {table} ({', '.join(names)}) VALUES ({row})" + (upsert if not draw(st.integers(0, 9)) else "")


@st.composite
def _claim(draw: DrawFn) -> str:
    """Draw a claim that is whole: most others are refused, and then nothing is learned of what comes after."""
    owner, until = draw(value("lease_owner")), draw(value("lease_expires_at"))
    lease = (
        f"status = 'LEASED', lease_owner = {owner}, lease_expires_at = {until}, fencing_token = fencing_token + 1"
    )
    return f"UPDATE cassette_steps SET {lease} WHERE step_id = {draw(value('step_id'))}"


@st.composite
def _update(draw: DrawFn, table: str, columns: str) -> str:
    names = draw(st.lists(st.sampled_from([*columns.split(), "rowid"]), min_size=1, max_size=4, unique=True))
    row = ", ".join(f"{name} = {draw(value(name))}" for name in names)
    key = columns.split(maxsplit=1)[0]
    where = draw(st.just("1") | value(key).map(lambda found: f"{key} = {found}"))
    return f"UPDATE {draw(st.sampled_from(CLAUSES))} {table} SET {row} WHERE {where}"


def statements(version: int) -> SearchStrategy[list[str]]:
    columns = COLUMNS if version == 1 else COLUMNS_V2
    tables = st.sampled_from(sorted(columns))
    one = st.one_of(
        tables.flatmap(lambda table: _insert(table, columns[table])),
        st.sampled_from(["cassette_receipts", "cassette_steps"]).flatmap(
            lambda table: _insert(table, columns[table])
        ),
        _claim(),
        tables.flatmap(lambda table: _update(table, columns[table])),
        st.just("cassette_steps").flatmap(lambda table: _update(table, columns[table])),
        tables.map(lambda table: f"DELETE FROM {table}"),
    )
    return st.lists(one, min_size=1, max_size=25)
