"""In the ledger's law: a condition that was left out, or that looks the wrong way."""

from tests.requirements import Fault

_STORE = "ledger/stores/sqlite"
_V1 = f"{_STORE}/law/v1.sql"
_V2 = f"{_STORE}/law/v2.sql"

_HERE = "tests/contract/ledger"
_ATTACKS = f"{_HERE}/test_attacks.py"
_CLAIMS = f"{_HERE}/test_claims.py"
_TEMP = f"{_HERE}/test_temp_triggers.py"
_UPGRADE = f"{_HERE}/test_upgrade.py"

_REPLACING = f"{_ATTACKS}::test_no_row_takes_the_place_of_another"
_PLACING = f"{_ATTACKS}::test_nobody_chooses_where_a_row_stands"
_REWRITING = f"{_ATTACKS}::test_what_was_written_is_neither_changed_nor_deleted"
_MALFORMED = f"{_ATTACKS}::test_what_is_no_row_of_a_ledger_is_not_inserted"
_SKIPPING = f"{_ATTACKS}::test_a_step_is_in_no_state_that_it_did_not_come_to"
_LEASING = f"{_ATTACKS}::test_a_lease_is_whole_and_raises_the_token_by_one"
_RECEIPTING = f"{_ATTACKS}::test_a_receipt_is_for_the_live_lease_and_for_no_other"
_RECORDS = f"{_ATTACKS}::test_records_and_the_order_of_steps_are_neither_changed_nor_deleted"
_GROWING = f"{_ATTACKS}::test_a_chained_message_takes_no_more_jobs_and_steps"
_CLAIMING = f"{_ATTACKS}::test_a_lease_is_longer_only_with_a_record_and_claimed_now"
_REQUEUING = f"{_ATTACKS}::test_a_requeue_is_of_the_lease_that_expired_and_once"
_RENEWING = f"{_ATTACKS}::test_a_renewal_is_of_the_live_lease_and_never_shortens_it"
_CHAINING = f"{_ATTACKS}::test_the_chain_grows_by_one_fitting_link_at_its_end"

MUTANTS: tuple[Fault, ...] = (
    # --- the law, version 1 ----------------------------------------------------------------------
    Fault(
        what="A message under the key of another takes its place.",
        file=_V1,
        old="SELECT 1 FROM cassette_messages WHERE run_id = NEW.run_id AND idempotency_key = NEW.idempotency_key",
        new="SELECT 1 FROM cassette_messages WHERE rowid < 0",
        test=_REPLACING,
    ),
    Fault(
        what="A job under the ordinal of another takes its place.",
        file=_V1,
        old="SELECT 1 FROM cassette_jobs WHERE message_id = NEW.message_id AND ordinal = NEW.ordinal",
        new="SELECT 1 FROM cassette_jobs WHERE message_id = NEW.message_id AND ordinal > NEW.ordinal + 99",
        test=_REPLACING,
    ),
    Fault(
        what="A receipt under the id of another takes its place.",
        file=_V1,
        old="SELECT 1 FROM cassette_receipts WHERE receipt_id = NEW.receipt_id OR rowid = NEW.rowid",
        new="SELECT 1 FROM cassette_receipts WHERE rowid = NEW.rowid",
        test=_REPLACING,
    ),
    Fault(
        what="A message may leave a gap before itself.",
        file=_V1,
        old="CREATE TRIGGER tr_messages_in_order AFTER INSERT ON cassette_messages\nWHEN NEW.rowid IS NOT (",
        new="CREATE TRIGGER tr_messages_in_order AFTER INSERT ON cassette_messages\nWHEN NEW.rowid < (",
        test=_PLACING,
    ),
    Fault(
        what="A source that is NULL is none that is forbidden.",
        file=_V1,
        old="    WHEN coalesce(NEW.source, '') NOT IN (",
        new="    WHEN NEW.source NOT IN (",
        test=_MALFORMED,
    ),
    Fault(
        what="What is no JSON is left to a CHECK that can be switched off.",
        file=_V1,
        old="    WHEN NOT coalesce(json_valid(NEW.receipt_json), 0)\n"
        "      THEN RAISE(ABORT, 'CHECK: receipt_json is not JSON')\n",
        new="",
        test=_MALFORMED,
    ),
    Fault(
        what="A job's parent is left to a foreign key that can be switched off.",
        file=_V1,
        old="    WHEN NOT EXISTS (SELECT 1 FROM cassette_messages WHERE message_id = NEW.message_id)\n"
        "      THEN RAISE(ABORT, 'FOREIGN KEY: a job belongs to a message')\n",
        new="",
        test=_MALFORMED,
    ),
    Fault(
        what="Jobs can be changed.",
        file=_V1,
        old="CREATE TRIGGER tr_jobs_append_only_update BEFORE UPDATE ON cassette_jobs\n",
        new="CREATE TRIGGER tr_jobs_append_only_update BEFORE UPDATE OF job_id ON cassette_jobs\n",
        test=_REWRITING,
    ),
    Fault(
        what="A step can be moved to another job.",
        file=_V1,
        old=" OR NEW.job_id IS NOT OLD.job_id\n",
        new="\n",
        test=_REWRITING,
    ),
    Fault(
        what="A column that becomes NULL does not count as changed.",
        file=_V1,
        old="  OR NEW.ordinal IS NOT OLD.ordinal OR",
        new="  OR NEW.ordinal <> OLD.ordinal OR",
        test=_REWRITING,
    ),
    Fault(
        what="The version can be updated by hand.",
        file=_V1,
        old="CREATE TRIGGER tr_meta_append_only_delete BEFORE DELETE ON cassette_meta\n",
        new="CREATE TRIGGER tr_meta_append_only_delete BEFORE DELETE ON cassette_meta WHEN OLD.key = 'x'\n",
        test=_REWRITING,
    ),
    Fault(
        what="Whose ledger it is can be said again.",
        file=_V1,
        old="EXISTS (SELECT 1 FROM cassette_meta WHERE key = 'ledger_id' OR rowid = NEW.rowid)",
        new="EXISTS (SELECT 1 FROM cassette_meta WHERE rowid = NEW.rowid)",
        test=_REPLACING,
    ),
    Fault(
        what="A step can be posted as if it had been claimed.",
        file=_V1,
        old="    WHEN NEW.status IS NOT 'PENDING'\n",
        new="    WHEN NEW.status = 'DONE'\n",
        test=_SKIPPING,
    ),
    Fault(
        what="A step can be posted with a token of its choice.",
        file=_V1,
        old=" OR NEW.fencing_token IS NOT 0\n",
        new="\n",
        test=_SKIPPING,
    ),
    Fault(
        what="What is committed can be claimed again.",
        file=_V1,
        old="WHEN OLD.status = 'COMMITTED' AND NEW.status = 'LEASED'\n",
        new="WHEN OLD.status = 'COMMITTED' AND NEW.status = 'LEASED' AND NEW.lease_owner IS NULL\n",
        test=_SKIPPING,
    ),
    Fault(
        what="A lease needs no owner.",
        file=_V1,
        old="    WHEN coalesce(NEW.lease_owner, '') = ''\n"
        "      THEN RAISE(ABORT, 'Lease fields can only be set together: a lease has an owner')\n",
        new="",
        test=_LEASING,
    ),
    Fault(
        what="A lease may be over when it begins.",
        file=_V1,
        old="    WHEN NEW.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')\n",
        new="    WHEN NEW.lease_expires_at < '2000'\n",
        test=_LEASING,
    ),
    Fault(
        what="A step that nobody claimed can have an owner.",
        file=_V1,
        old="  NEW.lease_owner IS NOT OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at\n"
        "  OR NEW.fencing_token IS NOT OLD.fencing_token\n)",
        new="  NEW.lease_owner <> OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at\n"
        "  OR NEW.fencing_token IS NOT OLD.fencing_token\n)",
        test=_LEASING,
    ),
    Fault(
        what="A receipt may name another job.",
        file=_V1,
        old="    WHEN s.step_id IS NULL OR s.job_id IS NOT NEW.job_id\n",
        new="    WHEN s.step_id IS NULL\n",
        test=_RECEIPTING,
    ),
    Fault(
        what="Anybody may hand in a receipt under the token of a lease.",
        file=_V1,
        old="    WHEN s.lease_owner IS NOT NEW.worker_id\n",
        new="    WHEN s.lease_owner <> NEW.worker_id AND NEW.worker_id = ''\n",
        test=_RECEIPTING,
    ),
    Fault(
        what="Ours do not look whether what they asked for happened.",
        file=_V1,
        old="  WHERE (SELECT status FROM cassette_steps WHERE step_id = NEW.step_id) IS NOT 'COMMITTED';\n",
        new="  WHERE 0;\n",
        test=f"{_TEMP}::test_a_trigger_that_skips_what_ours_do_gets_the_statement_refused",
    ),
    Fault(
        what="A receipt may be dated back into its lease.",
        file=_V1,
        old="    WHEN NEW.created_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')\n",
        new="    WHEN NEW.created_at IS NULL\n",
        test=_MALFORMED,
    ),
    # --- the law, version 2 ----------------------------------------------------------------------
    Fault(
        what="A requeue may name another worker than the one whose lease expired.",
        file=_V2,
        old="    WHEN s.lease_owner IS NOT NEW.worker_id OR s.lease_expires_at IS NOT NEW.lease_expires_at\n",
        new="    WHEN s.lease_expires_at IS NOT NEW.lease_expires_at\n",
        test=_REQUEUING,
    ),
    Fault(
        what="A step is freed without the record of a requeue.",
        file=_V2,
        old="FROM cassette_requeues WHERE step_id = OLD.step_id AND fencing_token = OLD.fencing_token\n",
        new="FROM cassette_requeues WHERE step_id = OLD.step_id\n",
        test=_SKIPPING,
    ),
    Fault(
        what="A requeue leaves the lease to whoever frees the step.",
        file=_V2,
        old="    WHEN NEW.lease_owner IS NOT NULL OR NEW.lease_expires_at IS NOT NULL\n"
        "      OR NEW.fencing_token IS NOT OLD.fencing_token OR NEW.claimed_at IS NOT OLD.claimed_at\n",
        new="    WHEN NEW.lease_owner IS NOT NULL OR NEW.lease_expires_at IS NOT NULL\n",
        test=f"{_TEMP}::test_a_requeue_that_frees_nothing_lets_nobody_keep_the_lease",
    ),
    Fault(
        what="A lease is longer without the record of a renewal.",
        file=_V2,
        old="    WHEN NOT coalesce(NEW.lease_expires_at > OLD.lease_expires_at, 0) OR NOT EXISTS (\n",
        new="    WHEN NOT coalesce(NEW.lease_expires_at > OLD.lease_expires_at, 0) OR EXISTS (\n"
        "      SELECT 1 WHERE 0) AND NOT EXISTS (\n",
        test=_CLAIMING,
    ),
    Fault(
        what="A renewal may end the lease earlier.",
        file=_V2,
        old="      OR NOT coalesce(NEW.lease_expires_at > s.lease_expires_at, 0)\n",
        new="      OR NEW.lease_expires_at IS NULL\n",
        test=_RENEWING,
    ),
    Fault(
        what="A renewal revives a lease that is over.",
        file=_V2,
        old="    WHEN NOT coalesce(s.lease_expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)\n",
        new="    WHEN NOT coalesce(s.lease_expires_at > '2000', 0)\n",
        test=_RENEWING,
    ),
    Fault(
        what="The order of a step can be changed.",
        file=_V2,
        old="    WHEN OLD.run_id IS NOT NULL OR OLD.status <> 'PENDING' OR NEW.status <> 'PENDING' OR NOT EXISTS (",
        new="    WHEN OLD.run_id IS NULL AND NOT EXISTS (",
        test=_RECORDS,
    ),
    Fault(
        what="A step that does not say its order has none.",
        file=_V2,
        old="WHEN NEW.run_id IS NULL\nBEGIN\n",
        new="WHEN NEW.run_id IS NULL AND NEW.status <> 'PENDING'\nBEGIN\n",
        test=f"{_CLAIMS}::test_a_step_written_by_raw_sql_is_claimed_like_any_other",
    ),
    Fault(
        what="A step may say that it stands elsewhere than its job.",
        file=_V2,
        old="      WHERE j.job_id = NEW.job_id AND NEW.run_id = m.run_id AND NEW.message_order = m.rowid\n"
        "        AND NEW.job_ordinal = j.ordinal\n"
        "    ) THEN RAISE(ABORT, 'append-only: the order of a step is that of its job and message')\n"
        "    WHEN EXISTS (\n",
        new="      WHERE j.job_id = NEW.job_id\n"
        "    ) THEN RAISE(ABORT, 'append-only: the order of a step is that of its job and message')\n"
        "    WHEN EXISTS (\n",
        test=f"{_ATTACKS}::test_an_order_is_that_of_job_and_message",
    ),
    Fault(
        what="A chained message takes another job.",
        file=_V2,
        old="WHEN EXISTS (SELECT 1 FROM cassette_chain WHERE kind = 'message' AND row_id = NEW.message_id)\n",
        new="WHEN EXISTS (SELECT 1 FROM cassette_chain WHERE kind = 'job' AND row_id = NEW.message_id)\n",
        test=_GROWING,
    ),
    Fault(
        what="The chain takes a link anywhere.",
        file=_V2,
        old="    WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM cassette_chain)\n",
        new="    WHEN NEW.seq < 1\n",
        test=_CHAINING,
    ),
    Fault(
        what="A link need not follow the one before.",
        file=_V2,
        old="    WHEN NEW.previous_hash IS NOT coalesce(\n",
        new="    WHEN NEW.previous_hash = '' AND '' <> coalesce(\n",
        test=_CHAINING,
    ),
    Fault(
        what="A link may be of a row that is not there.",
        file=_V2,
        old="      WHEN 'renewal' THEN EXISTS (SELECT 1 FROM cassette_renewals WHERE renewal_id = NEW.row_id)\n",
        new="      WHEN 'renewal' THEN 1\n",
        test=_CHAINING,
    ),
    Fault(
        what="Records of requeues can be deleted.",
        file=_V2,
        old="tr_requeues_append_only_delete BEFORE DELETE ON cassette_requeues\n",
        new="tr_requeues_append_only_delete BEFORE DELETE ON cassette_requeues WHEN OLD.step_id = ''\n",
        test=_RECORDS,
    ),
    Fault(
        what="An upgrade fills in the order of what is pending only.",
        file=_V2,
        old="  WHERE j.job_id = cassette_steps.job_id\n);",
        new="  WHERE j.job_id = cassette_steps.job_id\n) WHERE status = 'PENDING';",
        test=f"{_UPGRADE}::test_everything_that_stands_is_kept_live_leases_too",
    ),
)
