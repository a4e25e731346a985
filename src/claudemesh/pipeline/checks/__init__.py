"""The history checker: what clients were told, against what the stores hold.

    inputs.sql   a few plain tables, out of those of the stores
    sends.sql, deliveries.sql, turns.sql, relays.sql   the promise, as queries that find nothing
    invariants   how they are loaded, and what they find
    sqlite       them on SQLite, for fast tests and plain files
    spark        them on Spark, for a cut of the lake

Outboxes are to be read before the broker and inboxes after it, relays before their hub, as messages and writes
pass; then nothing that is on its way looks lost. How to add an invariant: a query with a name, and in the tests a
history that breaks it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from claudemesh.pipeline.checks.invariants import Verdict, Violation
from claudemesh.pipeline.history import read_history

if TYPE_CHECKING:  # loading it takes a second, and tests on SQLite do without
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Verdict", "Violation", "run"]


def run(
    spark: "SparkSession",
    cut_tables: "Mapping[str, Mapping[str, DataFrame]]",
    logs: Sequence[Path],
    *,
    until_ms: int | None = None,
) -> Verdict:
    """Check a cut against the logs. What was acknowledged after its ingest began, `until_ms`, need not be in it."""
    from claudemesh.pipeline.checks.spark import check_on_spark  # noqa: PLC0415 - as above

    return check_on_spark(spark, cut_tables, read_history(logs, until_ms))
