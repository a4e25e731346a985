"""Who was there and for how long, how often their connections failed, and how often they came back in time.

All of it is from the journal of leases. A session lasts from joined to left; it is a key's: a member's own, which
is '', or that of one of its sessions. A flap is a socket that was replaced, one that was gone (online) or one that
was still there (swapped). Grace is the time that a lease stands without a socket; where a key has several leases at
once, each has its own. What has not ended is measured up to the cut.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import DAY_MS, HOUR_MS
from claudemesh.pipeline.jobs.latency import QUANTILES
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables, day_of, named_mesh

_KEY = ["mesh_id", "member_id", "session_pubkey"]
_DAY = ["mesh_id", "day_number"]
_IS_FLAP = "what IN ('online', 'swapped')"


def sessions(tables: Tables, params: Params) -> DataFrame:
    """Give every session that was there since then, and why it ended; one that stands has no end."""
    wanted = _sessions(tables, params)
    if params.since_ms is not None:
        wanted = wanted.where((F.col("last_at") >= params.since_ms) | F.col("ended_at").isNull())
    members = tables["member"].select(F.col("id").alias("member_id"), F.col("uid").alias("member"), "name")
    return (
        named_mesh(wanted, tables)
        .join(F.broadcast(members), "member_id", "left")
        .select(
            "mesh",
            day_of("began_at").alias("day"),
            "member",
            "name",
            F.col("session_pubkey").alias("session"),
            "began_at",
            "is_begin_known",
            "ended_at",
            "because",
            F.expr("last_at - began_at").alias("took_ms"),
            "leases",
            "flaps",
            "graces",
            "returns",
            "grace_ms",
            "longest_grace_ms",
        )
    )


def days(tables: Tables, params: Params) -> DataFrame:
    """Measure each UTC day of a mesh on which anybody was there; graces on the day on which they were over."""
    slices = _slices(tables, params)
    present = slices.groupBy(_DAY).agg(
        F.count("*").alias("sessions"),
        F.count_if("is_first").alias("begun"),
        F.count_if("is_last").alias("ended"),
        (F.sum("present_ms") / HOUR_MS).alias("hours"),
    )
    flaps = _events(tables).where(_IS_FLAP).groupBy("mesh_id", _day_number("at")).agg(F.count("*").alias("flaps"))
    over = _events(tables).where("grace_ms IS NOT NULL")
    quantiles = [F.percentile("grace_ms", share).alias(name) for name, share in QUANTILES.items()]
    graces = over.groupBy("mesh_id", _day_number("next_at")).agg(
        F.count("*").alias("graces"),
        F.count_if("is_return").alias("returns"),
        *quantiles,
        F.max("grace_ms").alias("max_ms"),
    )
    measured = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (present, _peaks(slices), flaps, graces),
    )
    counts = ("sessions", "begun", "ended", "peak", "hours", "flaps", "graces", "returns")
    merged = measured.groupBy(_DAY).agg(
        *(F.coalesce(F.max(name), F.lit(0)).alias(name) for name in counts),
        *(F.max(name).alias(name) for name in (*QUANTILES, "max_ms")),
    )
    if params.since_ms is not None:
        merged = merged.where(F.col("day_number") >= params.since_ms // DAY_MS)
    return named_mesh(merged, tables).select(
        "mesh",
        day_of(f"day_number * {DAY_MS}").alias("day"),
        *counts,
        F.expr("flaps / nullif(hours, 0)").alias("flaps_per_hour"),
        F.expr("returns / nullif(graces, 0)").alias("returned_share"),
        *QUANTILES,
        "max_ms",
    )


def endings(tables: Tables, params: Params) -> DataFrame:
    """Count the sessions that ended, by why they did."""
    over = sessions(tables, params).where("ended_at IS NOT NULL")
    return over.groupBy("mesh", "because").agg(F.count("*").alias("sessions"))


# --- views -------------------------------------------------------------------------------------------


def _events(tables: Tables) -> DataFrame:
    """Give the journal with the number of the session that an event is of, and of a grace how it went on.

    Clocks of two brokers may disagree: nothing took less than no time.
    """
    of_key = Window.partitionBy(*_KEY).orderBy("id")
    of_lease = Window.partitionBy("presence_uid").orderBy("id")
    return (
        tables["presence_event"]
        .withColumn("session_number", F.sum(F.expr("int(what = 'joined')")).over(of_key))
        .withColumn("next_at", F.lead("at").over(of_lease))
        .withColumn("is_return", F.lead("what").over(of_lease) == "online")
        .withColumn(
            "grace_ms", F.expr("CASE WHEN what = 'offline' AND next_at > 0 THEN greatest(next_at - at, 0) END")
        )
    )


def _sessions(tables: Tables, params: Params) -> DataFrame:
    """Fold the journal. The beginning of a session may have been swept: then the first that is known of it is."""
    open_ms = F.expr(f"CASE WHEN what = 'offline' THEN greatest({params.looked_ms} - at, 0) END")
    return (
        _events(tables)
        .withColumn("grace_ms", F.coalesce("grace_ms", open_ms))
        .groupBy(*_KEY, "session_number")
        .agg(
            F.min("id").alias("begin_id"),
            F.min_by("at", "id").alias("began_at"),
            F.count_if(F.expr("what = 'joined'")).cast("boolean").alias("is_begin_known"),
            F.expr("max(id) FILTER (WHERE what = 'left')").alias("end_id"),
            F.expr("max_by(at, id) FILTER (WHERE what = 'left')").alias("ended_at"),
            F.expr("max_by(because, id) FILTER (WHERE what = 'left')").alias("because"),
            F.count_distinct("presence_uid").alias("leases"),
            F.count_if(F.expr(_IS_FLAP)).alias("flaps"),
            F.count_if(F.expr("what = 'offline'")).alias("graces"),
            F.count_if(F.expr("what = 'offline' AND is_return")).alias("returns"),
            F.coalesce(F.sum("grace_ms"), F.lit(0)).alias("grace_ms"),
            F.coalesce(F.max("grace_ms"), F.lit(0)).alias("longest_grace_ms"),
        )
        .withColumn("last_at", F.expr(f"greatest(began_at, coalesce(ended_at, {params.looked_ms}))"))
    )


def _slices(tables: Tables, params: Params) -> DataFrame:
    """Cut the sessions at midnight, of UTC."""
    first, last = f"began_at DIV {DAY_MS}", f"last_at DIV {DAY_MS}"
    begin, end = f"greatest(began_at, day_number * {DAY_MS})", f"least(last_at, (day_number + 1) * {DAY_MS})"
    return (
        _sessions(tables, params)
        .withColumn("day_number", F.explode(F.expr(f"sequence({first}, {last})")))
        .withColumn("present_ms", F.expr(f"{end} - {begin}"))
        .withColumn("is_first", F.expr(f"is_begin_known AND day_number = {first}"))
        .withColumn("is_last", F.expr(f"ended_at IS NOT NULL AND day_number = {last}"))
        .withColumn("from_id", F.expr(f"CASE WHEN day_number = {first} THEN begin_id ELSE 0 END"))
    )


def _peaks(slices: DataFrame) -> DataFrame:
    """Count how many were there at once, in the order of the journal: who was there at midnight comes first."""
    came = slices.select(*_DAY, F.col("from_id").alias("id"), F.lit(1).alias("step"))
    went = slices.where("is_last").select(*_DAY, F.col("end_id").alias("id"), F.lit(-1).alias("step"))
    so_far = Window.partitionBy(*_DAY).orderBy("id").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        came.unionByName(went)
        .withColumn("there", F.sum("step").over(so_far))
        .groupBy(_DAY)
        .agg(F.max("there").alias("peak"))
    )


def _day_number(at_ms: str) -> Column:
    return F.expr(f"{at_ms} DIV {DAY_MS}").alias("day_number")
