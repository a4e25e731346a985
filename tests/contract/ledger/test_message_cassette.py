"""The tests that the law document asks for, by their names, over both versions."""

import json
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import NoPendingSteps
from claudemesh.ledger import MessageCassette, MessageCassetteError
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.shells import attacking, dump, newest_shell

RUN = "test_run"

# As the law document lists them; an existing caller may look for any of these.
TABLES = ("cassette_meta", "cassette_messages", "cassette_jobs", "cassette_steps", "cassette_receipts")
TRIGGERS = (
    "tr_messages_append_only_update",
    "tr_messages_append_only_delete",
    "tr_receipts_append_only_update",
    "tr_receipts_append_only_delete",
    "tr_steps_fsm_illegal_1",
    "tr_steps_fsm_illegal_2",
    "tr_steps_fsm_illegal_3",
    "tr_steps_lease_prevent_direct_set",
)
COLUMNS = {
    "cassette_messages": "message_id run_id source idempotency_key payload_json created_at",
    "cassette_jobs": "job_id message_id intent ordinal created_at",
    "cassette_steps": (
        "step_id job_id ordinal status lease_owner lease_expires_at fencing_token payload_json created_at"
    ),
    "cassette_receipts": "receipt_id step_id job_id worker_id fencing_token outcome receipt_json created_at",
}


def refused(path: Path, words: str, *statements: str) -> None:
    """Each statement is refused with the words of its rule, and nothing changes."""
    for sql in statements:
        with newest_shell(path) as shell:
            before = dump(shell)
            with pytest.raises(apsw.ConstraintError, match=words):
                shell(sql)
            assert dump(shell) == before


def commit_one(ledger: MessageCassette) -> str:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1")
    ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"], {"ok": True}, "SUCCESS")
    return str(step["step_id"])


# --- the seven mandatory ones --------------------------------------------------------------------------


@pytest.mark.req("L1", "L2")
def test_messages_append_only_trigger_blocks_update_delete(ledger: MessageCassette, path: Path) -> None:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    refused(
        path,
        "append-only",
        "UPDATE cassette_messages SET payload_json = '{}'",
        "UPDATE cassette_messages SET run_id = 'another'",
        "DELETE FROM cassette_messages",
    )


@pytest.mark.req("L1", "L2")
def test_receipts_append_only_trigger_blocks_update_delete(ledger: MessageCassette, path: Path) -> None:
    commit_one(ledger)
    refused(
        path,
        "append-only",
        "UPDATE cassette_receipts SET outcome = 'FAILURE'",
        "UPDATE cassette_receipts SET receipt_json = '{}'",
        "DELETE FROM cassette_receipts",
    )


@pytest.mark.req("L1", "L2")
def test_fsm_illegal_transition_blocked(ledger: MessageCassette, path: Path) -> None:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    refused(path, "PENDING -> COMMITTED", "UPDATE cassette_steps SET status = 'COMMITTED'")
    step = ledger.claim_step(RUN, "w1")
    refused(path, "LEASED -> PENDING", "UPDATE cassette_steps SET status = 'PENDING'")
    refused(path, "LEASED -> LEASED", "UPDATE cassette_steps SET status = 'LEASED'")
    refused(path, "LEASED -> COMMITTED", "UPDATE cassette_steps SET status = 'COMMITTED'")
    ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"], {}, "SUCCESS")
    refused(path, "COMMITTED -> LEASED", "UPDATE cassette_steps SET status = 'LEASED'")
    refused(path, "COMMITTED -> PENDING", "UPDATE cassette_steps SET status = 'PENDING'")
    refused(path, "COMMITTED -> COMMITTED", "UPDATE cassette_steps SET status = 'COMMITTED'")


@pytest.mark.req("L1", "L3")
def test_claim_deterministic_order(ledger: MessageCassette) -> None:
    jobs = [{"intent": f"job {job}", "steps": [{"at": [1, job, step]} for step in (1, 2)]} for job in (1, 2)]
    ledger.post_message({"jobs": jobs}, RUN, "USER")
    ledger.post_message({"at": [2, 1, 1]}, RUN, "USER")
    claimed = [ledger.claim_step(RUN, "w1") for _ in range(5)]
    assert [step["payload"]["at"] for step in claimed] == [[1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2], [2, 1, 1]]
    assert [step["ordinal"] for step in claimed] == [1, 2, 1, 2, 1]
    with pytest.raises(NoPendingSteps, match="No pending steps"):
        ledger.claim_step(RUN, "w1")


@pytest.mark.req("L4")
def test_complete_rejects_stale_token(ledger: MessageCassette) -> None:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1")
    with pytest.raises(MessageCassetteError, match="Fencing token mismatch"):
        ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"] - 1, {}, "SUCCESS")
    assert ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"], {}, "SUCCESS")


@pytest.mark.req("L4")
def test_complete_rejects_expired_lease(ledger: MessageCassette, clock: LedgerClock) -> None:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1", ttl_seconds=1)
    clock.advance(1)
    with pytest.raises(MessageCassetteError, match="lease expired"):
        ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"], {}, "SUCCESS")
    assert ledger.list_steps(RUN)[0]["status"] == "LEASED", "requeuing is not automatic"


@pytest.mark.req("L1", "L2")
def test_receipt_requires_existing_step_job_fk(ledger: MessageCassette, path: Path) -> None:
    ledger.post_message({"intent": "build"}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1")["step_id"]
    columns = "receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json"
    for parents in ("'no step', 'no job'", f"'{step}', 'no job'"):
        row = f"'r', {parents}, 'w1', 1, 'SUCCESS', '{{}}'"
        refused(path, "FOREIGN KEY", f"INSERT INTO cassette_receipts ({columns}) VALUES ({row})")  # noqa: S608


# --- the adversarial ones: raw SQL, with foreign keys and CHECKs switched off --------------------------


@pytest.mark.req("L2")
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        pytest.param("UPDATE cassette_messages SET source = 'USER'", "append-only", id="direct update on messages"),
        pytest.param(
            "UPDATE cassette_receipts SET worker_id = 'w2'", "append-only", id="direct update on receipts"
        ),
        pytest.param("DELETE FROM cassette_messages", "append-only", id="direct delete on messages"),
        pytest.param("DELETE FROM cassette_receipts", "append-only", id="direct delete on receipts"),
        pytest.param(
            "UPDATE cassette_steps SET status = 'COMMITTED' WHERE status = 'PENDING'",
            "PENDING -> COMMITTED",
            id="direct fsm jump",
        ),
        pytest.param(
            "UPDATE cassette_steps SET lease_owner = 'w2' WHERE status = 'PENDING'",
            "Lease fields can only be set",
            id="direct lease owner",
        ),
        pytest.param(
            "UPDATE cassette_steps SET lease_expires_at = '2037-01-01T00:00:00.000Z' WHERE status = 'PENDING'",
            "Lease fields can only be set",
            id="direct lease end",
        ),
        pytest.param(
            "UPDATE cassette_steps SET fencing_token = 7 WHERE status = 'PENDING'",
            "Lease fields can only be set",
            id="direct fencing token",
        ),
    ],
)
def test_a_raw_bypass_is_blocked_by_the_database(ledger: MessageCassette, path: Path, sql: str, words: str) -> None:
    commit_one(ledger)
    ledger.post_message({"intent": "ship"}, RUN, "USER")
    ledger.close()
    with attacking(path) as shell:
        before = dump(shell)
        with pytest.raises(Exception, match=words):
            shell(sql)
        assert dump(shell) == before


# --- what an existing caller finds ---------------------------------------------------------------------


@pytest.mark.req("L1")
def test_tables_columns_and_triggers_are_those_of_the_law_document(
    ledger: MessageCassette, path: Path, version: int
) -> None:
    ledger.close()
    with newest_shell(path) as shell:
        found = {name for (name,) in shell("SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger')")}
        assert {*TABLES, *TRIGGERS} <= found
        for table, columns in COLUMNS.items():
            names = [row[1] for row in shell(f"PRAGMA table_info({table})")]
            assert names[: len(columns.split())] == columns.split(), table
        meta = dict(shell("SELECT key, value FROM cassette_meta"))
    assert meta["db_version"] == meta["schema_version"] == str(version)


@pytest.mark.req("L1")
def test_a_claim_returns_what_the_law_document_says(ledger: MessageCassette, clock: LedgerClock) -> None:
    message_id, job_id = ledger.post_message({"intent": "build", "n": 1}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1", ttl_seconds=60)
    clock.advance(60)
    assert step == {
        "step_id": f"{job_id}.1",
        "job_id": job_id,
        "message_id": message_id,
        "ordinal": 1,
        "payload": {"intent": "build", "n": 1},
        "fencing_token": 1,
        "lease_expires_at": clock.now,
    }
    json.dumps(step)


@pytest.mark.req("L1")
def test_verify_passes_on_a_ledger_that_was_used(
    ledger: MessageCassette, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_one(ledger)
    ledger.verify_cassette()
    ledger.verify_cassette(RUN)
    assert capsys.readouterr().err == "PASS: All invariants verified\n" * 2
