"""What becomes of a job's frames: Parquet below the cut, and sums that have to be the store's own.

    <lake>/gold/<job>/cut=<n>/source=<name>/<output>/   overwritten as a whole

What was written is read back without Spark: outputs are small, or only looked at in part.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow.dataset import Dataset, dataset, partitioning
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline import frames
from claudemesh.pipeline.catalogue import KINDS
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables
from claudemesh.pipeline.lake import Cut, Lake, SourceCut
from claudemesh.pipeline.progress import Progress

ITEMS_MAX: Final = 1_000  # violations that are shown; all of them are in the lake
ARCHIVED: Final = {kind.name for kind in KINDS.values() if kind.forgets}  # the lake may have more than the store

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What every job of one run is given."""

    spark: SparkSession
    lake: Lake
    cut: Cut
    params: Params
    progress: Progress

    def sources(self, job: "Job") -> list[str]:
        return [name for name, source in self.cut.sources.items() if job.reads(source)]

    def tables(self, source: str) -> Tables:
        return frames.tables(self.spark, self.lake, self.cut, source)

    def place(self, job: str, source: str) -> Path:
        return self.lake.gold(job, self.cut.number) / f"source={source}"


@dataclass(slots=True)
class Result:
    """What a job gave, over all sources."""

    job: str
    cut: int
    violations: int = 0
    items: list[Json] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    sources: dict[str, Json] = field(default_factory=dict)

    @property
    def found(self) -> int:
        return self.violations + len(self.mismatches)

    @property
    def is_ok(self) -> bool:
        return not self.found

    def accuse(self, source: str, violations: Dataset) -> None:
        self.violations += violations.count_rows()
        room = ITEMS_MAX - len(self.items)
        self.items += [{**row, "source": source} for row in violations.head(room).to_pylist()]


# --- jobs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Total:
    """Which of the store's own counts the rows of an output add up to, and the column that adds up."""

    name: str  # may name columns, in braces
    column: str


Output: TypeAlias = Callable[[Tables, Params], DataFrame]
Publish: TypeAlias = Callable[[Run, "Job", str, Result], None]


def publish(run: Run, job: "Job", source: str, result: Result) -> None:
    """Write the frames of a job, and hold what they add up to against the store's own counts."""
    tables = run.tables(source)
    rows: dict[str, int] = {}
    for output, derive in job.outputs.items():
        write(run, job, source, output, derive(tables, run.params))
        written = read_output(run, job, source, output)
        rows[output] = written.count_rows()
        if output == job.violations:
            result.accuse(source, written)
        if total := job.totals.get(output):
            at = run.cut.sources[source]
            totals = add_up(written.to_table().to_pylist(), total, at.counts)
            wrong = reconcile(totals, at.counts, may_exceed=at.kind in ARCHIVED)
            result.mismatches += [f"{source}: {mismatch}" for mismatch in wrong]
    result.sources[source] = {"rows": rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    kind: str  # of the sources that it reads
    outputs: Mapping[str, Output]
    violations: str | None = None  # the output whose rows are violations
    partition_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of an output, its columns
    totals: Mapping[str, Total] = field(default_factory=dict)  # of an output
    needs_bodies: bool = False
    publish: Publish = publish  # for a job that is more than its frames
    is_standing: bool = False  # what it gives takes the place of what it gave: only of the newest cut
    verdict: str | None = None  # what a report says that it proves
    has_figures: bool = False  # for a report

    @property
    def is_reported(self) -> bool:
        return self.has_figures or self.verdict is not None

    def reads(self, source: SourceCut) -> bool:
        return source.kind == self.kind and (source.bodies or not self.needs_bodies)


def write(run: Run, job: Job, source: str, output: str, frame: DataFrame) -> None:
    columns = job.partition_by.get(output, ())
    # One task for each directory, or every task would put a small file into each.
    shaped = frame.repartition(*columns) if columns else frame
    place = str(run.place(job.name, source) / output)
    shaped.write.mode("overwrite").partitionBy(*columns).parquet(place, compression="zstd")


def read_output(run: Run, job: Job, source: str, output: str) -> Dataset:
    """Return what a job gave on this cut; it must have been run."""
    columns = pa.schema([(name, pa.string()) for name in job.partition_by.get(output, ())])
    place = run.place(job.name, source) / output
    return dataset(place, format="parquet", partitioning=partitioning(columns, flavor="hive"))


# --- totals --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mismatch:
    total: str
    said: int
    counted: int

    def __str__(self) -> str:
        return f"{self.total}: {self.said} here, {self.counted} in the store"


def reconcile(totals: Mapping[str, int], counts: Mapping[str, int], *, may_exceed: bool) -> list[Mismatch]:
    """Hold what was added up against what the store counted; nobody counts what is not there, so that is none."""
    pairs = (Mismatch(name, said, counts.get(name, 0)) for name, said in sorted(totals.items()))
    return [pair for pair in pairs if pair.said < pair.counted or (pair.said > pair.counted and not may_exceed)]


def add_up(rows: Iterable[Json], total: Total, counts: Iterable[str]) -> dict[str, int]:
    """Add up rows to totals of that name; one that the store counts and no row is of, is there as none."""
    prefix = total.name.partition("{")[0]
    is_family = prefix != total.name
    totals = Counter({name: 0 for name in counts if name == total.name or (is_family and name.startswith(prefix))})
    for row in rows:
        totals[total.name.format_map(row)] += row[total.column] or 0  # a sum over no rows is NULL
    return dict(totals)
