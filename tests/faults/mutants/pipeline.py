"""In the pipeline: what is copied, and what is made of it."""

from tests.requirements import Fault

_AUDIT = "tests/spark/test_jobs_audit.py"
_FILES = "tests/contract/pipeline/test_sqlite_source.py"
_LEDGER = "tests/spark/test_jobs_ledger.py"
_LEDGERS = "tests/contract/pipeline/test_ledger_source.py"
_ORPHANS = "tests/spark/test_jobs_orphans.py"
_PRESENCE = "tests/spark/test_jobs_presence.py"
_RANGES = "tests/unit/pipeline/test_ranges.py"
_SNAPSHOTS = "tests/contract/pipeline/test_postgres_source.py"
_VIEWS = "tests/spark/test_jobs_views.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="Ingest goes on from the greatest that it has seen, and what commits late is lost.",
        file="pipeline/sources/postgres.sql",
        old="t.commit_xid >= pg_snapshot_xmin('{since}'::pg_snapshot)",
        new="t.commit_xid >= pg_snapshot_xmax('{since}'::pg_snapshot)",
        test=f"{_SNAPSHOTS}::test_what_commits_late_is_copied_all_the_same",
    ),
    Fault(
        what="What was committed beyond the horizon is copied again with the next batch.",
        file="pipeline/sources/postgres.sql",
        old="AND NOT pg_visible_in_snapshot(t.commit_xid, '{since}'::pg_snapshot)\n",
        new="",
        test=f"{_SNAPSHOTS}::test_what_commits_late_is_copied_all_the_same",
    ),
    Fault(
        what="A batch that is made again after a crash holds what came since, and so does the next.",
        file="pipeline/sources/postgres.sql",
        old="AND pg_visible_in_snapshot(t.commit_xid, '{upto}'::pg_snapshot)",
        new="",
        test=f"{_SNAPSHOTS}::test_a_step_that_is_made_again_is_the_same_whatever_came_since",
    ),
    Fault(
        what="The order of a mesh seems to have come further than it was copied.",
        file="pipeline/sources/broker_sqlite.sql",
        old="SELECT r.value ->> 0 AS mesh_id, r.value ->> 1 AS history_id FROM json_each(?1, '$.history') AS r",
        new="SELECT mesh_id, history_id FROM history_counter WHERE ?1 <> ''",
        test=f"{_FILES}::test_what_was_committed_after_the_marks_is_for_the_next_cut",
    ),
    Fault(
        what="A send that was open at one ingest and settled at the next is in no copy.",
        file="pipeline/sources/sqlite.py",
        old="candidates = [*map(tuple, since[_OPEN] if since else []), *ranges]",
        new="candidates = ranges",
        test=f"{_FILES}::test_a_row_of_an_outbox_is_copied_once_it_is_settled_and_shown_as_open_until_then",
    ),
    Fault(
        what="A file that came back from a backup is taken for what was copied, once it has as many rows.",
        file="pipeline/sources/sqlite.py",
        old="return None not in (now, since[_WITNESS]) and now != since[_WITNESS]",
        new="return False",
        test=f"{_FILES}::test_a_file_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again",
    ),
    Fault(
        what="A password that is not escaped is shown up to where it is cut off.",
        file="pipeline/sources/postgres.py",
        old="(at and _UNESCAPED.search(who)) or",
        new="",
        test=f"{_SNAPSHOTS}::test_a_url_whose_password_is_not_escaped_is_refused_and_not_quoted",
    ),
    Fault(
        what="Clocks that nobody names are taken for one.",
        file="pipeline/history.py",
        old="boot = line.boot or process",
        new="boot = line.boot",
        test="tests/unit/pipeline/test_history.py::test_who_does_not_say_whose_clock_it_is_has_one_of_their_own",
    ),
    Fault(
        what="A share begins where its range does, and two workers copy the same rows.",
        file="pipeline/sources/ranges.py",
        old="shares[-1].append((*key, start, end))",
        new="shares[-1].append((*key, after, end))",
        test=f"{_RANGES}::test_shares_hold_every_number_once_are_so_many_at_most_and_none_but_the_last_is_small",
    ),
    Fault(
        what="What people wrote is copied though nobody asked for it.",
        file="pipeline/shapes.py",
        old="and (bodies or not one.is_body)",
        new="",
        test=f"{_SNAPSHOTS}::test_bodies_are_copied_only_if_they_are_asked_for",
    ),
    Fault(
        what="A step that somebody holds is copied as if it stayed so.",
        file="pipeline/sources/ledger_sqlite.sql",
        old="SELECT rowid FROM cassette_steps WHERE status = 'LEASED'",
        new="SELECT rowid FROM cassette_steps WHERE status = 'LOST'",
        test=f"{_LEDGERS}::test_a_step_is_copied_once_it_is_committed_and_shown_as_open_until_then",
    ),
    Fault(
        what="A ledger that came back from a backup is taken for what was copied, if only its requeues are others.",
        file="pipeline/sources/ledger_sqlite.sql",
        old="SELECT requeue_id FROM cassette_requeues WHERE rowid = ?1 ->> '$.cassette_requeues[0][0]'), '')\n"
        "  || coalesce(' ' || (SELECT renewal_id FROM cassette_renewals WHERE rowid = ?1 ->> "
        "'$.cassette_renewals[0][0]'), '')\n"
        "  || coalesce(' ' || (SELECT hash FROM cassette_chain WHERE seq = ?1 ->> '$.cassette_chain[0][0]'), '')",
        new="NULL), '')",
        test=f"{_LEDGERS}"
        "::test_a_ledger_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again",
    ),
    Fault(
        what="What a ledger is told to do is copied though nobody asked for it.",
        file="pipeline/catalogue.py",
        old='series="cassette_steps", is_body=True',
        new='series="cassette_steps", is_body=False',
        test=f"{_LEDGERS}::test_what_is_to_be_done_and_what_came_of_it_is_copied_only_if_it_is_asked_for",
    ),
    Fault(
        what="Every file of a kind is read as if it were of the newest version.",
        file="pipeline/sources/sqlite.py",
        old='(f"{name}_v{version}", name)',
        new="(name,)",
        test=f"{_LEDGERS}::test_a_file_of_version_1_is_copied_without_what_it_does_not_have",
    ),
    Fault(
        what="A ledger that was upgraded is another one.",
        file="pipeline/sources/ledger_sqlite.sql",
        old="so that an upgraded file is still the one that was copied.\nSELECT",
        new="or others.\nSELECT 'version 1 ' ||",
        test=f"{_LEDGERS}::test_the_copy_of_a_ledger_goes_on_after_its_upgrade",
    ),
    Fault(
        what="A lease that runs out after the cut has run out before it.",
        file="pipeline/jobs/ledger.py",
        old='_ms("lease_expires_at") <= params.looked_ms',
        new='_ms("lease_expires_at") <= params.now_ms',
        test=f"{_LEDGER}::test_a_lease_that_ran_out_is_an_expiry_whether_it_was_requeued_or_not_yet",
    ),
    Fault(
        what="A job on an older cut takes its leases for those of now.",
        file="pipeline/work.py",
        old="cut_ms=self.until_ms(cut)",
        new="cut_ms=self.now_ms",
        test="tests/unit/pipeline/test_work.py::test_jobs_are_told_when_the_stores_were_looked_at",
    ),
    Fault(
        what="How long it took to claim a step is measured up to a claim that did not stand.",
        file="pipeline/jobs/ledger.py",
        old='F.when(F.col("status") != "PENDING", _ms("claimed_at"))',
        new='_ms("claimed_at")',
        test=f"{_LEDGER}::test_a_lease_that_ran_out_is_an_expiry_whether_it_was_requeued_or_not_yet",
    ),
    Fault(
        what="A lease that nobody has requeued yet did not run out.",
        file="pipeline/jobs/ledger.py",
        old='F.expr("requeues + expired")',
        new='F.expr("requeues")',
        test=f"{_LEDGER}::test_a_lease_that_ran_out_is_an_expiry_whether_it_was_requeued_or_not_yet",
    ),
    Fault(
        what="Of leases a cut has what the marks before it had, and not what its moment has.",
        file="pipeline/catalogue.py",
        old='Series("presence_event", "id", is_journal=True)',
        new='Series("presence_event", "id")',
        test=f"{_FILES}::test_of_leases_a_cut_has_all_that_its_moment_has_and_a_file_without_them_went_back",
    ),
    Fault(
        what="How far the journal of leases has come is told by another one.",
        file="pipeline/sources/broker_sqlite.sql",
        old="WHERE name = 'presence_event'",
        new="WHERE name = 'delivery_event'",
        test=f"{_FILES}::test_what_happened_to_leases_is_copied_once_in_its_order",
    ),
    Fault(
        what="Whoever has a second lease has a second session.",
        file="pipeline/jobs/presence.py",
        old="int(what = 'joined')",
        new="int(what IN ('joined', 'begun'))",
        test=f"{_PRESENCE}::test_leases_of_one_key_are_one_session_and_each_has_its_own_grace",
    ),
    Fault(
        what="What is in grace at the cut was so for no time.",
        file="pipeline/jobs/presence.py",
        old="what = 'offline' AND next_at > 0 THEN",
        new="what = 'offline' THEN",
        test=f"{_PRESENCE}::test_leases_of_one_key_are_one_session_and_each_has_its_own_grace",
    ),
    Fault(
        what="Who stands at the cut stood until now.",
        file="pipeline/jobs/presence.py",
        old="coalesce(ended_at, {params.looked_ms})",
        new="coalesce(ended_at, {params.now_ms})",
        test=f"{_PRESENCE}::test_a_session_lasts_from_joined_to_left_with_all_its_flaps_and_graces",
    ),
    Fault(
        what="A socket that takes over from another is no flap.",
        file="pipeline/jobs/presence.py",
        old="what IN ('online', 'swapped')",
        new="what IN ('online')",
        test=f"{_PRESENCE}::test_a_session_lasts_from_joined_to_left_with_all_its_flaps_and_graces",
    ),
    Fault(
        what="A lease that ran out came back.",
        file="pipeline/jobs/presence.py",
        old='F.lead("what").over(of_lease) == "online"',
        new='F.lead("what").over(of_lease) != "offline"',
        test=f"{_PRESENCE}::test_a_session_lasts_from_joined_to_left_with_all_its_flaps_and_graces",
    ),
    Fault(
        what="Who was there at midnight came after all who came on that day.",
        file="pipeline/jobs/presence.py",
        old="THEN begin_id ELSE 0 END",
        new="THEN begin_id ELSE 1000000 END",
        test=f"{_PRESENCE}::test_a_day_has_who_was_there_on_it_how_many_at_once_and_how_often_they_flapped",
    ),
    Fault(
        what="Whoever left is still counted among those who are there.",
        file="pipeline/jobs/presence.py",
        old='F.lit(-1).alias("step")',
        new='F.lit(0).alias("step")',
        test=f"{_PRESENCE}::test_a_day_has_who_was_there_on_it_how_many_at_once_and_how_often_they_flapped",
    ),
    Fault(
        what="A delivery to somebody else counts as the one that was wanted.",
        file="pipeline/jobs/orphans.py",
        old='.groupBy(*_BLOCK, "kind", "whose")',
        new='.groupBy(*_BLOCK, "kind")',
        test=f"{_ORPHANS}::test_several_holes_and_rows_for_somebody_else_are_named_exactly",
    ),
    Fault(
        what="Two numbers of a block share a bit.",
        file="pipeline/jobs/orphans.py",
        old="history_id & 63 AS INT",
        new="history_id & 31 AS INT",
        test=f"{_ORPHANS}::test_every_place_of_a_word_is_looked_at",
    ),
    Fault(
        what="What retention deleted while it was copied is an orphan.",
        file="pipeline/jobs/orphans.py",
        old='f"{name} & ~buried"',
        new='f"{name}"',
        test=f"{_ORPHANS}::test_what_retention_deleted_is_no_orphan_whether_it_was_copied_before_or_not",
    ),
    Fault(
        what="A delivery that was given back is delivered.",
        file="pipeline/jobs/views.py",
        old="delivered = 0 OR returned > delivered",
        new="delivered = 0",
        test=f"{_VIEWS}::test_the_state_of_a_delivery_is_the_fold_of_its_journal",
    ),
    Fault(
        what="A leaf does not say where its fields end.",
        file="pipeline/jobs/audit.py",
        old='F.octet_length(text).cast("string")',
        new='F.lit("")',
        test=f"{_AUDIT}::test_the_heads_are_those_of_an_independent_computation",
    ),
)
