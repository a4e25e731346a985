"""What ledgers were given to do: how much of it is done, how long it took, and which leases ran out.

A step is posted with its message, claimed under a lease, and committed with its receipt. When it was claimed last,
and what was requeued and renewed, is known of a ledger of version 2 alone.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.latency import QUANTILES
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables, since

REQUEUED_MAX = 1_000  # steps that are named

_COUNTS = {
    "pending": "status = 'PENDING'",
    "leased": "status = 'LEASED'",
    "committed": "status = 'COMMITTED'",
    "success": "outcome = 'SUCCESS'",
    "failure": "outcome = 'FAILURE'",
    "aborted": "outcome = 'ABORTED'",
    "expired": "is_expired",
}
_SPANS = {
    "posted_to_claimed": "claimed_ms - posted_ms",
    "claimed_to_receipt": "receipt_ms - claimed_ms",
    "posted_to_receipt": "receipt_ms - posted_ms",
}


def runs(tables: Tables, params: Params) -> DataFrame:
    """Count what each run has, and all of them (no run).

    A lease that ran out was requeued or, if nobody did that yet, is `expired` at the cut: `expiries` are both.
    """
    of_messages = _posted(tables).groupBy("run_id").agg(F.count("*").alias("messages"))
    of_jobs = _jobs(tables).groupBy("run_id").agg(F.count("*").alias("jobs"))
    counts = [F.count_if(F.expr(what)).alias(name) for name, what in _COUNTS.items()]
    of_steps = (
        _steps(tables, params)
        .groupBy("run_id")
        .agg(
            F.count("*").alias("steps"),
            *counts,
            F.sum("requeues").alias("requeues"),
            F.sum("renewals").alias("renewals"),
        )
    )
    names = ["messages", "jobs", "steps", *_COUNTS, "requeues", "renewals"]
    joined = of_messages.join(of_jobs, "run_id", "left").join(of_steps, "run_id", "left")
    summed = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]
    return joined.rollup("run_id").agg(*summed).withColumn("expiries", F.expr("requeues + expired"))


def steps(tables: Tables, _params: Params) -> DataFrame:
    known = tables["cassette_steps"].join(_jobs(tables), "job_id")
    return known.groupBy("run_id", "status").agg(F.count("*").alias("steps"))


def outcomes(tables: Tables, _params: Params) -> DataFrame:
    known = tables["cassette_receipts"].join(_jobs(tables), "job_id")
    return known.groupBy("run_id", "outcome").agg(F.count("*").alias("receipts"))


def lead_times(tables: Tables, params: Params) -> DataFrame:
    """Give exact percentiles by span and run, and by span over all (no run), of messages since then.

    A claim is the last one of a step, if it stands: of what was requeued nobody holds it.
    """
    measured = since(_steps(tables, params), "posted_ms", params.since_ms)
    spans = ", ".join(f"'{name}', {took}" for name, took in _SPANS.items())
    took = (
        measured.selectExpr("run_id", f"stack({len(_SPANS)}, {spans}) AS (span, took_ms)")
        .where("took_ms IS NOT NULL")
        .groupBy("span", "run_id", "took_ms")  # exact percentiles need only these, and how often each was
        .agg(F.count("*").alias("times"))
    )
    quantiles = [F.percentile("took_ms", share, F.col("times")).alias(name) for name, share in QUANTILES.items()]
    return (
        took.rollup("span", "run_id")
        .agg(F.sum("times").alias("steps"), *quantiles, F.max("took_ms").alias("max_ms"))
        .where("span IS NOT NULL")
        .select("run_id", "span", "steps", *QUANTILES, "max_ms")
    )


def requeued(tables: Tables, params: Params) -> DataFrame:
    """Name the steps whose leases ran out most often, those that wait for a requeue among them."""
    return (
        _steps(tables, params)
        .withColumn("expiries", F.expr("requeues + CASE WHEN is_expired THEN 1 ELSE 0 END"))
        .where("expiries > 0")
        .select(
            "run_id",
            "job_id",
            "step_id",
            "status",
            "fencing_token",
            "expiries",
            "requeues",
            "renewals",
            "is_expired",
        )
        .orderBy(F.desc("expiries"), "step_id")
        .limit(REQUEUED_MAX)
    )


# --- views -------------------------------------------------------------------------------------------


def _posted(tables: Tables) -> DataFrame:
    return tables["cassette_messages"].select("message_id", "run_id", _ms("created_at").alias("posted_ms"))


def _jobs(tables: Tables) -> DataFrame:
    return tables["cassette_jobs"].select("job_id", "message_id").join(_posted(tables), "message_id")


def _steps(tables: Tables, params: Params) -> DataFrame:
    """Give all that is known of each step at the cut."""
    receipts = tables["cassette_receipts"].select("step_id", "outcome", _ms("created_at").alias("receipt_ms"))
    known = (
        tables["cassette_steps"]
        .join(_jobs(tables), "job_id")
        .join(receipts, "step_id", "left")
        .join(_count(tables, "cassette_requeues", "requeues"), "step_id", "left")
        .join(_count(tables, "cassette_renewals", "renewals"), "step_id", "left")
    )
    claimed = F.when(F.col("status") != "PENDING", _ms("claimed_at"))
    ended = (F.col("status") == "LEASED") & (_ms("lease_expires_at") <= params.looked_ms)
    return known.select(
        "run_id",
        "job_id",
        "step_id",
        "status",
        "fencing_token",
        "outcome",
        "posted_ms",
        claimed.alias("claimed_ms"),
        "receipt_ms",
        F.coalesce("requeues", F.lit(0)).alias("requeues"),
        F.coalesce("renewals", F.lit(0)).alias("renewals"),
        F.coalesce(ended, F.lit(False)).alias("is_expired"),  # noqa: FBT003 - a column
    )


def _count(tables: Tables, table: str, name: str) -> DataFrame:
    return tables[table].groupBy("step_id").agg(F.count("*").alias(name))


def _ms(at: str) -> Column:
    """Read an instant as ledgers write it; what is none has no time."""
    return F.expr(f"unix_millis(try_to_timestamp({at}))")
