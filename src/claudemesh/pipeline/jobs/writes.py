"""What was written at a hub: how its rows stand by its journal alone, and how many writes came when."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import HOUR_MS
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables


def rows(tables: Tables, _params: Params) -> DataFrame:
    """Count the rows that stand, by kind and status; a kind without a status has the empty one."""
    last = (
        tables["hub_write"]
        .groupBy("kind", "entity_id")
        .agg(F.max_by("deleted", "seq").alias("deleted"), F.max_by("status", "seq").alias("status"))
    )
    status = F.coalesce("status", F.lit("")).alias("status")
    return last.where("deleted = 0").groupBy("kind", status).agg(F.count("*").alias("rows"))


def writes(tables: Tables, _params: Params) -> DataFrame:
    """Count writes by the hour, and of them those that carried a key, an expectation, or deleted their row."""
    hour = F.expr(f"at DIV {HOUR_MS} * {HOUR_MS}").alias("hour_at")
    expected = "coalesce(expected_revisions, string(expected_updated_at), expected_status) IS NOT NULL"
    return (
        tables["hub_write"]
        .groupBy("kind", hour)
        .agg(
            F.count("*").alias("writes"),
            F.count_if(F.expr("base_revision = 0")).alias("created"),
            F.count_if(F.expr("deleted = 1")).alias("deleted"),
            F.count_if(F.expr("idempotency_key IS NOT NULL")).alias("keyed"),
            F.count_if(F.expr(expected)).alias("expecting"),
        )
    )
