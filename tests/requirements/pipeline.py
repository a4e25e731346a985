"""Contract 8: the data pipeline."""

from tests.requirements.model import Fault, Requirement

_CHECKS = "tests/unit/pipeline/test_checks.py"
_VIEWS = "tests/spark/test_jobs_views.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    # Brokers with their presence, outboxes, inboxes and ledgers are copied; the relay is not built yet.
    Requirement("S1", "Ingest is incremental and exactly once across crashes.", "contract 8", "planned"),
    Requirement("S2", "Each job rebuilds or measures its subject from stored data.", "contract 8", "planned"),
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
                old="self._is_silent = is_quiet and not self._is_live",
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
