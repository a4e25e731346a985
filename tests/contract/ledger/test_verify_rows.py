# ruff: noqa: S608 - statements that are put together
"""Rows that the law forbids are found, whatever way they came there: each query of the audit has its violation.

They are planted by a connection whose triggers are switched off, so that the schema shows nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from claudemesh.ledger.stores.sqlite import audit
from tests.contract.ledger.scenes import Scene, set_scene
from tests.contract.ledger.shells import lawless_shell

BOTH, NEW = (1, 2), (2,)


@dataclass(frozen=True)
class Violation:
    query: str
    sql: str
    issue: str
    versions: tuple[int, ...] = BOTH


def steps(change: str, step: str) -> str:
    return f"UPDATE cassette_steps SET {change} WHERE step_id = '{{{step}}}'"


def whole(step: str, status: str) -> str:
    return f"step {{{step}}} is {status} without a whole lease"


def missing(table: str) -> str:
    return f"{table} has rows missing or out of order"


COPY_RECEIPT = (
    "INSERT INTO cassette_receipts (receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json)"
    " SELECT 'r', '{free}', '{free_job}', worker_id, 1, outcome, receipt_json FROM cassette_receipts"
)
RECORD = "(renewal_id, step_id, worker_id, fencing_token, lease_expires_at) VALUES"

VIOLATIONS = [
    Violation("pending_with_lease", steps("lease_owner = 'eve'", "free"), "step {free} is PENDING and has a lease"),
    Violation(
        "pending_with_lease",
        steps("lease_expires_at = '{future}'", "free"),
        "step {free} is PENDING and has a lease",
    ),
    Violation("leased_without_lease", steps("lease_owner = NULL", "held"), whole("held", "LEASED")),
    Violation("leased_without_lease", steps("lease_owner = ''", "held"), whole("held", "LEASED")),
    Violation("leased_without_lease", steps("lease_expires_at = NULL", "held"), whole("held", "LEASED")),
    Violation("leased_without_lease", steps("lease_expires_at = 'soon'", "held"), whole("held", "LEASED")),
    Violation("leased_without_lease", steps("lease_expires_at = NULL", "done"), whole("done", "COMMITTED")),
    Violation("leased_without_lease", steps("fencing_token = 0", "held"), whole("held", "LEASED")),
    Violation("unknown_status", steps("status = 'DONE'", "free"), "step {free} has status DONE"),
    Violation(
        "unknown_words",
        "UPDATE cassette_messages SET source = 'EVE' WHERE message_id = '{other}'",
        "message {other} has source EVE",
    ),
    Violation(
        "unknown_words", "UPDATE cassette_receipts SET outcome = 'FINE'", "receipt {receipt} has outcome FINE"
    ),
    Violation(
        "committed_without_receipt", "DELETE FROM cassette_receipts", "step {done} is COMMITTED without its receipt"
    ),
    Violation(
        "committed_without_receipt",
        steps("status = 'COMMITTED'", "held"),
        "step {held} is COMMITTED without its receipt",
    ),
    Violation(
        "committed_without_receipt",
        "UPDATE cassette_receipts SET fencing_token = 7",
        "step {done} is COMMITTED without its receipt",
    ),
    Violation(
        "committed_without_receipt",
        "UPDATE cassette_receipts SET worker_id = 'eve'",
        "step {done} is COMMITTED without its receipt",
    ),
    Violation(
        "receipt_without_commit",
        steps("status = 'LEASED'", "done"),
        "receipt {receipt} is for a step that is not COMMITTED",
    ),
    Violation("receipt_without_commit", COPY_RECEIPT, "receipt r is for a step that is not COMMITTED"),
    Violation(
        "receipt_too_late",
        "UPDATE cassette_receipts SET created_at = s.lease_expires_at FROM cassette_steps AS s"
        " WHERE s.step_id = '{done}'",
        "receipt {receipt} was written after its lease ended",
    ),
    Violation(
        "receipt_twice",
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_schema SET sql = replace(sql, ' UNIQUE REF', ' REF') WHERE name = 'cassette_receipts';"
        "DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_cassette_receipts_2';"
        f"PRAGMA writable_schema = RESET; {COPY_RECEIPT.replace('{free}', '{done}')}",
        "step {done} has 2 receipts",
    ),
    Violation(
        "orphans",
        "DELETE FROM cassette_messages WHERE message_id = '{other}'",
        "job {other_job} belongs to no message",
    ),
    Violation("orphans", "DELETE FROM cassette_jobs WHERE job_id = '{other_job}'", "step {last} belongs to no job"),
    Violation(
        "orphans",
        "UPDATE cassette_receipts SET job_id = '{job_2}'",
        "receipt {receipt} belongs to no step of its job",
    ),
    Violation("holes", "DELETE FROM cassette_messages WHERE rowid = 2", missing("cassette_messages")),
    Violation("holes", "UPDATE cassette_messages SET rowid = 9 WHERE rowid = 3", missing("cassette_messages")),
    Violation("holes", "UPDATE cassette_jobs SET rowid = -5 WHERE rowid = 1", missing("cassette_jobs")),
    Violation("holes", "DELETE FROM cassette_steps WHERE rowid = 1", missing("cassette_steps")),
    Violation("holes", "UPDATE cassette_receipts SET rowid = 2", missing("cassette_receipts")),
    Violation("tokens", steps("fencing_token = 2", "held"), "step {held} has token 2"),
    Violation("tokens", steps("fencing_token = 5", "free"), "step {free} has token 5"),
    Violation(
        "tokens",
        "UPDATE cassette_requeues SET fencing_token = 2",
        "step {late} has token 2, is LEASED, and was requeued 1 times",
        NEW,
    ),
    Violation(
        "tokens", "DELETE FROM cassette_requeues", "step {late} has token 2, is LEASED, and was requeued 0", NEW
    ),
    Violation(
        "renewals",
        steps("lease_expires_at = '{future}'", "held"),
        "step {held} has a lease that is not the one last renewed",
        NEW,
    ),
    Violation(
        "requeued_too_soon",
        "UPDATE cassette_requeues SET created_at = '{past}'",
        "requeue {requeue} was written before its lease ended",
        NEW,
    ),
    Violation(
        "requeued_not_as_renewed",
        f"INSERT INTO cassette_renewals {RECORD} ('n', '{{late}}', 'cat', 1, '{{future}}')",
        "requeue {requeue} is of a lease that is not the one last renewed",
        NEW,
    ),
    Violation(
        "renewed_by_another",
        f"INSERT INTO cassette_renewals {RECORD} ('n', '{{held}}', 'eve', 1, '{{future}}')",
        "renewal n is of another lease than its step's",
        NEW,
    ),
    Violation(
        "renewed_by_another",
        f"INSERT INTO cassette_renewals {RECORD} ('n', '{{held}}', 'ben', 7, '{{future}}')",
        "renewal n is of another lease than its step's",
        NEW,
    ),
    *(
        Violation("order_of_steps", steps(change, "free"), "step {free} is not where its job and message are", NEW)
        for change in ("run_id = 'weekly'", "run_id = NULL", "message_order = 3", "job_ordinal = 2")
    ),
    Violation("holes_of_records", "UPDATE cassette_requeues SET rowid = 2", missing("cassette_requeues"), NEW),
    Violation("holes_of_records", "UPDATE cassette_renewals SET rowid = 2", missing("cassette_renewals"), NEW),
    Violation(
        "orphans_of_records",
        "UPDATE cassette_requeues SET step_id = 'nobody'",
        "requeue {requeue} belongs to no step",
        NEW,
    ),
    Violation("orphans_of_records", "UPDATE cassette_renewals SET step_id = 'nobody'", "belongs to no step", NEW),
    Violation(
        "chained_twice",
        "INSERT INTO cassette_chain VALUES ({next}, 'receipt', '{receipt}', '{end}', '{hash}')",
        "chain: receipt {receipt} is chained 2 times",
        NEW,
    ),
    *(
        Violation(
            "unchained",
            f"DELETE FROM cassette_chain WHERE kind = '{kind}'",
            "was written outside of it",
            NEW,
        )
        for kind in ("message", "receipt", "requeue", "renewal")
    ),
    Violation(
        "expired",
        steps("lease_expires_at = '{past}'", "held"),
        "lease expired: step {held} of run nightly, held by ben until {past}",
    ),
]
CASES = [
    pytest.param(version, one, id=f"{version}: {one.query}: {one.issue} ({number})")
    for number, one in enumerate(VIOLATIONS)
    for version in one.versions
]


@pytest.mark.req("L6")
@pytest.mark.parametrize(("version", "violation"), CASES)
def test_a_row_that_the_law_forbids_is_found(tmp_path: Path, version: int, violation: Violation) -> None:
    scene = set_scene(tmp_path, version)
    with lawless_shell(scene.path) as shell:
        shell(scene.fill(violation.sql))
    found = scene.issues()
    assert any(scene.fill(violation.issue) in issue for issue in found), found


def test_every_query_of_the_audit_has_its_violation() -> None:
    queries = {
        version: {*audit._ALWAYS.names(), *audit._OF[version].names(), *audit._EXPIRED.names()} for version in BOTH
    }
    tested = {version: {one.query for one in VIOLATIONS if version in one.versions} for version in BOTH}
    assert tested == queries


@pytest.mark.req("L6")
def test_a_reference_to_nothing_and_a_torn_index_are_found(scene: Scene) -> None:
    with lawless_shell(scene.path) as shell:
        shell("PRAGMA writable_schema = ON")
        root = "(SELECT rootpage FROM sqlite_schema WHERE name = 'cassette_meta')"
        shell(f"UPDATE sqlite_schema SET rootpage = {root} WHERE name = 'sqlite_autoindex_cassette_receipts_1'")
        shell(scene.fill("UPDATE cassette_jobs SET message_id = 'nobody' WHERE job_id = '{other_job}'"))
    found = scene.issues()
    assert any(issue.startswith("FOREIGN KEY: row 4 of cassette_jobs") for issue in found), found
    assert any("integrity" in issue or "malformed" in issue for issue in found), found


@pytest.mark.req("L7", "L10")
@pytest.mark.parametrize("version", [1], indirect=True)
def test_unlawful_rows_are_not_upgraded(scene: Scene) -> None:
    """The chain would vouch for them."""
    with lawless_shell(scene.path) as shell:
        shell(scene.fill(steps("status = 'COMMITTED'", "held")))
    with scene.ledger() as ledger:
        with pytest.raises(Exception, match=r"not lawful, and is not upgraded: .* COMMITTED without its receipt"):
            ledger.upgrade()
        assert ledger.read_version() == 1
