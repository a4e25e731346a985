"""What a report shows beside what jobs give: who was seen, who came and left, what outboxes add up to."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import HOUR_MS
from claudemesh.pipeline.jobs.views import Tables, deliveries, live

MEMBERS_MAX = 1_000


def members(tables: Tables) -> DataFrame:
    """Give the members that sent or received what the store still has, those who did so last first."""
    sent = live(tables, "message_history").select(
        F.col("sender_id").alias("id"), F.col("accepted_at").alias("at"), F.lit(1).alias("sent")
    )
    received = (
        deliveries(tables)
        .where("recipient_id > 0 AND delivered_at IS NOT NULL")
        .select(F.col("recipient_id").alias("id"), F.col("delivered_at").alias("at"), F.lit(0).alias("sent"))
    )
    seen = (
        sent.unionByName(received)
        .groupBy("id")
        .agg(
            F.sum("sent").alias("sent"),
            F.sum(1 - F.col("sent")).alias("received"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
    )
    meshes = tables["mesh"].select(F.col("id").alias("mesh_id"), F.col("slug").alias("mesh"))
    return (
        seen.join(F.broadcast(tables["member"].select("id", "mesh_id", "name")), "id")
        .join(F.broadcast(meshes), "mesh_id", "left")
        .select("mesh", "name", "sent", "received", "first_at", "last_at")
        .orderBy(F.desc("last_at"))
        .limit(MEMBERS_MAX)
    )


def peer_events(tables: Tables) -> DataFrame:
    """Count who came and who left, as one daemon was told, by hour."""
    hour = F.expr(f"at DIV {HOUR_MS} * {HOUR_MS}").alias("hour_at")
    of_peers = tables["event"].where("type IN ('peer_joined', 'peer_left')")
    return of_peers.groupBy("type", hour).agg(F.count("*").alias("events"))


def outbox_totals(tables: Tables) -> DataFrame:
    """Add up by status, under the names of the store's own counts."""
    name = F.concat(F.lit("outbox."), "status").alias("name")
    return tables["outbox"].groupBy(name).agg(F.count("*").alias("rows"))
