"""Runs jobs on a cut and publishes what they give.

    <lake>/gold/<job>/cut=<n>/source=<name>/<output>/   Parquet, overwritten as a whole
                              _done.json                the summary, written last: without it a run was cut short
    <lake>/heads/<source>.json                          of the last audit that found nothing, for the next one

A job is pure. What becomes of its frames is decided here, the same for all; the few exceptions stand at the end.
What was written is read back without Spark: outputs are small, or only looked at in part.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow.dataset import Dataset, dataset, partitioning
from pyspark.sql import DataFrame, SparkSession

from claudemesh.kernel.errors import ConfigError, NotFound
from claudemesh.pipeline import frames, shards
from claudemesh.pipeline.jobs import audit
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.registry import JOBS, Job
from claudemesh.pipeline.jobs.views import Tables
from claudemesh.pipeline.lake import Cut, Lake, SourceCut, make_private, sync_tree, write_durably
from claudemesh.pipeline.progress import Progress

DONE: Final = "_done.json"
PLAN: Final = "plan.jsonl"
ITEMS_MAX: Final = 1_000  # violations that are shown; all of them are in the lake
# Of an output, which of the store's own counts its rows add up to, and the column that adds up.
TOTALS: Final = {
    ("traffic", "messages"): ("message_history", "messages"),
    ("traffic", "deliveries"): ("delivery.{state}", "deliveries"),
    ("latency", "dead_reasons"): ("delivery.dead_letter", "dead_letters"),
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What every job of one run is given."""

    spark: SparkSession
    lake: Lake
    cut: Cut
    params: Params
    progress: Progress

    def sources(self, job: Job) -> list[str]:
        return [name for name, source in self.cut.sources.items() if is_read(job, source)]

    def tables(self, source: str) -> Tables:
        return frames.tables(self.spark, self.lake, self.cut, source)


@dataclass(frozen=True, slots=True)
class Mismatch:
    total: str
    said: int
    counted: int

    def __str__(self) -> str:
        return f"{self.total}: {self.said} here, {self.counted} in the store"


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
    def is_ok(self) -> bool:
        return not self.violations and not self.mismatches


def reconcile(totals: Mapping[str, int], counts: Mapping[str, int]) -> list[Mismatch]:
    """Hold what was added up against what the store counted; nobody counts what is not there, so that is none."""
    pairs = ((name, said, counts.get(name, 0)) for name, said in sorted(totals.items()))
    return [Mismatch(name, said, counted) for name, said, counted in pairs if said != counted]


def is_read(job: Job, source: SourceCut) -> bool:
    """Say whether a job has something to read there; only the search is for what people wrote."""
    return source.kind == job.kind and (source.bodies or job.name != "search")


def choose_jobs(name: str, cut: Cut) -> tuple[list[Job], dict[str, str]]:
    """Return the job, or with `all` every one that has something to read, and why the others have not."""
    wanted = JOBS.values() if name == "all" else [JOBS[name]]
    chosen = [job for job in wanted if any(is_read(job, source) for source in cut.sources.values())]
    left_out = {job.name: _say_missing(job, cut) for job in wanted if job not in chosen}
    if name in left_out:
        raise NotFound(f"{name}: {left_out[name]}")
    return chosen, left_out


def _say_missing(job: Job, cut: Cut) -> str:
    how = " that was copied with --bodies" if job.name == "search" else ""
    return f"cut {cut.number} has no store of the kind {job.kind}{how}"


def run_jobs(run: Run, jobs: Iterable[Job]) -> list[Result]:
    chosen = list(jobs)
    run.progress.expect(sum(len(run.sources(job)) for job in chosen))
    return [run_job(run, job) for job in chosen]


def run_job(run: Run, job: Job) -> Result:
    done = run.lake.gold(job.name, run.cut.number) / DONE
    done.unlink(missing_ok=True)
    result = Result(job.name, run.cut.number)
    for source in run.sources(job):
        with run.progress.stage(f"{job.name} of {source}"):
            _EXCEPTIONS.get(job.name, _publish)(run, job, source, result)
    if not result.mismatches:
        make_private(done.parent)  # a job may have put all that it gives elsewhere
        sync_tree(done.parent)
        write_durably(done, msgspec.json.format(msgspec.json.encode(result)))
    return result


def read_output(run: Run, job: str, source: str, output: str) -> Dataset:
    """Return what a job gave on this cut; it must have been run."""
    columns = pa.schema([(name, pa.string()) for name in JOBS[job].partition_by.get(output, ())])
    place = _place(run, job, source) / output
    return dataset(place, format="parquet", partitioning=partitioning(columns, flavor="hive"))


def _publish(run: Run, job: Job, source: str, result: Result) -> None:
    tables = run.tables(source)
    rows: dict[str, int] = {}
    for output, derive in job.outputs.items():
        _write(run, job, source, output, derive(tables, run.params))
        written = read_output(run, job.name, source, output)
        rows[output] = written.count_rows()
        if output == job.violations:
            _accuse(result, source, written)
        if (job.name, output) in TOTALS:
            counts = run.cut.sources[source].counts
            totals = add_up(written.to_table().to_pylist(), *TOTALS[job.name, output], counts)
            result.mismatches += [f"{source}: {mismatch}" for mismatch in reconcile(totals, counts)]
    result.sources[source] = {"rows": rows}


def _write(run: Run, job: Job, source: str, output: str, frame: DataFrame) -> None:
    columns = job.partition_by.get(output, ())
    # One task for each directory, or every task would put a small file into each.
    shaped = frame.repartition(*columns) if columns else frame
    place = str(_place(run, job.name, source) / output)
    shaped.write.mode("overwrite").partitionBy(*columns).parquet(place, compression="zstd")


def _place(run: Run, job: str, source: str) -> Path:
    return run.lake.gold(job, run.cut.number) / f"source={source}"


def _accuse(result: Result, source: str, violations: Dataset) -> None:
    result.violations += violations.count_rows()
    room = ITEMS_MAX - len(result.items)
    result.items += [{**row, "source": source} for row in violations.head(room).to_pylist()]


def add_up(rows: Iterable[Json], name: str, column: str, counts: Iterable[str]) -> dict[str, int]:
    """Add up rows to totals of that name; one that the store counts and no row is of, is there as none."""
    prefix = name.partition("{")[0]
    totals = Counter(
        {count: 0 for count in counts if count == name or (prefix != name and count.startswith(prefix))}
    )
    for row in rows:
        totals[name.format_map(row)] += row[column]
    return dict(totals)


# --- jobs that are more than their frames ----------------------------------------------------------------


class Heads(msgspec.Struct, frozen=True):
    """The heads of the last audit that found nothing."""

    cut: int
    life: str
    heads: list[Json]


def _publish_audit(run: Run, job: Job, source: str, result: Result) -> None:
    """Hold the last heads against the lake first. Where one does not agree they stay, and nothing is published."""
    file = run.lake.root / "heads" / f"{source}.json"
    life = run.cut.sources[source].life
    last = _read_heads(file)
    if last is not None and last.life != life:  # it came back from a backup: another past, as it says itself
        last = None
    if last is not None:
        tables = run.tables(source)
        stored = run.spark.createDataFrame(last.heads, audit.heads(tables, run.params).schema)
        _write(run, job, source, "violations", audit.compare_heads(stored, tables, run.params))
        before = result.violations
        _accuse(result, source, read_output(run, job.name, source, "violations"))
        if result.violations > before:
            result.sources[source] = {"held_against": last.cut}
            return
    _publish(run, job, source, result)
    result.sources[source]["held_against"] = last.cut if last else None
    if last is None or last.cut <= run.cut.number:  # those of an older cut would prove less
        heads = read_output(run, job.name, source, "heads").to_table().to_pylist()
        write_durably(file, msgspec.json.encode(Heads(run.cut.number, life, heads)))


def _read_heads(file: Path) -> Heads | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Heads)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file} is not what an audit wrote: {error}") from error


def _publish_retention(run: Run, job: Job, source: str, result: Result) -> None:
    """Write the plan as lines too, for the broker to read."""
    _publish(run, job, source, result)
    file = _place(run, job.name, source) / PLAN
    with file.open("wb") as lines:
        for batch in read_output(run, job.name, source, "plan").to_batches():
            lines.writelines(msgspec.json.encode(row) + b"\n" for row in batch.to_pylist())
    result.sources[source] |= {"plan": str(file), "execute": f"claudemesh broker sweep --plan {quote(str(file))}"}


def _publish_search(run: Run, job: Job, source: str, result: Result) -> None:
    """Write no Parquet of what people wrote, but the archive that can be searched."""
    (derive,) = job.outputs.values()
    documents = derive(run.tables(source), run.params)
    result.sources[source] = {"rows": shards.publish(documents, run.lake.root / "search" / source)}


_EXCEPTIONS: Final[dict[str, Callable[[Run, Job, str, Result], None]]] = {
    "audit": _publish_audit,
    "retention": _publish_retention,
    "search": _publish_search,
}
