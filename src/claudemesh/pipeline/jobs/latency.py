"""How long messages took from their accept to their delivery, and which never arrived."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import (
    DELIVERY,
    MESSAGE,
    Tables,
    day_of,
    deliveries,
    fold,
    live,
    named_mesh,
    named_sender,
    since,
)

QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


def latency(tables: Tables, params: Params) -> DataFrame:
    """Give exact percentiles by mesh and UTC day of the accept, by mesh (no day), and over all (no mesh).

    Of all deliveries that were copied: how long they took is still true when retention has deleted the message.
    """
    # In one place for the fold and the join after it; the fold alone would scatter a message's deliveries.
    events = tables["delivery_event"].repartition(*MESSAGE)
    delivered = fold(events).where("recipient_id > 0 AND state IN ('delivered', 'read', 'acted')")
    accepted = since(tables["message_history"], "accepted_at", params.since_ms).select(*MESSAGE, "accepted_at")
    # Of many deliveries, few different latencies: exact percentiles need only these and how often each was.
    took = (
        delivered.join(accepted, MESSAGE)
        .groupBy(
            "mesh_id", day_of("accepted_at").alias("day"), F.expr("delivered_at - accepted_at").alias("took_ms")
        )
        .agg(F.count("*").alias("times"))
    )
    quantiles = [F.percentile("took_ms", share, F.col("times")).alias(name) for name, share in QUANTILES.items()]
    return (
        named_mesh(took, tables)
        .rollup("mesh", "day")
        .agg(F.sum("times").alias("deliveries"), *quantiles, F.max("took_ms").alias("max_ms"))
    )


def dead_letters(tables: Tables, _params: Params) -> DataFrame:
    """Name each delivery that was given up, and why."""
    dead = deliveries(tables).where("state = 'dead_letter'").select(DELIVERY)
    why = (
        tables["delivery_event"]
        .where("what = 'dead'")
        .groupBy(DELIVERY)
        .agg(F.max_by("at", "id").alias("dead_at"), F.max_by("reason", "id").alias("reason"))
    )
    sent = live(tables, "message_history").select(
        *MESSAGE, "broker_message_id", "client_message_id", "sender_id", "accepted_at"
    )
    named = named_sender(named_mesh(dead.join(why, DELIVERY).join(sent, MESSAGE, "left"), tables), tables)
    recipients = tables["member"].select(F.col("id").alias("recipient_id"), F.col("uid").alias("recipient"))
    return named.join(F.broadcast(recipients), "recipient_id", "left").select(
        "mesh",
        "reason",
        "history_id",
        "broker_message_id",
        "client_message_id",
        "sender",
        "recipient",
        "accepted_at",
        "dead_at",
    )


def dead_reasons(tables: Tables, params: Params) -> DataFrame:
    return dead_letters(tables, params).groupBy("mesh", "reason").agg(F.count("*").alias("dead_letters"))
