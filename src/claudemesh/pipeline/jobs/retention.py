"""What is old enough to go. The broker executes the plan, with tombstones; nothing is deleted from here."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import DAY_MS
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import MESSAGE, Tables, deliveries, live, named_mesh


def plan(tables: Tables, params: Params) -> DataFrame:
    """Give every message that is older than it may get; an open one has to become a dead letter first."""
    before_ms = params.now_ms - params.retention_days * DAY_MS
    old = live(tables, "message_history").where(F.col("accepted_at") < before_ms)
    # A queue's own row (recipient 0) is closed by its worker's ack, not by the lease that delivered it.
    waiting = deliveries(tables).where(
        "state = 'accepted' OR (recipient_id = 0 AND state IN ('delivered', 'read'))"
    )
    is_open = waiting.select(*MESSAGE, F.lit(True).alias("is_open")).distinct()  # noqa: FBT003 - a literal of Spark's
    return named_mesh(old.join(is_open, MESSAGE, "left"), tables).select(
        "mesh",
        "history_id",
        "broker_message_id",
        "client_message_id",
        "accepted_at",
        F.lit(f"older than {params.retention_days} days").alias("reason"),
        F.coalesce("is_open", F.lit(False)).alias("is_open"),  # noqa: FBT003 - as above
    )
