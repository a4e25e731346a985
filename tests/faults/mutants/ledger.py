"""In the ledger: in what asks its law, and in what looks whether it was kept."""

from tests.requirements import Fault

_STORE = "ledger/stores/sqlite"
_ENTRIES = f"{_STORE}/entries.py"
_INTERRUPTED = "tests/contract/ledger/test_interrupted.py"
_FILE = f"{_STORE}/file.py"
_AUDIT = f"{_STORE}/audit.sql"
_AUDIT_V2 = f"{_STORE}/audit_v2.sql"
_CHAIN = f"{_STORE}/chain.py"

_HERE = "tests/contract/ledger"
_CLAIMS = f"{_HERE}/test_claims.py"
_COMPLETIONS = f"{_HERE}/test_completions.py"
_FILES = f"{_HERE}/test_files.py"
_POSTS = f"{_HERE}/test_posts.py"
_REQUEUES = f"{_HERE}/test_requeues.py"
_ROWS = f"{_HERE}/test_verify_rows.py"
_CHAINS = f"{_HERE}/test_chain.py"
_UPGRADE = f"{_HERE}/test_upgrade.py"
_VERIFY = f"{_HERE}/test_verify.py"

_ROW = f"{_ROWS}::test_a_row_that_the_law_forbids_is_found"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="Of what found no room nobody says that it was not written.",
        file=_FILE,
        old="is_known = isinstance(meaning, StoreFull)",
        new="is_known = False",
        test="tests/chaos/test_full_disk.py"
        "::test_a_ledger_without_room_refuses_keeps_what_it_has_and_goes_on_when_there_is_room",
    ),
    Fault(
        what="Triggers that stand there again are not heard by whoever has parsed the schema without them.",
        file=_FILE,
        old='            self._connection.pragma("writable_schema", "RESET")\n',
        new="            pass\n",
        test=f"{_INTERRUPTED}::test_a_trigger_that_is_back_under_a_forged_cookie_is_heard",
    ),
    Fault(
        what="Only writers notice that the schema was parsed anew.",
        file=_FILE,
        old="                self._note_cookie()\n                return work(self._connection)",
        new="                return work(self._connection)",
        test=f"{_INTERRUPTED}::test_a_trigger_that_is_back_under_a_forged_cookie_is_heard",
    ),
    Fault(
        what="A transaction that an interrupt left open stays open.",
        file=_FILE,
        old="                self._transactions.roll_back()  # what",
        new="                # what",
        test=f"{_INTERRUPTED}::test_an_interrupt_around_a_statement_leaves_no_transaction_behind",
    ),
    Fault(
        what="A call from a signal handler ends the transaction that it interrupted.",
        file=_FILE,
        old="            if self._is_busy:",
        new="            if self._is_busy is None:",
        test=f"{_INTERRUPTED}::test_a_call_from_within_a_call_is_refused_and_waits_for_nobody",
    ),
    # --- what is written -------------------------------------------------------------------------
    Fault(
        what="A message is posted without its link.",
        file=_ENTRIES,
        old='    _chain(connection, version, "message", post.message_id)\n',
        new="",
        test=f"{_CHAINS}::test_every_message_receipt_requeue_and_renewal_has_its_link",
    ),
    Fault(
        what="A receipt is written without its link.",
        file=_ENTRIES,
        old='    _chain(connection, version, "receipt", receipt.receipt_id)\n',
        new="",
        test=f"{_CHAINS}::test_every_message_receipt_requeue_and_renewal_has_its_link",
    ),
    Fault(
        what="A key is asked for only where there is none.",
        file=_ENTRIES,
        old="    if post.idempotency_key is not None:\n",
        new="    if post.idempotency_key is None:\n",
        test=f"{_POSTS}::test_the_same_post_under_the_same_key_is_the_same_message",
    ),
    Fault(
        what="Whatever is leased in a run is requeued, expired or not, and all of it fails.",
        file=f"{_STORE}/entries_v2.sql",
        old=" AND run_id = ?1 AND lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')\n",
        new=" AND run_id = ?1\n",
        test=f"{_REQUEUES}::test_all_expired_steps_of_a_run_are_requeued_at_once",
    ),
    Fault(
        what="A payload that Python cannot read stands in the way of all that were posted after it.",
        file="ledger/policy.py",
        old="    except (ValueError, RecursionError):\n        return text\n",
        new="    except RecursionError:\n        return text\n",
        test=f"{_CLAIMS}::test_a_payload_that_only_sqlite_can_read_is_handed_over_as_it_is",
    ),
    Fault(
        what="All steps of a page are told again on the next.",
        file=f"{_STORE}/entries.sql",
        old="WHERE s.rowid > ?3 AND",
        new="WHERE s.rowid >= ?3 AND",
        test=f"{_POSTS}::test_steps_are_listed_in_pages_in_the_order_they_were_posted",
    ),
    Fault(
        what="The law's words are lost on the way to the caller.",
        file=_FILE,
        old="            return MessageCassetteError(str(error))\n",
        new='            return MessageCassetteError("the ledger refused")\n',
        test=f"{_COMPLETIONS}::test_each_refusal_has_its_own_words",
    ),
    Fault(
        what="A token may be a truth value.",
        file="ledger/policy.py",
        old="    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:\n",
        new="    if not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:\n",
        test="tests/unit/ledger/test_policy.py::test_a_token_that_no_claim_gave_is_refused",
    ),
    Fault(
        what="Half a character is written down.",
        file="ledger/policy.py",
        old="        text.encode()\n",
        new="",
        test="tests/unit/ledger/test_policy.py::test_what_json_has_no_word_for_is_refused",
    ),
    # --- the file --------------------------------------------------------------------------------
    Fault(
        what="Any file that is named is restricted to its owner before anybody looks what it is.",
        file=_FILE,
        old="                if not _has_content(path):",
        new="                if path.name:",
        test=f"{_FILES}::test_a_file_that_is_no_database_is_refused_and_left_as_it_is",
    ),
    Fault(
        what="A database of others becomes a ledger too.",
        file=_FILE,
        old="    if not is_marked and not is_empty and not is_ledger:\n",
        new="    if is_marked and not is_empty and not is_ledger:\n",
        test=f"{_FILES}::test_a_database_of_others_is_refused_and_left_as_it_is",
    ),
    Fault(
        what="Asking whether there is a ledger makes one of an empty file.",
        file=_FILE,
        old="    if is_empty and not is_marked and version is None:\n",
        new="    if is_empty and is_marked and version is None:\n",
        test=f"{_FILES}::test_where_there_is_no_ledger_none_is_made_unless_it_is_to_be",
    ),
    Fault(
        what="A folder that is a link has no ledgers.",
        file=_FILE,
        old="        path = path.parent.resolve() / path.name",
        new="        path = path.absolute()",
        test=f"{_FILES}::test_a_folder_may_be_reached_through_a_link",
    ),
    Fault(
        what="A child uses its parent's connection.",
        file=_FILE,
        old="        if os.getpid() != self._pid:\n            raise",
        new="        if not self._pid:\n            raise",
        test=f"{_FILES}::test_a_child_neither_uses_nor_closes_its_parents_ledger",
    ),
    Fault(
        what="What failed is committed.",
        file=_FILE,
        old="            except BaseException:\n                transactions.roll_back()\n",
        new="            except BaseException:\n                transactions.commit()\n",
        test=f"{_COMPLETIONS}::test_a_completion_that_dies_before_its_commit_leaves_neither",
    ),
    Fault(
        what="An upgrade that failed is believed.",
        file=f"{_STORE}/upgrade.py",
        old="        wrong = audit_rows(connection, version)\n",
        new="        wrong = list[str]()\n",
        test=f"{_ROWS}::test_unlawful_rows_are_not_upgraded",
    ),
    Fault(
        what="Who upgraded goes on by the old version.",
        file=_FILE,
        old="        if cookie != self._cookie:\n",
        new="        if self._cookie is None:\n",
        test=f"{_UPGRADE}::test_who_upgraded_writes_version_2_from_then_on",
    ),
    Fault(
        what="A schema is looked at anew only when the version is another.",
        file=_FILE,
        old="        if (version, schema) != (self._version, self._lawful):",
        new="        if version != self._version:",
        test=f"{_VERIFY}::test_a_ledger_that_is_open_notices_at_its_next_write_and_goes_on_when_it_is_repaired",
    ),
    # --- verify ----------------------------------------------------------------------------------
    Fault(
        what="What belongs to a table under a name in capitals is nobody's.",
        file=f"{_STORE}/law/__init__.py",
        old="SELECT type, name, lower(tbl_name), sql",
        new="SELECT type, name, tbl_name, sql",
        test=f"{_VERIFY}::test_an_added_trigger_is_reported_and_stops_every_write",
    ),
    Fault(
        what="A ledger of the future is taken for one of today.",
        file=f"{_STORE}/law/__init__.py",
        old="    if not 1 <= version <= NEWEST:\n",
        new="    version = min(version, NEWEST)\n    if version < 1:\n",
        test=f"{_VERIFY}::test_a_version_that_nobody_knows_is_reported_and_not_written",
    ),
    Fault(
        what="The first table that cannot be read ends the audit.",
        file=f"{_STORE}/audit.py",
        old='        yield f"{otherwise}: {error}"\n',
        new="        raise\n",
        test=f"{_VERIFY}::test_a_dropped_table_is_reported_and_the_rest_is_still_checked",
    ),
    Fault(
        what="A committed step may have the receipt of another worker.",
        file=_AUDIT,
        old="  WHERE r.step_id = s.step_id AND r.job_id = s.job_id AND r.worker_id = s.lease_owner\n",
        new="  WHERE r.step_id = s.step_id AND r.job_id = s.job_id\n",
        test=_ROW,
    ),
    Fault(
        what="A lease that ends at no instant is whole.",
        file=_AUDIT,
        old=" IS NOT lease_expires_at OR lease_expires_at IS NULL\n",
        new=" <> lease_expires_at\n",
        test=_ROW,
    ),
    Fault(
        what="A message that was deleted at the end of a gap is not missed.",
        file=_AUDIT,
        old="FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_messages) "
        "WHERE n > 0 AND (first <> 1 OR last <> n)",
        new="FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_messages) "
        "WHERE n > 0 AND first <> 1",
        test=_ROW,
    ),
    Fault(
        what="A lease that was requeued before its renewal ended is not noticed.",
        file=_AUDIT_V2,
        old="WHERE q.lease_expires_at <> (\n",
        new="WHERE q.lease_expires_at > (\n",
        test=_ROW,
    ),
    Fault(
        what="Rows outside of the chain count as chained if any row is.",
        file=_AUDIT_V2,
        old="WHERE q.requeue_id NOT IN (SELECT row_id FROM cassette_chain WHERE kind = 'requeue')",
        new="WHERE NOT EXISTS (SELECT row_id FROM cassette_chain WHERE kind <> 'requeue')",
        test=_ROW,
    ),
    Fault(
        what="A link that is missing is not missed.",
        file=_CHAIN,
        old='            yield f"chain: link {expected} is missing"\n',
        new="",
        test=f"{_CHAINS}::test_a_link_that_was_cut_out_is_found",
    ),
    Fault(
        what="A link that does not follow is taken for one that does.",
        file=_CHAIN,
        old="        if previous_hash != previous:\n",
        new="        if not previous_hash:\n",
        test=f"{_CHAINS}::test_a_link_that_was_cut_out_is_found",
    ),
    Fault(
        what="Links are taken as they were written, and not computed anew.",
        file=_CHAIN,
        old="        if written != _derive(connection, previous_hash, kind, row_id):\n",
        new="        if _derive(connection, previous_hash, kind, row_id) is None:\n",
        test=f"{_CHAINS}::test_a_row_that_was_changed_is_found",
    ),
    Fault(
        what="An empty ledger has no head that fits later.",
        file=_CHAIN,
        old="    return row[0] if row else GENESIS if seq == 0 else None\n",
        new="    return row[0] if row else None\n",
        test=f"{_CHAINS}::test_a_head_of_a_ledger_without_a_row_fits",
    ),
    Fault(
        what="Whose ledger a head is of does not count.",
        file=f"{_STORE}/audit.py",
        old="""    if head["ledger_id"] != ledger_id:\n""",
        new="""    if not head["ledger_id"]:\n""",
        test=f"{_CHAINS}::test_a_head_of_another_ledger_does_not_fit",
    ),
)
