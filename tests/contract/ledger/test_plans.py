"""How claims, completions, renewals and requeues find their rows: by an index, however many rows there are.

Asked of the statements that a ledger really runs, as its connection reports them. A plan says what is searched and
what is scanned or sorted, but not of triggers; the counters of what was scanned and sorted count those too.
"""

from collections.abc import Callable
from typing import Any

import apsw
import apsw.ext
import pytest

from claudemesh.ledger import MessageCassette
from tests.contract.ledger.clocks import LedgerClock

STEPS = 100
NEVER = ("SORT", "AUTOINDEX")
SCANNED_MAX = 1  # whether a row is the last of its table is asked of the row before it
OF_DATA = {"SELECT", "INSERT", "UPDATE"}

# The end of the chain is the first row of a scan that goes no further: the counters say so.
ONE_ROW = {"SCAN cassette_chain"}

Said = dict[str, Any]

pytestmark = [pytest.mark.req("L3", "L7"), pytest.mark.parametrize("version", [2], indirect=True)]


def fill(ledger: MessageCassette) -> None:
    """Have many steps in each state, and those of another run among them."""
    for _ in range(3):
        for run_id in ("run", "other"):
            ledger.post_message({"jobs": [{"intent": "i", "steps": [1] * STEPS}] * 2}, run_id, "USER")
    for run_id in ("run", "other"):
        for _ in range(STEPS):
            complete(ledger, run_id, ledger.claim_step(run_id, "worker", 1_000))
            ledger.claim_step(run_id, "worker", 1_000)


def complete(ledger: MessageCassette, run_id: str, step: Said) -> None:
    ledger.complete_step(run_id, step["step_id"], "worker", step["fencing_token"], {}, "SUCCESS")


def statements_of(ledger: MessageCassette, call: Callable[[], object]) -> list[tuple[str, Said]]:
    """Return what the call has the database do: the statements, each with what it counted."""
    heard: list[tuple[str, Said]] = []
    connection = ledger._file._connection
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: heard.append((event["sql"], event["stmt_status"])))
    try:
        call()
    finally:
        connection.trace_v2(0)
    return [(sql, counted) for sql, counted in heard if sql.split(maxsplit=1)[0] in OF_DATA]


def plan_of(ledger: MessageCassette, sql: str) -> list[str]:
    connection = ledger._file._connection
    values = (None,) * apsw.ext.query_info(connection, sql).bindings_count
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("what", ["claim", "complete", "renew", "requeue"])
def test_nothing_is_scanned_or_sorted(ledger: MessageCassette, clock: LedgerClock, what: str) -> None:
    fill(ledger)
    calls: dict[str, Callable[[Said], object]] = {
        "claim": lambda _: ledger.claim_step("run", "worker", 1_000),
        "complete": lambda step: complete(ledger, "run", step),
        "renew": lambda step: ledger.renew_lease("run", step["step_id"], "worker", step["fencing_token"], 2_000),
        "requeue": lambda _: ledger.requeue_expired("run"),
    }

    def ask() -> list[tuple[str, Said]]:
        step = ledger.claim_step("run", "worker", 1)
        if what == "requeue":
            clock.advance(2)
        return statements_of(ledger, lambda: calls[what](step))

    ask()
    statements = ask()
    assert any(sql.startswith(("INSERT", "UPDATE")) for sql, _ in statements), "nothing was done"
    for sql, counted in statements:
        scans = [line for line in plan_of(ledger, sql) if line.startswith("SCAN") or "TEMP B-TREE" in line]
        assert set(scans) <= ONE_ROW, sql
        assert counted["SQLITE_STMTSTATUS_FULLSCAN_STEP"] <= SCANNED_MAX, sql
        assert not any(counted[f"SQLITE_STMTSTATUS_{name}"] for name in NEVER), sql


def test_a_statement_is_planned_once_and_not_for_every_value(ledger: MessageCassette) -> None:
    fill(ledger)
    planned: list[str | None] = []

    def plan(operation: int, table: str | None, *_: str | None) -> int:
        """Hear of every column that a statement reads: SQLite asks for leave while it plans."""
        if operation == apsw.SQLITE_READ:
            planned.append(table)
        return apsw.SQLITE_OK

    def work(run_id: str) -> None:
        complete(ledger, run_id, ledger.claim_step(run_id, "worker", 1_000))

    ledger._file._connection.authorizer = plan
    work("run")
    assert planned
    planned.clear()
    for run_id in ("other", "run"):
        work(run_id)
    assert not planned


def test_a_scan_and_a_sort_would_be_seen(ledger: MessageCassette) -> None:
    fill(ledger)
    slow = "SELECT step_id FROM cassette_steps WHERE lease_owner = ?1 ORDER BY payload_json"
    ((sql, counted),) = statements_of(
        ledger, lambda: ledger._file.read(lambda connection: connection.execute(slow, ("worker",)).fetchall())
    )
    assert plan_of(ledger, sql) == ["SCAN cassette_steps", "USE TEMP B-TREE FOR ORDER BY"]
    assert counted["SQLITE_STMTSTATUS_FULLSCAN_STEP"] > STEPS
    assert counted["SQLITE_STMTSTATUS_SORT"] == 1
