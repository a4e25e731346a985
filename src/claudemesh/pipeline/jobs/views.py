"""What the jobs share: the rows that the store still has, what became of a delivery, and names for small numbers.

The tables of the lake hold every row that was ever copied. What retention took away has a tombstone.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import DAY_MS
from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.frames import buried_rows
from claudemesh.pipeline.shapes import TOMBSTONE

Tables: TypeAlias = Mapping[str, DataFrame]  # of one source, at one cut

MESSAGE: Final = ["mesh_id", "history_id"]
DELIVERY: Final = [*MESSAGE, "recipient_id"]


def buried(tables: Tables) -> DataFrame:
    """Messages that retention deleted."""
    return tables[TOMBSTONE].where("what = 'message'")


def live(tables: Tables, name: str) -> DataFrame:
    """Rows that the store has at the cut, of any table of a broker that is copied row by row."""
    grave = BROKER.table(name).grave
    if grave is None:
        return tables[name]
    return tables[name].join(buried_rows(tables[TOMBSTONE], grave), [*grave.key], "left_anti")


def used_ids(tables: Tables) -> DataFrame:
    """Give the accepted ids whose messages should be there."""
    return live(tables, "client_message_dedupe").join(buried(tables), "broker_message_id", "left_anti")


def fold(events: DataFrame) -> DataFrame:
    """Say what became of each delivery of which there is any event.

    Numbers only: to keep the greatest of anything else, Spark would sort all of them.
    """
    last = {what: _greatest_id(what).alias(what) for what in ("delivered", "returned", "dead", "read", "acted")}
    delivered_at = F.expr("max_by(at, id) FILTER (WHERE what = 'delivered')")
    state = (
        F.when(F.expr("dead > delivered"), "dead_letter")
        .when(F.expr("delivered = 0 OR returned > delivered"), "accepted")
        .when(F.expr("acted > 0"), "acted")
        .when(F.expr("read > 0"), "read")
        .otherwise("delivered")
    )
    return (
        events.groupBy(DELIVERY)
        .agg(*last.values(), delivered_at.alias("delivered_at"))
        .select(*DELIVERY, state.alias("state"), "delivered_at")
    )


def deliveries(tables: Tables) -> DataFrame:
    """Deliveries that the store has at the cut, with what became of them."""
    known = live(tables, "delivery_queue").join(fold(tables["delivery_event"]), DELIVERY, "left")
    return known.withColumn("state", F.coalesce("state", F.lit("accepted")))


def named_mesh(rows: DataFrame, tables: Tables) -> DataFrame:
    """Add `mesh`, as the world knows it."""
    meshes = tables["mesh"].select(F.col("id").alias("mesh_id"), F.col("uid").alias("mesh"))
    return rows.join(F.broadcast(meshes), "mesh_id", "left")


def named_sender(rows: DataFrame, tables: Tables) -> DataFrame:
    """Add `sender`, as the world knows it."""
    members = tables["member"].select(F.col("id").alias("sender_id"), F.col("uid").alias("sender"))
    return rows.join(F.broadcast(members), "sender_id", "left")


def day_of(at_ms: str) -> Column:
    """Of UTC, whatever the session's time zone."""
    return F.expr(f"CAST(date_from_unix_date(CAST({at_ms} DIV {DAY_MS} AS INT)) AS STRING)")


def since(rows: DataFrame, at_ms: str, since_ms: int | None) -> DataFrame:
    return rows if since_ms is None else rows.where(F.col(at_ms) >= since_ms)


def _greatest_id(what: str) -> Column:
    return F.expr(f"coalesce(max(id) FILTER (WHERE what = '{what}'), 0)")
