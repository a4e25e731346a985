"""How near the senders of a mesh come to its budget of sends in a window."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables, day_of, named_mesh, named_sender, since

NEAR = 0.8  # of the budget


def senders(tables: Tables, params: Params) -> DataFrame:
    """Measure each sender's windows of a day, by the wall clock: where the limiter's own began, it alone knows."""
    window_ms = params.window_s * 1000
    sent = since(tables["message_history"], "accepted_at", params.since_ms)
    windows = sent.groupBy("mesh_id", "sender_id", F.expr(f"accepted_at DIV {window_ms}").alias("window")).agg(
        F.count("*").alias("sends")
    )
    budgets = tables["mesh"].select(
        F.col("id").alias("mesh_id"),
        F.coalesce("sends_per_window", F.lit(params.sends_per_window)).alias("budget"),
    )
    days = (
        windows.join(F.broadcast(budgets), "mesh_id")
        .withColumn("began_at", F.col("window") * window_ms)
        .groupBy("mesh_id", "sender_id", day_of("began_at").alias("day"), "budget")
        .agg(
            F.sum("sends").alias("sends"),
            F.count("*").alias("windows"),
            F.max("sends").alias("peak"),
            F.count_if(F.col("sends") >= F.col("budget") * NEAR).alias("windows_near"),
            F.count_if(F.col("sends") >= F.col("budget")).alias("windows_full"),
        )
    )
    return named_sender(named_mesh(days, tables), tables).select(
        "mesh",
        "day",
        "sender",
        "sends",
        "windows",
        "peak",
        "budget",
        (F.col("peak") / F.col("budget")).alias("share"),
        "windows_near",
        "windows_full",
    )
