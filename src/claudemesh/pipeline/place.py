"""Where the copy of one source goes, how far it has come by Spark's own notes, and whether it is still there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from claudemesh.kernel.errors import IntegrityError
from claudemesh.pipeline.catalogue import KINDS
from claudemesh.pipeline.lake import Cut, Earlier, Lake, SourceCut, make_private, sync_tree
from claudemesh.pipeline.shapes import Growth, Kind, Table
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


def count_rows(directory: Path) -> int:
    """Count by the files' own footers; a table without new rows has no directory."""
    return int(pyarrow.dataset.dataset(directory).count_rows()) if directory.is_dir() else 0


def check_whole(lake: Lake, cut: Cut) -> None:
    """Count what lies in the lake: nobody removed any of it, or put anything there, unseen."""
    for source, at in cut.sources.items():
        check_source(lake, source, at, is_old=cut.number < lake.newest())


def check_source(lake: Lake, source: str, at: SourceCut, *, is_old: bool) -> None:
    kind = KINDS[at.kind]
    newest = Earlier(at.generation, at.batches, at.rows)
    for one in (newest, *at.earlier):
        for table in kind.wanted(Growth.APPEND, bodies=at.bodies):
            places = lake.batches(source, one.generation, table.name, one.batches)
            # What people wrote went from older copies, and older cuts, when it was not wanted any more.
            if places or not (table.is_body and (is_old or one is not newest)):
                _compare(kind, table, places, one.rows)
    for table in kind.wanted(Growth.WHOLE, bodies=at.bodies):
        _compare(kind, table, [lake.whole(source, at.generation, table.name, at.whole)], at.rows)


def _compare(kind: Kind, table: Table, places: list[Path], copied: Mapping[str, int]) -> None:
    try:
        there = sum(map(count_rows, places))
    except (OSError, pa.ArrowInvalid) as error:
        raise IntegrityError(f"the lake cannot be read: {error}: {_remedy(kind)}") from error
    if there != copied.get(table.name, 0):
        counts = f"{there} rows of {table.name} of this {kind.name}, and {copied.get(table.name, 0)} were copied"
        raise IntegrityError(f"the lake holds {counts}: {_remedy(kind)}")


def _remedy(kind: Kind) -> str:
    if kind.forgets:
        return "what the store has forgotten since is nowhere else, so bring the lake back from a backup"
    return "`claudemesh pipeline ingest --full`"


def _next(folder: Path) -> int:
    return max((int(file.name) + 1 for file in folder.glob("*") if file.name.isdigit()), default=0)
