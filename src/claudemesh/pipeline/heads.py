"""The heads of audits: each audit is held against the last one that found nothing.

<lake>/heads/<source>.json   of that audit, for the next one
"""

from pathlib import Path

import msgspec

from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.jobs import audit
from claudemesh.pipeline.lake import write_durably
from claudemesh.pipeline.outputs import Job, Json, Result, Run, publish, read_output, write


class Heads(msgspec.Struct, frozen=True):
    cut: int
    past: str
    heads: list[Json]


def publish_audit(run: Run, job: Job, source: str, result: Result) -> None:
    """Hold the last heads against the lake first. Where one does not agree they stay, and nothing is published."""
    file = run.lake.root / "heads" / f"{source}.json"
    past = run.cut.sources[source].past
    stored = _read(file)
    # It need not have what came after it. The newest is held against whatever heads there are.
    is_older = stored is not None and run.cut.number < min(stored.cut, run.lake.newest())
    # One that came back from a backup has another past, as it says itself.
    last = None if stored is None or is_older or stored.past != past else stored
    if last is not None:
        tables = run.tables(source)
        before = run.spark.createDataFrame(last.heads, audit.heads(tables, run.params).schema)
        write(run, job, source, "violations", audit.compare_heads(before, tables, run.params))
        found = result.violations
        result.accuse(source, read_output(run, job, source, "violations"))
        if result.violations > found:
            result.sources[source] = {"held_against": last.cut}
            return
    publish(run, job, source, result)
    result.sources[source]["held_against"] = last.cut if last else None
    if not is_older:  # the heads of one that is would prove less
        heads = read_output(run, job, source, "heads").to_table().to_pylist()
        write_durably(file, msgspec.json.encode(Heads(run.cut.number, past, heads)))


def _read(file: Path) -> Heads | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Heads)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file} is not what an audit wrote: {error}") from error
