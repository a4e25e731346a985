"""A broker's tables, written straight as Parquet: so many messages, about five rows each, and known holes.

Files are as an ingest leaves them: a batch after the other, in each the meshes one after the other, in their order.
"""

from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import duckdb

from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.shapes import Growth, Table
from claudemesh.storage.sqlfile import load_queries

Hole = tuple[str, str, str, str]  # id, sender, what is missing, mesh; empty where nobody knows

BATCH: Final = 1_000_000
SPAN_DAYS: Final = 30
BEGAN_AT: Final = 1_767_225_600_000

_SQL: Final = load_queries(files(__package__) / "generate.sql")


def generate(folder: Path, messages: int) -> list[Hole]:
    """Write the tables as `<table>/batch=<n>/rows.parquet`, and give the holes that a check has to find."""
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    shape = {
        "messages": messages,
        "meshes": 20,
        "members": 50,
        "topics": 10,
        "budget": max(messages // 2_000_000, 2),  # some come near to it
        "began_at": BEGAN_AT,
        "span_ms": SPAN_DAYS * 86_400_000,
    }

    def run(name: str, **more: int) -> None:
        connection.execute(Template(_SQL[name]).substitute(shape, **more))

    def write(table: Table, batch: int) -> None:
        target = folder / table.name / f"batch={batch}"
        target.mkdir(parents=True)
        columns = ", ".join(
            f'CAST("{name}" AS {_type(type_)}) AS "{name}"' for name, type_ in table.columns.items()
        )
        rows = f"SELECT {columns} FROM ({Template(_SQL[table.name]).substitute(shape)})"  # noqa: S608 - our own
        connection.execute(f"COPY ({rows}) TO '{target / 'rows.parquet'}' (FORMAT parquet, COMPRESSION zstd)")

    run("messages", first=17, last=messages, step=messages // 1000 + 1)
    run("planted")
    for name in ("member", "mesh"):
        connection.execute(f"CREATE TABLE {name} AS {Template(_SQL[name]).substitute(shape)}")
    holes = [tuple(value or "" for value in row) for row in connection.execute(_SQL["holes"]).fetchall()]
    for batch, first in enumerate(range(0, messages, BATCH)):
        run("messages", first=first, last=min(first + BATCH, messages), step=1)
        run("deliveries")
        for table in BROKER.wanted(Growth.APPEND, bodies=False):
            write(table, batch)
    for table in BROKER.wanted(Growth.WHOLE, bodies=False):
        write(table, 0)
    connection.close()
    gaps = {mesh for id_, _, missing, mesh in holes if id_ and missing == "message_history"}
    return sorted([*holes, *(("", "", "history_id", mesh) for mesh in gaps)])  # type: ignore[list-item]  # of four


def _type(name: str) -> str:
    return {"bigint": "BIGINT", "string": "VARCHAR", "binary": "BLOB"}[name]
