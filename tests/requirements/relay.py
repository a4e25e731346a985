"""Contract 7: the edge relay and the hub."""

from tests.requirements.model import Fault, Requirement

_DRILL = "tests/acceptance/test_statehub_drill.py"
_FIX = "tests/integration/test_fix_consistency.py"
_HUBS = "tests/contract/hub/test_postgres_hubs.py"
_MARKS = "tests/contract/hub/test_marks_contract.py"
_OPERATORS = "tests/integration/test_cli_statehub.py"
_PLANS = "tests/unit/cli/test_consistency.py"
_PROCESS = "tests/integration/test_hub.py"
_READS = "tests/contract/hub/test_reads_contract.py"
_SHOWN = "tests/unit/cli/test_outbox_shown.py"
_WRITES = "tests/contract/hub/test_writes_contract.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("R1", "The middleware runs a keyed write once and replays its answer.", "contract 7", "planned"),
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
    Requirement("R3", "A policy file sorts routes: append, replace or online-only.", "contract 7", "planned"),
    Requirement("R4", "The relay forwards, or queues durably and says it is queued.", "contract 7", "planned"),
    Requirement("R5", "Envelopes keep their states; a corrupt file stops queueing only.", "contract 7", "planned"),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "planned"),
    Requirement("R7", "Replay keeps entity order; a bad envelope blocks its own only.", "contract 7", "planned"),
    Requirement("R8", "A replacing write needs an expectation; a stale one conflicts.", "contract 7", "planned"),
    Requirement(
        "R9",
        "Operators see, settle and rehearse an outage by command.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="A dead write is not one that waits.",
                file="cli/statehub/showing.py",
                old="    if dead:\n",
                new="    if dead and pending:\n",
                test=f"{_SHOWN}::test_an_outage_is_over_when_nothing_is_unsent_and_the_hub_is_there",
            ),
            Fault(
                what="A damaged outbox counts as an empty one.",
                file="cli/statehub/showing.py",
                old='if not status["outbox_usable"]:',
                new='if not status["outbox_usable"] and status["pending"]:',
                test=f"{_OPERATORS}::test_with_a_damaged_outbox_forwarding_goes_on_queueing_stops_and_recover_saves_it",
            ),
            Fault(
                what="Without a relay replay says that it was done.",
                file="cli/statehub/desk.py",
                old="raise DependencyError(NO_RELAY)",
                new="return",
                test=f"{_OPERATORS}::test_without_a_relay_nothing_is_replayed_and_replay_says_so",
            ),
            Fault(
                what="The file is opened beside a relay that holds it.",
                file="cli/statehub/desk.py",
                old="if holder is None:",
                new="if holder != 0:",
                test=f"{_OPERATORS}::test_a_process_that_holds_the_lock_and_is_silent_is_named",
            ),
            Fault(
                what="What is decided without a relay is not written down.",
                file="cli/statehub/desk.py",
                old="log.attach(self._world.observer)  # who",
                new="log.attach(real_world().observer)  # who",
                test=f"{_OPERATORS}::test_a_write_is_given_up_or_marked_dead_and_retried_as_a_new_one",
            ),
            Fault(
                what="A key of another request is taken for a known one.",
                file="edge/stores/sqlite/outbox.py",
                old="if stands is not None and stands.fingerprint != submission.fingerprint:",
                new="if stands is not None and not stands.fingerprint:",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="Part of an import stays.",
                file="edge/operate.py",
                old="stood = await self._outbox.accept_all(submissions)",
                new="stood = [await self._outbox.accept_all([one]) for one in submissions]",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="A credential comes in by an import.",
                file="edge/operate.py",
                old="if find_secret(body) is not None or find_secret_text(told) is not None:",
                new="if find_secret_text(told) is not None:",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="An export overwrites what is there.",
                file="cli/statehub/outbox.py",
                old="replace=False",
                new="replace=True",
                test=f"{_OPERATORS}::test_an_export_never_overwrites_a_file",
            ),
            Fault(
                what="A queued receipt is taken for a success.",
                file="cli/statehub/fix.py",
                old='"queued": "queued",\n    "cannot"',
                new='"queued": "changed",\n    "cannot"',
                test=f"{_FIX}::test_through_a_relay_what_is_queued_is_told_as_queued_and_never_as_done",
            ),
            Fault(
                what="What the hub answered is believed without another look.",
                file="cli/statehub/fix.py",
                old='return {"matches": not wrong, **report}',
                new='return {"matches": not report["queued"], **report}',
                test=f"{_FIX}::test_what_the_hub_does_not_show_afterwards_is_not_done_whatever_it_answered",
            ),
            Fault(
                what="A row is changed over what somebody else changed.",
                file="cli/statehub/fix.py",
                old='if_match=f\'"{action.row["revision"]}"\'',
                new='if_match="*"',
                test=f"{_FIX}::test_a_row_that_somebody_changes_meanwhile_is_looked_at_again",
            ),
            Fault(
                what="What was deleted at the hub is told as created.",
                file="cli/statehub/fix.py",
                old="if standing.status == _GONE:",
                new="if standing.status == _STALE:",
                test=f"{_FIX}::test_what_was_deleted_at_the_hub_is_created_anew_and_once",
            ),
            Fault(
                what="One of several rows is taken at random.",
                file="cli/statehub/consistency.py",
                old="if len(found) > 1:",
                new="if len(found) > 2:",
                test=f"{_PLANS}::test_if_several_rows_could_be_it_none_is_touched",
            ),
            Fault(
                what="The key of a creation changes with the status.",
                file="cli/statehub/consistency.py",
                old='key=derive_key(repo, "tasks", task.id)',
                new='key=derive_key(repo, "tasks", task.id, task.status)',
                test=f"{_PLANS}::test_the_key_of_a_creation_is_of_the_repository_and_the_id_and_of_nothing_that_changes",
            ),
            Fault(
                what="The drill does not look where a credential could be.",
                file="cli/statehub/drill.py",
                old='_check(not found, f"the credential',
                new='_check(bool(paths), f"the credential',
                test=f"{_DRILL}::test_the_drill_fails_where_the_relay_or_the_hub_does_wrong",
            ),
            Fault(
                what="The drill passes whatever it found.",
                file="cli/statehub/drill.py",
                old='is_good = all(step["ok"] for step in steps)',
                new='is_good = any(step["ok"] for step in steps)',
                test=f"{_DRILL}::test_the_drill_fails_where_the_relay_or_the_hub_does_wrong",
            ),
        ),
    ),
    Requirement("R10", "The relay is measured, and a queued write has no side effect.", "contract 7", "planned"),
)
