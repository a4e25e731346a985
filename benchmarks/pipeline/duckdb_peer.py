"""The same questions to DuckDB, in its own SQL, over the same files."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import duckdb

from claudemesh.storage.sqlfile import load_queries

_SQL: Final = load_queries(files(__package__) / "duckdb_peer.sql")


class DuckDB:
    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET enable_progress_bar = false")
        for table in folder.iterdir():
            self._connection.execute(f"CREATE VIEW {table.name} AS FROM read_parquet('{table}/*/*.parquet')")

    def orphans(self) -> list[tuple[str, ...]]:
        return self._ask("orphans")

    def limits(self) -> tuple[int, int, int]:
        rows = self._ask("limits")
        return len(rows), sum(row[3] for row in rows), sum(row[6] for row in rows)

    def latency(self) -> list[tuple[Any, ...]]:
        return self._ask("latency")

    def close(self) -> None:
        self._connection.close()

    def _ask(self, name: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(_SQL[name]).fetchall()
