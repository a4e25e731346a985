"""A log that cannot be changed unnoticed: one hash for each message, chained by mesh and UTC day.

A message's leaf is SHA-256 over its fields in the order of LEAF, each written as its length in bytes, a colon, the
UTF-8 text and a comma, so that no two lists of fields look the same. The chain goes over the leaves in the order of
the mesh: the next link is SHA-256 over the last link and the next leaf, both as lower-case hex; the first link is
over the first leaf alone. Whatever was ever copied belongs to it, also what retention has deleted since.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables, buried, day_of, named_mesh, named_sender

LEAF: Final = (
    "mesh",
    "history_id",
    "broker_message_id",
    "sender",
    "client_message_id",
    "kind",
    "accepted_at",
    "fingerprint",  # lower-case hex; empty if the id's row is missing
)
_CHAIN: Final = ["mesh", "day"]


def entries(tables: Tables, _params: Params) -> DataFrame:
    fingerprints = tables["client_message_dedupe"].select(
        "sender_id",
        "client_message_id",
        "broker_message_id",
        F.lower(F.hex("request_fingerprint")).alias("fingerprint"),
    )
    known = tables["message_history"].join(
        fingerprints, ["sender_id", "client_message_id", "broker_message_id"], "left"
    )
    return named_sender(named_mesh(known, tables), tables).select(
        "mesh",
        day_of("accepted_at").alias("day"),
        "history_id",
        "broker_message_id",
        F.sha2(F.concat(*(_written(field) for field in LEAF)), 256).alias("leaf"),
    )


def heads(tables: Tables, params: Params) -> DataFrame:
    return chain(entries(tables, params))


def chain(logged: DataFrame) -> DataFrame:
    """Fold the entries of each mesh and day to one head, in the JVM."""
    days = logged.groupBy(_CHAIN).agg(F.sort_array(F.collect_list(F.struct("history_id", "leaf"))).alias("links"))
    head = F.aggregate("links", F.lit(""), lambda above, link: F.sha2(F.concat(above, link["leaf"]), 256))
    return days.select(
        *_CHAIN,
        F.size("links").cast("bigint").alias("messages"),
        F.element_at("links", 1)["history_id"].alias("first_history_id"),
        F.element_at("links", -1)["history_id"].alias("last_history_id"),
        head.alias("head"),
    )


def compare_heads(stored: DataFrame, tables: Tables, params: Params) -> DataFrame:
    """Hold heads that were published once against what the lake says now: what is left is a violation.

    A day may have grown, so its chain is folded again up to the last message that its stored head had. Where
    retention took messages before this lake copied them, the day cannot be proven any more: if the tombstones
    account for every message that is missing, it is no violation.
    """
    before = stored.select(*_CHAIN, *(F.col(name).alias(f"stored_{name}") for name in stored.columns[2:]))
    logged = entries(tables, params)
    up_to = logged.join(F.broadcast(before), _CHAIN).where("history_id <= stored_last_history_id")
    gone = named_mesh(buried(tables), tables).join(logged, ["mesh", "history_id"], "left_anti")
    in_days = F.expr("history_id BETWEEN stored_first_history_id AND stored_last_history_id")
    pruned = gone.join(F.broadcast(before), "mesh").where(in_days).groupBy(_CHAIN).agg(F.count("*").alias("pruned"))
    return (
        before.join(chain(up_to.select(logged.columns)), _CHAIN, "left")
        .join(pruned, _CHAIN, "left")
        .fillna(0, ["messages", "pruned"])
        .where("head IS DISTINCT FROM stored_head")
        .where("NOT (pruned > 0 AND messages + pruned = stored_messages)")
        .select(
            *_CHAIN,
            F.expr(
                "CASE WHEN messages < stored_messages THEN 'removed' "
                "WHEN messages > stored_messages THEN 'inserted' ELSE 'changed' END"
            ).alias("problem"),
            "stored_messages",
            "messages",
            "stored_head",
            "head",
        )
    )


def _written(field: str) -> Column:
    text = F.coalesce(F.col(field).cast("string"), F.lit(""))
    return F.concat(F.octet_length(text).cast("string"), F.lit(":"), text, F.lit(","))
