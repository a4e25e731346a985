"""What a mesh carried: its messages by kind and hour, its deliveries by state. Its totals are the store's own."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.clock import HOUR_MS
from claudemesh.pipeline.jobs import views
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables, live, named_mesh


def messages(tables: Tables, _params: Params) -> DataFrame:
    hour = F.expr(f"accepted_at DIV {HOUR_MS} * {HOUR_MS}").alias("hour_at")
    counted = live(tables, "message_history").groupBy("mesh_id", "kind", hour).agg(F.count("*").alias("messages"))
    return named_mesh(counted, tables).select("mesh", "kind", "hour_at", "messages")


def deliveries(tables: Tables, _params: Params) -> DataFrame:
    counted = views.deliveries(tables).groupBy("mesh_id", "state").agg(F.count("*").alias("deliveries"))
    return named_mesh(counted, tables).select("mesh", "state", "deliveries")
