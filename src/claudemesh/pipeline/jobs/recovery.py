"""How relays came through outages: what had to wait for the upstream, for how long, and what became of it.

An envelope belongs to the last outage that had begun when it was queued, unless that was over by then; one that was
queued while the upstream was there, behind others of its entity say, belongs to none. Whatever is not over is
measured up to the cut.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables

_COUNTS = {
    "queued": "status IN ('pending', 'inflight')",
    "acked": "status = 'done'",
    "conflict": "status = 'conflict'",
    "dead": "status = 'dead'",
    "cancelled": "status = 'aborted' AND NOT is_coalesced",
    "coalesced": "is_coalesced",
}


def outages(tables: Tables, params: Params) -> DataFrame:
    """Give every outage that was not over by then: its times, what had to wait in it, and how that was replayed."""
    belonging = _envelopes(tables).where("outage_id IS NOT NULL")
    waited = F.expr(f"coalesce(delivered_at, aborted_at, {params.looked_ms}) - enqueued_at")
    counts = [F.count_if(F.expr(what)).alias(name) for name, what in _COUNTS.items()]
    lanes = belonging.groupBy("outage_id", "destination").agg(F.count("*").alias("lane"))
    longest = lanes.groupBy("outage_id").agg(
        F.max("lane").alias("longest_lane"), F.max_by("destination", F.struct("lane", "destination")).alias("lane")
    )
    found = (
        belonging.groupBy("outage_id")
        .agg(
            F.count("*").alias("envelopes"),
            *counts,
            F.sum("attempts").alias("attempts"),
            F.max(F.greatest(waited, F.lit(0))).alias("oldest_wait_ms"),
        )
        .join(longest, "outage_id")
    )
    names = ("envelopes", *_COUNTS, "attempts", "longest_lane")
    known = _outages(tables).join(found, "outage_id", "left")
    if params.since_ms is not None:
        known = known.where(F.col("recovered_at").isNull() | (F.col("recovered_at") >= params.since_ms))
    return known.select(
        "outage_id",
        "began_at",
        "online_at",
        "recovered_at",
        _span("began_at", f"coalesce(online_at, {params.looked_ms})").alias("away_ms"),
        _span("online_at", f"coalesce(recovered_at, {params.looked_ms})").alias("replay_ms"),
        _span("began_at", f"coalesce(recovered_at, {params.looked_ms})").alias("took_ms"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in names),
        "lane",
        "oldest_wait_ms",
    ).withColumn("acked_per_s", F.expr("CASE WHEN replay_ms > 0 THEN acked * 1000 / replay_ms END"))


def classes(tables: Tables, _params: Params) -> DataFrame:
    """Count envelopes by the class of their route and by their state, of each outage and of none."""
    of_class = _envelopes(tables).groupBy("outage_id", "route_class", "status")
    return of_class.agg(F.count("*").alias("envelopes"), F.count_if("is_coalesced").alias("coalesced"))


# --- views -------------------------------------------------------------------------------------------


def _outages(tables: Tables) -> DataFrame:
    """Give the outages, each with the first envelope of the next; where nothing waited, that is its own."""
    in_order = Window.partitionBy(F.lit(0)).orderBy("first_seq", "began_at", "id")
    return (
        tables["outage"]
        .withColumn("next_seq", F.lead("first_seq").over(in_order))
        .withColumnRenamed("id", "outage_id")
    )


def _envelopes(tables: Tables) -> DataFrame:
    """Give the envelopes, each with its outage. There are few of these: every worker has them all."""
    envelopes, outages = tables["outbox"].alias("e"), _outages(tables).alias("o")
    during = F.expr(
        "e.seq >= o.first_seq AND (o.next_seq IS NULL OR e.seq < o.next_seq)"
        " AND (o.recovered_at IS NULL OR e.enqueued_at <= o.recovered_at)"
    )
    return (
        envelopes.join(F.broadcast(outages), during, "left")
        .select("e.*", "o.outage_id")
        .withColumn("is_coalesced", F.expr("status = 'aborted' AND coalesce(aborted_by, '') = 'coalesced'"))
    )


def _span(start: str, end: str) -> Column:
    """Measure from one time to another: clocks may be set back, and nothing takes less than no time."""
    return F.expr(f"CASE WHEN {start} IS NOT NULL THEN greatest({end} - {start}, 0) END")
