"""Holes in what accepts wrote, as `broker check` names them, found without moving rows about.

The numbers of a mesh have no gaps, so the rows of a table in a block of 64 numbers are one word, a bit for each
number. A table shrinks to its words where its rows are read, before anything is shuffled; holes are then found by
comparing words, and only their numbers become rows again. Ids have no numbers: they are compared with the history
by count and hash in blocks, and row by row only in blocks that differ.

What cannot be seen from a lake: rows that the store lost or kept after they were copied. The counts of the cut,
which every report has to match, tell of these.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import MESSAGE, Tables, buried, live, named_mesh, named_sender, used_ids

_BLOCK: Final = ["mesh_id", "block"]
_ROW: Final = [*MESSAGE, "of", "sender_id", "client_message_id"]  # `of` is the table in which it stands
_ID: Final = ["mesh_id", "sender_id", "client_message_id", "broker_message_id"]

# What can be lacking, and the bits that show it. Of a message that leads to an id, in the order of naming:
_OF_MESSAGES: Final = {
    "message": "history & ~(topic | direct)",
    "delivery_queue": "history & undelivered",
    "queue_lease": "history & unleased",
    "queue": "history & unqueued",
}
# Of the rows of a table, which lead to nothing:
_OF_ROWS: Final = {
    "topic_message": ("message_history", "topic & ~history"),
    "message_queue": ("message_history", "direct & ~history"),
    "delivery_queue": ("message_history", "delivery & ~history"),
    "mention_index": ("message_history", "mention & ~history"),
    "queue_lease": ("message_queue", "lease & ~direct"),
}
_KINDS: Final = ("history", "topic", "mention", "delivery", "lease", "unqueued", "buried")  # numbers group faster
_NO_ID: Final = "client_message_dedupe"


def orphans(tables: Tables, _params: Params) -> DataFrame:
    owners = reduce(DataFrame.unionByName, (_owners(tables, table) for table in ("message_history", *_OF_ROWS)))
    holes = owners.join(F.broadcast(find_holes(words(tables))), [*MESSAGE, "of"])
    rows = holes.unionByName(match_ids(tables)).unionByName(find_gaps(tables))
    # A message that leads to no id is named as that alone. Rows that look alike are counted all the same.
    no_id = F.array(F.lit(_NO_ID))
    named = F.when(F.array_contains("all", no_id), F.array(no_id)).otherwise(F.col("all"))
    found = rows.groupBy(*_ROW).agg(F.collect_list("missing").alias("all")).withColumn("missing", F.explode(named))
    return named_sender(named_mesh(found, tables), tables).select(
        "client_message_id", "sender", "missing", "mesh", "history_id"
    )


# --- words -----------------------------------------------------------------------------------------


def words(tables: Tables) -> DataFrame:
    """Give for each block of numbers the bits of every table, without those of deleted messages."""
    direct = tables["message_queue"]
    queued = direct.where("queue_id IS NOT NULL")
    queues = F.broadcast(tables["queue"].select(F.col("id").alias("queue_id")))
    marked = [
        _marks(tables["message_history"], "history"),
        _marks(tables["topic_message"], "topic"),
        _marks(tables["mention_index"], "mention"),
        _marks(buried(tables), "buried"),
        _marks(direct, "delivery", whose="coalesce(recipient_id, 0)", is_wanted=True),
        _marks(tables["delivery_queue"], "delivery", whose="recipient_id"),
        _marks(queued, "lease", whose="queue_id", is_wanted=True),
        _marks(tables["queue_lease"], "lease", whose="queue_id"),
        _marks(queued.join(queues, "queue_id", "left_anti"), "unqueued"),
    ]
    # By owner first: a delivery to somebody else is not the one that is wanted.
    pairs = (
        reduce(DataFrame.union, marked)
        .groupBy(*_BLOCK, "kind", "whose")
        .agg(F.bit_or("wanted").alias("wanted"), F.bit_or("there").alias("there"))
    )
    bits = {
        **{kind: _of(kind, "there") for kind in _KINDS},
        "direct": _of("delivery", "wanted"),
        "undelivered": _of("delivery", "wanted & ~there"),
        "unleased": _of("lease", "wanted & ~there"),
    }
    together = pairs.groupBy(_BLOCK).agg(*(column.alias(name) for name, column in bits.items()))
    return together.select(*_BLOCK, *(F.expr(f"{name} & ~buried").alias(name) for name in bits if name != "buried"))


def _marks(rows: DataFrame, kind: str, *, whose: str = "0L", is_wanted: bool = False) -> DataFrame:
    """Give the bit of each row in the word of its block; `whose` tells apart what is there from what is wanted."""
    bit, none = "shiftleft(1L, CAST(history_id & 63 AS INT))", "0L"
    return rows.selectExpr(
        "mesh_id",
        "shiftright(history_id, 6) AS block",
        f"{_KINDS.index(kind)} AS kind",
        f"{whose} AS whose",
        f"{bit if is_wanted else none} AS wanted",
        f"{none if is_wanted else bit} AS there",
    )


def _of(kind: str, bits: str) -> Column:
    return F.expr(f"coalesce(bit_or({bits}) FILTER (WHERE kind = {_KINDS.index(kind)}), 0L)")


def find_holes(compared: DataFrame) -> DataFrame:
    """Give the numbers whose bits show a hole, with what is missing: for a table's rows, and for whole messages."""
    lacking = {
        "message_history": _OF_MESSAGES,
        **{table: {lacks: bits} for table, (lacks, bits) in _OF_ROWS.items()},
    }
    kinds = F.array(
        *(
            F.struct(
                F.lit(of).alias("of"),
                F.array(
                    *(
                        F.struct(F.lit(part).alias("part"), F.expr(bits).alias("bits"))
                        for part, bits in parts.items()
                    )
                ).alias("parts"),
            )
            for of, parts in lacking.items()
        )
    )
    named = "transform(filter(parts, p -> (shiftright(p.bits, place) & 1) = 1), p -> p.part)"
    return (
        compared.where(" OR ".join(f"({bits}) <> 0" for parts in lacking.values() for bits in parts.values()))
        .select(*_BLOCK, F.inline(kinds))
        .select(*_BLOCK, "of", "parts", F.explode(F.expr("sequence(0, 63)")).alias("place"))
        .select(
            "mesh_id",
            F.expr("shiftleft(block, 6) + place").alias("history_id"),
            "of",
            F.expr(named).alias("missing"),
        )
        .where("size(missing) > 0")
    )


def _owners(tables: Tables, table: str) -> DataFrame:
    """Give a table's rows with what they say of their owner; of a delivery, that is the member it is for."""
    sender, id_ = {
        "message_history": ("sender_id", "client_message_id"),
        "delivery_queue": ("recipient_id", "NULL"),
    }.get(table, ("NULL", "NULL"))
    return tables[table].select(
        *MESSAGE,
        F.lit(table).alias("of"),
        F.expr(f"CAST({sender} AS BIGINT)").alias("sender_id"),
        F.expr(f"CAST({id_} AS STRING)").alias("client_message_id"),
    )


# --- ids and counters ------------------------------------------------------------------------------


def match_ids(tables: Tables) -> DataFrame:
    """Give the ids without a history row, and the history rows without an id."""
    ids = used_ids(tables).select(*_ID, F.expr("CAST(NULL AS BIGINT)").alias("history_id"), F.lit(1).alias("side"))
    sent = live(tables, "message_history").select(*_ID, "history_id", F.lit(-1).alias("side"))
    both = ids.union(sent).withColumn("hash", F.xxhash64(*_ID)).withColumn("slot", F.shiftright("hash", 48))
    differing = (
        both.groupBy("slot")
        .agg(F.sum("side").alias("surplus"), F.bit_xor("hash").alias("remainder"))
        .where("surplus <> 0 OR remainder <> 0")
    )
    return (
        both.join(F.broadcast(differing.select("slot")), "slot", "left_semi")
        .groupBy(_ID)
        .agg(F.sum("side").alias("surplus"), F.max("history_id").alias("history_id"))
        .where("surplus <> 0")
        .withColumn("of", F.lit("message_history"))
        .withColumn("missing", F.array(F.when(F.col("surplus") > 0, "message_history").otherwise(_NO_ID)))
        .select(*_ROW, "missing")
    )


def find_gaps(tables: Tables) -> DataFrame:
    """Give meshes where what is kept, what was deleted and what was passed over do not add up to the counter."""
    kept = live(tables, "message_history").select("mesh_id", F.lit(1).alias("numbers"))
    # Of what came after the counter was read, some may be deleted already.
    upto = F.broadcast(tables["history_counter"].withColumnRenamed("history_id", "upto"))
    gone = (
        buried(tables)
        .join(upto, "mesh_id")
        .where("history_id <= upto")
        .select("mesh_id", F.lit(1).alias("numbers"))
    )
    passed = tables["history_jump"].select("mesh_id", F.col("skipped").alias("numbers"))
    used = kept.union(gone).union(passed).groupBy("mesh_id").agg(F.sum("numbers").alias("numbers"))
    counters = tables["history_counter"].join(used, "mesh_id", "left").where("history_id <> coalesce(numbers, 0)")
    return counters.selectExpr(
        "mesh_id",
        "CAST(NULL AS BIGINT) AS history_id",
        "'history_counter' AS of",
        "CAST(NULL AS BIGINT) AS sender_id",
        "CAST(NULL AS STRING) AS client_message_id",
        "array('history_id') AS missing",
    )
