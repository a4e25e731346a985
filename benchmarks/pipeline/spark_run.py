"""The product's own jobs, as a command runs them: in a session of its own factory."""

import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.pipeline.generate import BEGAN_AT
from claudemesh.pipeline import session
from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.jobs import latency, limits, orphans
from claudemesh.pipeline.jobs.params import Params

PARAMS: Final = Params(BEGAN_AT)


class Spark:
    def __init__(self, folder: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self._spark = session.build(None, scratch=Path(self._scratch.name), name="benchmark")
        self._tables = {
            table.name: self._spark.read.schema(
                ", ".join(f"{name} {type_}" for name, type_ in table.columns.items())
            ).parquet(str(folder / table.name))
            for table in BROKER.tables
            if not table.is_body
        }

    def orphans(self) -> list[tuple[str, ...]]:
        found = orphans.orphans(self._tables, PARAMS)
        return [
            (one.client_message_id or "", one.sender or "", ",".join(one.missing), one.mesh)
            for one in found.collect()
        ]

    def limits(self) -> tuple[int, int, int]:
        rows = limits.senders(self._tables, PARAMS).toArrow()
        return rows.num_rows, sum(rows["sends"].to_pylist()), sum(rows["windows_near"].to_pylist())

    def latency(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in latency.latency(self._tables, PARAMS).collect()]

    def close(self) -> None:
        session.stop(self._spark)
        self._scratch.cleanup()
