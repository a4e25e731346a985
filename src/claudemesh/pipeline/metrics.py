"""What a scraper may know of the lake: one text file beside it, in Prometheus' words, replaced as a whole."""

from collections.abc import Iterable, Mapping
from typing import Final

from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.runtime.home import write_private

FILE: Final = "metrics.prom"
# Of each its labels, whose values are the lake's own, and what it means; all are gauges.
ABOUT: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "cm_pipeline_cut": ((), "The newest cut."),
    "cm_pipeline_cut_timestamp_seconds": ((), "When it was made."),
    "cm_pipeline_rows": (("source", "table"), "Rows in the lake."),
    "cm_pipeline_open_transaction_seconds": (
        ("source",), "How long the oldest transaction was open that the cut is without.",
    ),
    "cm_pipeline_violations": (
        ("job",), "Violations that the last run of a job found, and totals that were wrong.",
    ),
}  # fmt: skip

Sample = tuple[str, Mapping[str, str], float]


def write_metrics(lake: Lake, cut: Cut, violations: Mapping[str, int]) -> None:
    """Write the file anew; what was found by jobs that did not run now stays as it was."""
    if cut.number < lake.newest():  # the file is about the newest
        return
    file = lake.root / FILE
    found = {**_read_violations(file.read_text(encoding="utf-8") if file.exists() else ""), **violations}
    write_private(file, render(derive_samples(cut, found)).encode())


def derive_samples(cut: Cut, violations: Mapping[str, int]) -> Iterable[Sample]:
    yield "cm_pipeline_cut", {}, cut.number
    yield "cm_pipeline_cut_timestamp_seconds", {}, cut.at_ms / 1000
    for name, source in cut.sources.items():
        for table, rows in source.rows.items():
            yield "cm_pipeline_rows", {"source": name, "table": table}, rows
    for name, source in cut.sources.items():
        if (oldest_s := source.lag.get("oldest_s")) is not None:  # not every role of a server is told
            yield "cm_pipeline_open_transaction_seconds", {"source": name}, oldest_s
    for job, count in violations.items():
        yield "cm_pipeline_violations", {"job": job}, count


def render(samples: Iterable[Sample]) -> str:
    lines: list[str] = []
    said: set[str] = set()
    for name, labels, value in samples:
        if name not in said:
            said.add(name)
            lines += [f"# HELP {name} {ABOUT[name][1]}", f"# TYPE {name} gauge"]
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _read_violations(text: str) -> dict[str, int]:
    """Return what the file says of the jobs; their names need no escape."""
    start = 'cm_pipeline_violations{job="'
    pairs = (line.removeprefix(start).split('"} ') for line in text.splitlines() if line.startswith(start))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}  # noqa: PLR2004 - job, count
