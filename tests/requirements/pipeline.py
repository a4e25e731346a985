"""Contract 8: the data pipeline."""

from tests.requirements.model import Fault, Requirement

_CHECKS = "tests/unit/pipeline/test_checks.py"
_HUBS = "tests/contract/pipeline/test_hub_source.py"
_RECOVERY = "tests/spark/test_jobs_recovery.py"
_RELAYS = "tests/contract/pipeline/test_relay_source.py"
_VIEWS = "tests/spark/test_jobs_views.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "S1",
        "Ingest is incremental and exactly once across crashes.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="An envelope in conflict is copied as if it stayed so.",
                file="pipeline/sources/relay_sqlite.sql",
                old="WHERE status IN ('pending', 'inflight', 'conflict')",
                new="WHERE status IN ('pending', 'inflight')",
                test=f"{_RELAYS}::test_an_envelope_is_copied_once_it_is_settled_and_shown_as_open_until_then",
            ),
            Fault(
                what="A relay that came back from a backup is taken for what was copied, if only events differ.",
                file="pipeline/sources/relay_sqlite.sql",
                old="SELECT ' ' || envelope || ' ' || became || ' ' || at FROM envelope_event",
                new="SELECT ' ' || count(*) FROM envelope_event",
                test=f"{_RELAYS}"
                "::test_a_relay_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again",
            ),
            Fault(
                what="A relay's file is taken for a daemon's outbox, or for nothing at all.",
                file="pipeline/catalogue.py",
                old="if kind.marker in named and kind.unless not in named]",
                new="if kind.marker in named]",
                test=f"{_RELAYS}::test_a_home_has_a_relay_that_is_read_before_its_hub_and_is_no_daemons_outbox",
            ),
            Fault(
                what="What a relay hands on while it is read is in no copy of its hub.",
                file="pipeline/catalogue.py",
                old="(OUTBOX, BROKER, INBOX, LEDGER, RELAY, HUB)",
                new="(OUTBOX, BROKER, INBOX, LEDGER, HUB, RELAY)",
                test=f"{_RELAYS}::test_a_home_has_a_relay_that_is_read_before_its_hub_and_is_no_daemons_outbox",
            ),
            Fault(
                what="The words of a row are copied though nobody asked for them.",
                file="pipeline/sources/hub_sqlite.sql",
                old="THEN t.fields ->> '$.status' END",
                new="THEN t.fields END",
                test=f"{_HUBS}::test_what_rows_hold_is_copied_only_if_it_is_asked_for",
            ),
            Fault(
                what="When a row was changed is expected in seconds, and it was in milliseconds.",
                file="pipeline/sources/hub_postgres.sql",
                old="::timestamptz) * 1000)::bigint",
                new="::timestamptz))::bigint",
                test=f"{_HUBS}::test_a_journal_is_copied_line_by_line_with_what_each_expected",
            ),
            Fault(
                what="Of a broker and a hub in one database one is left out.",
                file="pipeline/stores.py",
                old="{(store.kind.name, store.shown): store",
                new="{store.shown: store",
                test=f"{_HUBS}::test_a_database_has_a_brokers_store_a_hubs_or_both",
            ),
        ),
    ),
    Requirement(
        "S2",
        "Each job rebuilds or measures its subject from stored data.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="What a later write made needless was cancelled by hand.",
                file="pipeline/jobs/recovery.py",
                old="status = 'aborted' AND NOT is_coalesced",
                new="status = 'aborted'",
                test=f"{_RECOVERY}::test_an_outage_has_its_times_and_what_became_of_all_that_waited_in_it",
            ),
            Fault(
                what="What was queued when an outage was over belongs to it.",
                file="pipeline/jobs/recovery.py",
                old="e.enqueued_at <= o.recovered_at",
                new="e.enqueued_at > 0",
                test=f"{_RECOVERY}::test_an_outage_has_its_times_and_what_became_of_all_that_waited_in_it",
            ),
            Fault(
                what="An envelope belongs to every outage that began before it.",
                file="pipeline/jobs/recovery.py",
                old="o.next_seq IS NULL OR e.seq < o.next_seq",
                new="o.next_seq IS NULL OR e.seq > 0",
                test=f"{_RECOVERY}::test_an_envelope_belongs_to_one_outage_whatever_the_clock_does",
            ),
            Fault(
                what="A row stands as any of its lines says.",
                file="pipeline/jobs/writes.py",
                old='F.max_by("status", "seq")',
                new='F.max("status")',
                test=f"{_RECOVERY}::test_rows_stand_as_the_last_line_of_each_says",
            ),
        ),
    ),
    Requirement(
        "S3",
        "The history checker proves the promise or shows violations.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="What was given up in sight of all counts as lost.",
                file="pipeline/checks/sends.sql",
                old="AND q.status <> 'done'",
                new="AND q.status = 'pending'",
                test=f"{_CHECKS}::test_a_history_that_is_as_promised_breaks_nothing",
            ),
            Fault(
                what="What no store has was not lost.",
                file="pipeline/checks/sends.sql",
                old="WHERE s.ok_times > 0 AND a.id IS NULL AND q.id IS NULL",
                new="WHERE s.ok_times > 0 AND a.id IS NULL AND q.id IS NOT NULL",
                test=f"{_CHECKS}::test_a_bug_is_found_by_the_invariant_that_it_breaks_and_by_no_other",
            ),
        ),
    ),
    Requirement(
        "S4",
        "Pipeline commands show progress and write their reports.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="A total that is less than the store's own passes.",
                file="pipeline/outputs.py",
                old="if pair.said < pair.counted or",
                new="if",
                test="tests/unit/pipeline/test_runner.py"
                "::test_a_total_that_is_not_the_stores_own_is_named_with_both",
            ),
            Fault(
                what="What a report leaves out altogether is not missed.",
                file="pipeline/outputs.py",
                old="{name: 0 for name in counts if",
                new="{name: 0 for name in () if",
                test="tests/unit/pipeline/test_runner.py"
                "::test_what_the_store_counts_and_no_row_is_of_is_a_total_too",
            ),
            Fault(
                what="A name can reorder what stands around it.",
                file="pipeline/report/markup.py",
                old="one if one.isprintable() else",
                new="one if one else",
                test="tests/unit/pipeline/test_report_page.py::test_what_others_wrote_stays_text_without_controls",
            ),
            Fault(
                what="Every run begins with loading Spark.",
                file="pipeline/work.py",
                old="from claudemesh.pipeline.lake import Cut, Lake\n",
                new="from claudemesh.pipeline.lake import Cut, Lake\nimport pyspark\n",
                test="tests/unit/cli/test_pipeline.py"
                "::test_nothing_loads_spark_before_there_is_something_for_it_to_do",
            ),
            Fault(
                what="Without the extra there is a traceback.",
                file="pipeline/work.py",
                old="if not str(error.name).startswith(_OF_THE_EXTRA):",
                new='if error.name != "pyspark":',
                test="tests/unit/cli/test_pipeline.py::test_without_the_extra_the_remedy_is_one_line",
            ),
            Fault(
                what="Somebody who watches sees nothing if the result is JSON.",
                file="pipeline/progress.py",
                old="self._is_silent = is_quiet and not self._line.is_live",
                new="self._is_silent = is_quiet",
                test="tests/unit/pipeline/test_progress.py::test_on_a_terminal_a_bar_is_drawn_and_leaves_no_trace",
            ),
        ),
    ),
    Requirement(
        "S5",
        "Jobs are expressions and SQL; a Python UDF is the exception.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="A job calls Python for every row.",
                file="pipeline/jobs/traffic.py",
                old='.groupBy("mesh_id", "kind", hour)',
                new='.groupBy("mesh_id", F.udf(lambda kind: kind)("kind").alias("kind"), hour)',
                test=f"{_VIEWS}::test_every_job_plans_its_outputs_without_python_in_the_executors",
            ),
        ),
    ),
    Requirement(
        "S6",
        "The jobs also run on a cluster of several processes.",
        "contract 8",
        "proven",
        faults=(
            Fault(
                what="Workers get the files of the package, but not as a package.",
                file="pipeline/session.py",
                old="path.relative_to(_PACKAGE.parent)",
                new="path.relative_to(_PACKAGE)",
                test="tests/unit/pipeline/test_session.py"
                "::test_what_is_shipped_to_workers_reads_a_store_without_an_installation",
            ),
            Fault(
                what="The driver of a cluster listens where no worker reaches it.",
                file="pipeline/session.py",
                old='return re.fullmatch(r"local(\\[.*\\])?", master) is not None',
                new='return master.startswith("local")',
                test="tests/unit/pipeline/test_session.py::test_only_a_master_of_this_process_keeps_to_loopback",
            ),
        ),
    ),
)
