"""Contract 6: the ledger."""

from tests.requirements.ledgered import LEDGERED
from tests.requirements.model import Fault, Requirement

_STORE = "ledger/stores/sqlite"
_V1 = f"{_STORE}/law/v1.sql"
_V2 = f"{_STORE}/law/v2.sql"
_ENTRIES = f"{_STORE}/entries.py"

_HERE = "tests/contract/ledger"
_SEED = f"{_HERE}/test_message_cassette.py"
_ATTACKS = f"{_HERE}/test_attacks.py"
_CHAIN = f"{_HERE}/test_chain.py"
_CLAIMS = f"{_HERE}/test_claims.py"
_COMPLETIONS = f"{_HERE}/test_completions.py"
_POSTS = f"{_HERE}/test_posts.py"
_REQUEUES = f"{_HERE}/test_requeues.py"
_UPGRADE = f"{_HERE}/test_upgrade.py"
_VERIFY = f"{_HERE}/test_verify.py"
_NOTICES = f"{_VERIFY}::test_a_ledger_that_is_open_notices_at_its_next_write_and_goes_on_when_it_is_repaired"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "L1",
        "Tables, triggers and error words are those callers rely on.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="A refusal says the same in other words, which no caller looks for.",
                file=_V1,
                old="'append-only: cassette_messages takes no UPDATE'",
                new="'read-only: cassette_messages takes no UPDATE'",
                test=f"{_SEED}::test_messages_append_only_trigger_blocks_update_delete",
            ),
            Fault(
                what="A run without work is told so in words of its own.",
                file=_ENTRIES,
                old='f"No pending steps in run {run_id!r}',
                new='f"Nothing to claim in run {run_id!r}',
                test=f"{_SEED}::test_claim_deterministic_order",
            ),
            Fault(
                what="A trigger that callers look for has another name.",
                file=_V1,
                old="CREATE TRIGGER tr_receipts_append_only_update BEFORE",
                new="CREATE TRIGGER tr_receipts_no_update BEFORE",
                test=f"{_SEED}::test_tables_columns_and_triggers_are_those_of_the_law_document",
            ),
            Fault(
                what="A claim does not say until when.",
                file=_ENTRIES,
                old="    claimed = dict(zip(CLAIMED, (*step, *lease), strict=True))\n",
                new="    claimed = dict(zip(CLAIMED[:-1], (*step, lease[0]), strict=True))\n",
                test=f"{_SEED}::test_a_claim_returns_what_the_law_document_says",
            ),
        ),
    ),
    Requirement(
        "L2",
        "No raw SQL breaks the ledger; a lost trigger stops writes.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="The last message can be replaced under its rowid.",
                file=_V1,
                old="SELECT 1 FROM cassette_messages WHERE message_id = NEW.message_id OR rowid = NEW.rowid",
                new="SELECT 1 FROM cassette_messages WHERE message_id = NEW.message_id",
                test=f"{_ATTACKS}::test_nobody_chooses_where_a_row_stands",
            ),
            Fault(
                what="A status of NULL is none that is forbidden.",
                file=_V1,
                old="WHEN coalesce(NEW.status, '') NOT IN ('PENDING', 'LEASED', 'COMMITTED')",
                new="WHEN NEW.status NOT IN ('PENDING', 'LEASED', 'COMMITTED')",
                test=f"{_ATTACKS}::test_a_step_is_in_no_state_that_it_did_not_come_to",
            ),
            Fault(
                what="A step is committed by an UPDATE alone.",
                file=_V1,
                old="WHEN OLD.status = 'PENDING' AND NEW.status = 'COMMITTED'",
                new="WHEN OLD.status = 'PENDING' AND NEW.status = 'COMMITTED' AND NEW.lease_owner IS NOT NULL",
                test=f"{_ATTACKS}::test_a_step_is_in_no_state_that_it_did_not_come_to",
            ),
            Fault(
                what="A thirtieth of February is an instant to an old SQLite.",
                file=_V2,
                old="IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', NEW.lease_expires_at, '+0 days')\n"
                "      OR NEW.lease_expires_at IS NULL\n",
                new="IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', NEW.lease_expires_at)\n"
                "      OR NEW.lease_expires_at IS NULL\n",
                test=f"{_ATTACKS}::test_a_lease_is_whole_and_raises_the_token_by_one",
            ),
            Fault(
                what="A trigger that is missing is forgiven as long as none was added.",
                file=f"{_STORE}/law/__init__.py",
                old="    return [] if found == law else list(_tell_apart(law, found))",
                new="    return [] if found <= law else list(_tell_apart(law, found))",
                test=f"{_VERIFY}::test_a_dropped_trigger_is_reported_and_stops_every_write",
            ),
            Fault(
                what="The schema is looked at once, when the first write comes.",
                file=f"{_STORE}/file.py",
                old="        if seen == self._seen and self._is_parsed:\n",
                new="        if self._seen is not None:\n",
                test=_NOTICES,
            ),
        ),
    ),
    Requirement(
        "L3",
        "Claims follow one order, never overlap, and raise the token.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="Version 1 claims by the clock.",
                file=f"{_STORE}/entries_v1.sql",
                old="ORDER BY m.rowid, j.ordinal, s.ordinal LIMIT 1",
                new="ORDER BY m.created_at, j.ordinal, s.ordinal LIMIT 1",
                test=f"{_CLAIMS}::test_a_clock_that_steps_back_or_forward_changes_no_order",
            ),
            Fault(
                what="Version 2 forgets which job comes first.",
                file=f"{_STORE}/entries_v2.sql",
                old="ORDER BY s.message_order, s.job_ordinal, s.ordinal LIMIT 1",
                new="ORDER BY s.message_order, s.ordinal, s.job_ordinal LIMIT 1",
                test=f"{_CLAIMS}::test_steps_are_claimed_by_message_then_job_then_step",
            ),
            Fault(
                what="Whoever asks gets the work of any run.",
                file=f"{_STORE}/entries_v1.sql",
                old="WHERE s.status = 'PENDING' AND m.run_id = ?1",
                new="WHERE s.status = 'PENDING' AND ?1 = ?1",
                test=f"{_CLAIMS}::test_runs_are_apart",
            ),
            Fault(
                what="A claim keeps the token of the claim before.",
                file=_V2,
                old="    WHEN NEW.fencing_token IS NOT OLD.fencing_token + 1\n"
                "      THEN RAISE(ABORT, 'Fencing token mismatch: a claim raises it by one')\n",
                new="",
                test=f"{_ATTACKS}::test_a_lease_is_whole_and_raises_the_token_by_one",
            ),
        ),
    ),
    Requirement(
        "L4",
        "A wrong completion is refused by name; a right one is atomic.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="The worker of an older claim may complete.",
                file=_V1,
                old="    WHEN s.fencing_token IS NOT NEW.fencing_token\n"
                "      THEN RAISE(ABORT, 'Fencing token mismatch: the step is held under another token')\n",
                new="",
                test=f"{_SEED}::test_complete_rejects_stale_token",
            ),
            Fault(
                what="A lease still counts at the instant at which it ends.",
                file=_V1,
                old="NOT coalesce(s.lease_expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)",
                new="NOT coalesce(s.lease_expires_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)",
                test=f"{_SEED}::test_complete_rejects_expired_lease",
            ),
            Fault(
                what="Any run completes any step.",
                file=_ENTRIES,
                old='    if rows[0]["run_id"] != run_id:\n',
                new='    if not rows[0]["run_id"]:\n',
                test=f"{_COMPLETIONS}::test_each_refusal_has_its_own_words",
            ),
            Fault(
                what="A receipt is there before its step is committed.",
                file=_V1,
                old="  UPDATE cassette_steps SET status = 'COMMITTED' WHERE step_id = NEW.step_id;\n"
                "  SELECT RAISE(ABORT, 'Illegal transition: a receipt commits its step')\n"
                "  WHERE (SELECT status FROM cassette_steps WHERE step_id = NEW.step_id) IS NOT 'COMMITTED';\n",
                new="  SELECT 1;\n",
                test=f"{_COMPLETIONS}::test_receipt_and_commit_land_together",
            ),
        ),
    ),
    Requirement(
        "L5",
        "A post is idempotent per key; another payload conflicts.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="The first payload answers for whatever comes under its key.",
                file=_ENTRIES,
                old="    if (source, payload_json) != (post.source, post.payload_json):\n",
                new="    if source != post.source:\n",
                test=f"{_POSTS}::test_the_same_key_for_another_message_is_a_conflict_and_changes_nothing",
            ),
            Fault(
                what="A key stands for a message of any run.",
                file=f"{_STORE}/entries.sql",
                old=") FROM cassette_messages AS m WHERE m.run_id = ?1 AND m.idempotency_key = ?2",
                new=") FROM cassette_messages AS m WHERE ?1 = ?1 AND m.idempotency_key = ?2",
                test=f"{_POSTS}::test_a_key_is_of_its_run",
            ),
            Fault(
                what="The same payload in another order is another payload.",
                file="ledger/policy.py",
                old=', separators=(",", ":"), sort_keys=True)',
                new=', separators=(",", ":"))',
                test=f"{_POSTS}::test_the_same_post_under_the_same_key_is_the_same_message",
            ),
        ),
    ),
    Requirement(
        "L6",
        "Verify passes or counts the issues, and exits 0 or 1.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="Nobody looks for leases that ended.",
                file=f"{_STORE}/audit.py",
                old='_careful(lambda: _words(connection, _EXPIRED["expired"], run_id), "leases cannot be read")\n',
                new="[]\n",
                test=f"{_VERIFY}::test_a_lease_that_expired_is_an_issue_of_its_run",
            ),
            Fault(
                what="The leases of all runs are held against one.",
                file=f"{_STORE}/expired.sql",
                old="\n  AND (?1 IS NULL OR m.run_id = ?1)",
                new="\n  AND ?1 IS ?1",
                test=f"{_VERIFY}::test_a_lease_that_expired_is_an_issue_of_its_run",
            ),
            Fault(
                what="The verdict counts one for all.",
                file="ledger/api.py",
                old='f"FAIL: {len(issues)} issue(s) found"',
                new='f"FAIL: {len(issues[:1])} issue(s) found"',
                test=f"{_VERIFY}::test_all_that_is_wrong_is_counted",
            ),
            Fault(
                what="What is wrong is printed and then forgotten.",
                file="ledger/api.py",
                old='            raise MessageCassetteError("; ".join(issues), issues=issues)\n',
                new="            return\n",
                test=f"{_VERIFY}::test_all_that_is_wrong_is_counted",
            ),
        ),
    ),
    Requirement(
        "L7",
        "Version 2 adds requeue and renewal; upgrading is explicit.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="What is committed cannot be upgraded, since the law forbids to touch it.",
                file=_V2,
                old="DROP TRIGGER tr_steps_fsm_illegal_5; --",
                new="DROP TRIGGER tr_steps_fsm_illegal_5;\n"
                "CREATE TRIGGER tr_for_now BEFORE UPDATE ON cassette_steps WHEN OLD.status = 'COMMITTED' BEGIN\n"
                "  SELECT RAISE(ABORT, 'COMMITTED -> COMMITTED'); END; --",
                test=f"{_UPGRADE}::test_everything_that_stands_is_kept_live_leases_too",
            ),
            Fault(
                what="A step is requeued while its lease is live.",
                file=_V2,
                old="    WHEN NOT coalesce(s.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)\n",
                new="    WHEN s.lease_expires_at IS NULL\n",
                test=f"{_REQUEUES}::test_a_step_is_requeued_after_its_lease_expired_and_not_before",
            ),
            Fault(
                what="A renewal takes away time that was granted.",
                file=f"{_STORE}/entries.sql",
                old="  max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?6), ",
                new="  coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?6), ",
                test=f"{_REQUEUES}::test_a_renewal_never_takes_time_away",
            ),
            Fault(
                what="Who had the ledger open goes on by the old version.",
                file=f"{_STORE}/file.py",
                old="self._version, self._lawful = version or 0, schema\n",
                new="self._version, self._lawful = self._version or version or 0, schema\n",
                test=f"{_UPGRADE}::test_who_had_it_open_writes_version_2_from_then_on",
            ),
            Fault(
                what="A ledger is upgraded by the first requeue.",
                file=_ENTRIES,
                old="    if version < law.REQUEUED_SINCE:\n",
                new="    if version < 1:\n",
                test=f"{_REQUEUES}::test_version_1_says_that_it_has_neither",
            ),
        ),
    ),
    Requirement(
        "L8",
        "The ledger only records: jobs posted, nothing executed.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="A lease may last no time at all.",
                file="ledger/policy.py",
                old="    if not TTL_S_MIN <= ttl_seconds <= TTL_S_MAX:",
                new="    if not 0 <= ttl_seconds <= TTL_S_MAX:",
                test=f"{_POSTS}::test_a_time_to_live_is_above_zero_and_below_a_year",
            ),
            Fault(
                what="Only the first job of a payload is posted.",
                file="ledger/policy.py",
                old="    return [_parse_job(job, place, fallback) for place, job in enumerate(jobs, start=1)]",
                new="    return [_parse_job(job, place, fallback) for place, job in enumerate(jobs[:1], start=1)]",
                test=f"{_POSTS}::test_jobs_of_a_payload_become_jobs_with_their_steps",
            ),
            Fault(
                what="A number that JSON has no word for is written down.",
                file="ledger/policy.py",
                old="allow_nan=False",
                new="allow_nan=True",
                test="tests/unit/ledger/test_policy.py::test_what_json_has_no_word_for_is_refused",
            ),
            Fault(
                what="A job without steps is a job.",
                file="ledger/policy.py",
                old="    if not isinstance(steps, list) or not steps:\n",
                new="    if not isinstance(steps, list):\n",
                test=f"{_POSTS}::test_a_payload_that_cannot_be_written_down_is_invalid_and_nothing_is_stored",
            ),
        ),
    ),
    Requirement(
        "L9",
        "A queue message is posted once and its receipt is the reply.",
        "contract 6",
        "proven",
        faults=LEDGERED,
    ),
    Requirement(
        "L10",
        "A hash chain and a signed head betray any rewrite.",
        "contract 6",
        "proven",
        faults=(
            Fault(
                what="A link does not depend on the one before.",
                file="kernel/chain.py",
                old="sha256(bytes.fromhex(previous) + canonicalize(",
                new="sha256(canonicalize(",
                test="tests/unit/kernel/test_chain.py::test_whatever_changes_changes_the_link",
            ),
            Fault(
                what="The steps of a message are left out of its link.",
                file=f"{_STORE}/chain.py",
                old='        row["steps"] = fetch_named(connection, _SQL["steps"], (row_id,))\n',
                new="",
                test=f"{_CHAIN}::test_a_row_that_was_changed_is_found",
            ),
            Fault(
                what="A head is only asked whose ledger it is of.",
                file=f"{_STORE}/audit.py",
                old='is None or head["hash"] != link:\n',
                new="is None:\n",
                test=f"{_CHAIN}::test_a_file_that_was_rewritten_as_a_whole_is_found_by_a_head_from_before",
            ),
            Fault(
                what="Whoever signed a head, it is believed.",
                file="ledger/heads.py",
                old=' or head["seq"] < 0 or not is_signed:',
                new=' or head["seq"] < 0:',
                test="tests/unit/ledger/test_heads.py::test_a_head_that_was_changed_is_refused",
            ),
            Fault(
                what="An upgrade chains only what comes after it.",
                file=f"{_STORE}/upgrade.py",
                old="        chain.append_all(connection)\n",
                new="",
                test=f"{_UPGRADE}::test_the_chain_covers_what_was_there_before",
            ),
        ),
    ),
)
