"""Where the copy of one source goes, and how far it has come by Spark's own notes."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from claudemesh.pipeline.catalogue import Growth, Kind, Table
from claudemesh.pipeline.lake import Lake, make_private, sync_tree
from claudemesh.pipeline.sources.model import Position


class BrokenCheckpointError(Exception):
    """Nobody can say how far the copy has come."""


@dataclass(frozen=True, slots=True)
class Place:
    lake: Lake
    source: str
    generation: int
    kind: Kind
    bodies: bool

    def batch(self, table: Table, number: int) -> Path:
        return self.lake.batch(self.source, self.generation, table.name, number)

    @property
    def checkpoint(self) -> Path:
        return self.lake.checkpoint(self.source, self.generation)

    @property
    def appended(self) -> tuple[Table, ...]:
        return self.kind.wanted(Growth.APPEND, bodies=self.bodies)

    # --- Spark's checkpoint: offsets/<batch> is written before a batch, commits/<batch> after it ---------

    def done(self) -> int:
        """Return how many batches are done."""
        return _next(self.checkpoint / "commits")

    def is_cut_off(self) -> bool:
        """Say whether a batch was begun and not done: it will be made again, and nothing else before it."""
        return _next(self.checkpoint / "offsets") > self.done()

    def reached(self) -> Position | None:
        """Return where the last batch leads that was begun; a cut may have been published before or not."""
        begun = _next(self.checkpoint / "offsets")
        if begun == 0:
            return None
        try:
            *_, offset = (self.checkpoint / "offsets" / str(begun - 1)).read_text(encoding="utf-8").splitlines()
            position: Position = json.loads(offset)["position"]
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenCheckpointError("its checkpoint cannot be read") from error
        return position


def write_rows(table: pa.Table, directory: Path) -> None:
    """Write what is small, durably. Nobody reads it before a cut names it."""
    make_private(directory)
    pyarrow.parquet.write_table(table, directory / "rows.parquet", compression="zstd")
    sync_tree(directory)


def _next(folder: Path) -> int:
    return max((int(file.name) + 1 for file in folder.glob("*") if file.name.isdigit()), default=0)
