"""The same questions to Polars, with its streaming engine, over the same files."""

from pathlib import Path
from typing import Any, Final

import polars as pl

MESSAGE: Final = ["mesh_id", "history_id"]
ID: Final = ["broker_message_id", "sender_id", "client_message_id"]
DAY_MS: Final = 86_400_000
WINDOW_MS: Final = 60_000
NEAR: Final = 0.8


class Polars:
    def __init__(self, folder: Path) -> None:
        self._tables = {
            table.name: pl.scan_parquet(table / "*" / "*.parquet", hive_partitioning=False)
            for table in folder.iterdir()
        }

    def orphans(self) -> list[tuple[str, ...]]:
        tables = self._tables
        used, sent, direct = tables["client_message_dedupe"], tables["message_history"], tables["message_queue"]
        queued = direct.filter(pl.col("queue_id").is_not_null())
        wanted = direct.with_columns(pl.col("recipient_id").fill_null(0))
        bodies = pl.concat([tables["topic_message"].select(MESSAGE), direct.select(MESSAGE)])
        of_ids = {
            "message": sent.join(bodies, on=MESSAGE, how="anti"),
            "delivery_queue": wanted.join(tables["delivery_queue"], on=[*MESSAGE, "recipient_id"], how="anti"),
            "queue_lease": queued.join(tables["queue_lease"], on=[*MESSAGE, "queue_id"], how="anti"),
            "queue": queued.join(tables["queue"], left_on="queue_id", right_on="id", how="anti"),
        }
        whole = sent.join(used, on=ID, how="semi")
        lacking = pl.concat([rows.select(*MESSAGE, missing=pl.lit(part)) for part, rows in of_ids.items()])
        named = [
            whole.join(lacking, on=MESSAGE).select("mesh_id", "sender_id", "client_message_id", "missing"),
            _named(used.join(sent, on=ID, how="anti"), "message_history"),
            _named(sent.join(used, on=ID, how="anti"), "client_message_dedupe"),
        ]
        strays = [
            ("topic_message", "message_history", None),
            ("message_queue", "message_history", None),
            ("delivery_queue", "message_history", "recipient_id"),
            ("mention_index", "message_history", None),
            ("queue_lease", "message_queue", None),
        ]
        for table, lacks, whose in strays:
            rows = tables[table].join(tables[lacks].select(MESSAGE), on=MESSAGE, how="anti")
            named.append(_nameless(rows, lacks, pl.col(whose) if whose else pl.lit(None, pl.Int64)))
        kept = sent.group_by("mesh_id").agg(kept=pl.len().cast(pl.Int64))
        gaps = tables["history_counter"].join(kept, on="mesh_id", how="left")
        gaps = gaps.filter(pl.col("history_id") != pl.col("kept").fill_null(0))
        named.append(_nameless(gaps, "history_id", pl.lit(None, pl.Int64)))
        found = (
            pl.concat(named)
            .join(tables["member"].select(sender_id="id", sender="uid"), on="sender_id", how="left")
            .join(tables["mesh"].select(mesh_id="id", mesh="uid"), on="mesh_id", how="left")
            .select(pl.col("client_message_id", "sender", "missing", "mesh").fill_null(""))
        )
        return found.collect(engine="streaming").rows()

    def limits(self) -> tuple[int, int, int]:
        windows = (
            self._tables["message_history"]
            .group_by("mesh_id", "sender_id", began_at=pl.col("accepted_at") // WINDOW_MS * WINDOW_MS)
            .agg(sends=pl.len())
            .join(self._tables["mesh"].select(mesh_id="id", budget="sends_per_window"), on="mesh_id")
        )
        days = windows.group_by("mesh_id", "sender_id", day=pl.col("began_at") // DAY_MS).agg(
            sends=pl.col("sends").sum(),
            near=(pl.col("sends") >= NEAR * pl.col("budget")).sum(),
        )
        found = days.collect(engine="streaming")
        return len(found), int(found["sends"].sum()), int(found["near"].sum())

    def latency(self) -> list[tuple[Any, ...]]:
        last = {
            what: pl.col("id").filter(pl.col("what") == what).max().fill_null(0)
            for what in ("delivered", "returned", "dead")
        }
        delivered = pl.col("what") == "delivered"
        folded = (
            self._tables["delivery_event"]
            .filter(pl.col("recipient_id") > 0)
            .group_by(*MESSAGE, "recipient_id")
            .agg(**last, delivered_at=pl.col("at").filter(delivered).sort_by(pl.col("id").filter(delivered)).last())
            .filter(pl.col("delivered") > pl.max_horizontal("returned", "dead"))
        )
        took = (
            folded.join(self._tables["message_history"], on=MESSAGE)
            .select(
                "mesh_id",
                day=pl.col("accepted_at") // DAY_MS,
                took_ms=pl.col("delivered_at") - pl.col("accepted_at"),
            )
            .collect(engine="streaming")
            .lazy()
        )
        none = pl.lit(None, pl.Int64)
        levels = [took, took.with_columns(day=none), took.with_columns(day=none, mesh_id=none)]
        quantiles = [pl.col("took_ms").quantile(share, "linear").alias(str(share)) for share in (0.5, 0.9, 0.99)]
        asked = [
            rows.group_by("mesh_id", "day").agg(
                pl.len(), pl.concat_list(quantiles).first(), pl.col("took_ms").max().alias("max_ms")
            )
            for rows in levels
        ]
        return pl.concat(asked).collect(engine="streaming").rows()

    def close(self) -> None:
        """Nothing is held."""


def _named(rows: pl.LazyFrame, missing: str) -> pl.LazyFrame:
    return rows.select("mesh_id", "sender_id", "client_message_id", missing=pl.lit(missing))


def _nameless(rows: pl.LazyFrame, missing: str, whose: pl.Expr) -> pl.LazyFrame:
    return rows.select(
        "mesh_id", sender_id=whose, client_message_id=pl.lit(None, pl.String), missing=pl.lit(missing)
    )
