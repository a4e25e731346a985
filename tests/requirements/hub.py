"""Contract 7: idempotent writes, and the hub."""

from tests.requirements.model import Fault, Requirement

_FIRE = "tests/chaos/test_idempotency_under_fire.py"
_FOREIGN = "tests/integration/test_idempotency_foreign_apps.py"
_HUBS = "tests/contract/hub/test_postgres_hubs.py"
_KEYS = "tests/contract/idempotency/test_keys_contract.py"
_MARKS = "tests/contract/hub/test_marks_contract.py"
_MIDDLEWARE = "tests/unit/idempotency/test_middleware.py"
_PROCESS = "tests/integration/test_hub.py"
_READS = "tests/contract/hub/test_reads_contract.py"
_RECORDING = "tests/unit/idempotency/test_recording.py"
_SQLITE_KEYS = "tests/contract/idempotency/test_sqlite_keys.py"
_WRITES = "tests/contract/hub/test_writes_contract.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "R1",
        "The middleware runs a keyed write once and replays its answer.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="A dead worker's mark stands for ever.",
                file="kernel/idempotency.py",
                old="return FRESH if isinstance(verdict, Busy) and not is_live else verdict",
                new="return verdict",
                test=f"{_FIRE}::test_the_key_of_a_worker_that_was_killed_frees_itself_and_the_retry_runs",
            ),
            Fault(
                what="A mark that is renewed is taken over as if its worker had died.",
                file="kernel/idempotency.py",
                old="return FRESH if isinstance(verdict, Busy) and not is_live else verdict",
                new="return FRESH if isinstance(verdict, Busy) else verdict",
                test=f"{_KEYS}::test_of_many_who_ask_at_once_exactly_one_begins",
            ),
            Fault(
                what="A conflict is kept, and a client that mended it is told of it for ever.",
                file="kernel/idempotency.py",
                old="(401, 403, 408, 409, 412, 425, 429)",
                new="(401, 403, 408, 412, 425, 429)",
                test=f"{_FOREIGN}::test_what_may_pass_is_not_kept",
            ),
            Fault(
                what="An answer of 5xx is kept.",
                file="kernel/idempotency.py",
                old="(400 <= status < 500 and",
                new="(400 <= status < 600 and",
                test=f"{_RECORDING}::test_what_says_nothing_final_is_not_kept_and_the_next_request_runs",
            ),
            Fault(
                what="A worker that was overtaken still settles the key, in SQLite.",
                file="idempotency/stores/sqlite/keys.sql",
                old="body = ?8\nWHERE caller = ?1 AND key = ?2 AND owner = ?3 AND token = ?4",
                new="body = ?8\nWHERE caller = ?1 AND key = ?2 AND (owner = ?3 OR token > ?4)",
                test=f"{_KEYS}::test_a_worker_whose_mark_was_taken_over_writes_nothing",
            ),
            Fault(
                what="A worker that was overtaken still settles the key, in PostgreSQL.",
                file="idempotency/stores/postgres/keys.sql",
                old="body = $8\nWHERE caller = $1 AND key = $2 AND owner = $3 AND token = $4",
                new="body = $8\nWHERE caller = $1 AND key = $2 AND (owner = $3 OR token > $4)",
                test=f"{_KEYS}::test_a_worker_whose_mark_was_taken_over_writes_nothing",
            ),
            Fault(
                what="A sweep looks anew for each row, past its limit.",
                file="idempotency/stores/postgres/keys.sql",
                old="WHERE seq = ANY(ARRAY(",
                new="WHERE seq IN ((",
                test="tests/contract/idempotency/test_postgres_keys.py"
                "::test_a_sweep_keeps_to_its_limit_whatever_plan_the_server_makes",
            ),
            Fault(
                what="A lost mark is not told to the write, which then is there twice.",
                file="idempotency/stores/sqlite/__init__.py",
                old='if not _run(connection, "settle", (*claim, *render_settlement(settlement))):',
                new='if _run(connection, "settle", (*claim, *render_settlement(settlement))) < 0:',
                test=f"{_FIRE}::test_a_worker_that_was_stopped_past_its_lease_cannot_write_any_more",
            ),
            Fault(
                what="The key is settled beside the transaction of the write.",
                file="idempotency/stores/postgres/__init__.py",
                old='if not await connection.fetch(self._sql["settle"]',
                new='if not await self._database.fetch(self._sql["settle"]',
                test=f"{_KEYS}::test_a_write_that_rolls_back_takes_its_answer_with_it",
            ),
            Fault(
                what="A mark of before a reboot is judged by the clock of after it.",
                file="idempotency/stores/sqlite/__init__.py",
                old="until if boot == self._boot else 0",
                new="until",
                test=f"{_SQLITE_KEYS}::test_a_mark_from_before_the_machine_was_started_is_over",
            ),
            Fault(
                what="A live worker does not renew its mark.",
                file="idempotency/middleware.py",
                old="await store.renew(mark.claim, self._lease_ms)",
                new="pass",
                test=f"{_FIRE}::test_a_worker_that_lives_keeps_its_key_however_long_it_takes",
            ),
            Fault(
                what="All callers share their keys.",
                file="idempotency/middleware.py",
                old='sha256(b"\\0".join(credentials)).hexdigest() if credentials else ""',
                new='""',
                test=f"{_FOREIGN}::test_two_callers_do_not_share_their_keys",
            ),
            Fault(
                what="The caller's credential is stored as it is.",
                file="idempotency/middleware.py",
                old='sha256(b"\\0".join(credentials)).hexdigest()',
                new='b" ".join(credentials).decode("latin-1")',
                test=f"{_FOREIGN}::test_no_secret_reaches_a_file_of_the_store",
            ),
            Fault(
                what="The query is no part of the request.",
                file="idempotency/middleware.py",
                old='scope["path"], query, body)',
                new='scope["path"], "", body)',
                test=f"{_FOREIGN}::test_another_write_under_the_same_key_is_a_conflict",
            ),
            Fault(
                what="An app that raises leaves its key taken.",
                file="idempotency/middleware.py",
                old="                await recorder.abandon()\n            raise",
                new="                pass\n            raise",
                test=f"{_RECORDING}::test_an_app_that_raises_frees_its_key_and_the_error_goes_on",
            ),
            Fault(
                what="An app that was cancelled frees its key, though nobody knows how far it came.",
                file="idempotency/middleware.py",
                old="        except Exception:\n            if not",
                new="        except BaseException:\n            if not",
                test=f"{_MIDDLEWARE}::test_a_dead_workers_mark_frees_itself",
            ),
            Fault(
                what="An answer is sent before it is recorded.",
                file="idempotency/recording.py",
                old="        await self._record()\n        if self._mark.is_lost and",
                new="        await self._flush()\n        await self._record()\n        if self._mark.is_lost and",
                test=f"{_RECORDING}::test_an_answer_in_one_piece_is_recorded_before_a_byte_of_it_is_sent",
            ),
            Fault(
                what="An app is told that its client is gone, and stops with its write done.",
                file="idempotency/recording.py",
                old="                await asyncio.wait_for(self._may_know.wait(), GONE_PATIENCE_S)",
                new="                pass",
                test=f"{_RECORDING}::test_a_client_that_goes_away_finds_its_answer_when_it_is_back",
            ),
            Fault(
                what="The first caller's cookie is kept and given to whoever asks again.",
                file="idempotency/policy.py",
                old='{b"content-type", ',
                new='{b"set-cookie", b"content-type", ',
                test=f"{_RECORDING}::test_a_cookie_is_the_first_callers_and_nobody_elses",
            ),
            Fault(
                what="Answers are stored whatever they hold.",
                file="idempotency/policy.py",
                old="return find_secret(orjson.loads(body)) is not None",
                new="return False",
                test=f"{_FOREIGN}::test_no_secret_reaches_a_file_of_the_store",
            ),
            Fault(
                what="Keys are promised for longer than they are kept.",
                file="idempotency/middleware.py",
                old="expires_at=latest_ms + self._expiry_ms",
                new="expires_at=latest_ms + self._expiry_ms // 2",
                test=f"{_MIDDLEWARE}::test_keys_are_kept_for_as_long_as_the_policy_says",
            ),
        ),
    ),
    Requirement(
        "R2",
        "The hub serves its resources with revisions and cursors.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="If-Match names a revision, and any row will do.",
                file="hub/policy.py",
                old="if expected.revisions is not None and row.revision not in expected.revisions:",
                new="if expected.revisions is not None and not expected.revisions:",
                test=f"{_WRITES}::test_a_write_is_applied_only_to_the_row_that_it_expects",
            ),
            Fault(
                what="A row that was changed since is overwritten if the change is younger than expected.",
                file="hub/policy.py",
                old="row.updated_at != expected.updated_at",
                new="row.updated_at < expected.updated_at",
                test=f"{_WRITES}::test_a_write_is_applied_only_to_the_row_that_it_expects",
            ),
            Fault(
                what="A clock that steps back makes a row look older than it was.",
                file="hub/policy.py",
                old="updated_at = max(now_ms, row.updated_at + 1)",
                new="updated_at = max(now_ms, row.created_at)",
                test=f"{_WRITES}::test_times_of_a_row_grow_whatever_the_clock_does",
            ),
            Fault(
                what="A message that is read again was read later.",
                file="hub/policy.py",
                old="if fields.get(name) is not None:",
                new="if fields.get(name) == value:",
                test=f"{_WRITES}::test_what_is_set_once_keeps_its_first_value",
            ),
            Fault(
                what="Writes that share a transaction are judged by what stood before it.",
                file="hub/draft.py",
                old="self.standing[key] = outcome.after",
                new="self.standing.setdefault(key, outcome.after)",
                test=f"{_WRITES}::test_of_many_who_expect_the_same_exactly_one_wins",
            ),
            Fault(
                what="Within a bulk nobody sees the ones before.",
                file="hub/draft.py",
                old="decide(meanwhile[key] if key in meanwhile else self.standing.get(key), asked, write.now_ms)",
                new="decide(self.standing.get(key), asked, write.now_ms)",
                test=f"{_WRITES}::test_in_bulk_each_is_judged_by_itself_and_builds_on_those_before_it",
            ),
            Fault(
                what="What was before is told as what is now.",
                file="hub/rendering.py",
                old="return Response(200, render_row(row, before=before).encode(), (_JSON, etag(row)))",
                new="return Response(200, render_row(row, before=row).encode(), (_JSON, etag(row)))",
                test=f"{_WRITES}::test_a_change_keeps_what_it_does_not_name_and_tells_what_was_before",
            ),
            Fault(
                what="A worker that lost its mark writes all the same, on SQLite.",
                file="hub/stores/sqlite/hub.py",
                old="        except MarkLost as error:\n            return error",
                new="        except MarkLost:\n            pass",
                test=f"{_MARKS}::test_who_lost_its_mark_writes_nothing",
            ),
            Fault(
                what="A worker that lost its mark writes all the same, on PostgreSQL.",
                file="hub/stores/postgres/hub.py",
                old="        except MarkLost as error:\n            return error",
                new="        except MarkLost:\n            pass",
                test=f"{_MARKS}::test_a_lost_mark_costs_its_neighbours_nothing",
            ),
            Fault(
                what="The answer is recorded after the commit of its row: a kill in between leaves one without it.",
                file="hub/stores/sqlite/hub.py",
                old="if mark is not None and decision.is_done:",
                new="if mark is not None and decision.is_done and not write.asks:",
                test=f"{_PROCESS}::test_a_hub_that_is_killed_after_the_commit_has_written_once",
            ),
            Fault(
                what="A conflict is kept under its key.",
                file="hub/draft.py",
                old="return self.answer.status < 400",
                new="return self.answer.status != 404",
                test=f"{_MARKS}::test_a_conflict_is_not_kept",
            ),
            Fault(
                what="The journal can be changed afterwards.",
                file="hub/stores/sqlite/migrations/0001_hub.sql",
                old="BEFORE UPDATE ON hub_write",
                new="BEFORE UPDATE OF seq ON hub_write",
                test=f"{_WRITES}::test_nobody_changes_the_journal_afterwards",
            ),
            Fault(
                what="Two hubs on one database read a row before either has written it.",
                file="hub/stores/postgres/hub.sql",
                old="ORDER BY kind, id FOR UPDATE",
                new="ORDER BY kind, id",
                test=f"{_HUBS}::test_of_two_hubs_that_expect_the_same_one_wins",
            ),
            Fault(
                what="The last page leads to an empty one.",
                file="hub/stores/rows.py",
                old="if len(rows) > limit else None",
                new="if len(rows) >= limit else None",
                test=f"{_READS}::test_rows_come_in_the_order_in_which_they_were_made",
            ),
            Fault(
                what="A status that a row leaves goes on being counted.",
                file="hub/draft.py",
                old="if changed.before is not None:\n                counts",
                new="if changed.is_deleted:\n                counts",
                test=f"{_READS}::test_the_summary_counts_rows_by_kind_and_status",
            ),
            Fault(
                what="A field that nobody knows is passed over.",
                file="hub/bodies.py",
                old="class New(Struct, frozen=True, forbid_unknown_fields=True):",
                new="class New(Struct, frozen=True):",
                test=f"{_PROCESS}::test_what_cannot_be_taken_is_refused_with_a_reason_and_changes_nothing",
            ),
            Fault(
                what="Beyond this machine a web page gets in.",
                file="asgi/policy.py",
                old="if origins and not (names is not None and len(origins) == 1",
                new="if origins and names is not None and not (len(origins) == 1",
                test=f"{_PROCESS}::test_beyond_this_machine_it_needs_a_token_and_no_page_gets_in",
            ),
        ),
    ),
)
