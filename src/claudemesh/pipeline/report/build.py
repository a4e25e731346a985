"""Puts a report together: runs the jobs it rests on, and holds every total in it against the store's own count."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from claudemesh.pipeline.lake import SourceCut
from claudemesh.pipeline.outputs import ARCHIVED, Json, Result, Run, add_up, read_output, reconcile
from claudemesh.pipeline.registry import JOBS
from claudemesh.pipeline.report import measures
from claudemesh.pipeline.runner import run_jobs
from claudemesh.wire.instants import render_instant

EVIDENCE_MAX: Final = 50
RUNS_MAX: Final = 1_000


def build_report(run: Run, checked: Iterable[Json]) -> Json:
    """Return the document; `checked` are verdicts of others, of the same form."""
    results = run_jobs(run, (job for job in JOBS.values() if job.is_reported and run.sources(job)))
    run.progress.expect(len(run.cut.sources))
    sources = []
    for name, source in run.cut.sources.items():
        with run.progress.stage(f"figures of {name}"):
            sources.append(_describe(run, name, source))
    since_ms = run.params.since_ms
    others = [_verdict(**verdict) for verdict in checked]
    verdicts = [judge_totals(sources, results), *judge_jobs(results), *others]
    return {
        "cut": run.cut.number,
        "at": render_instant(run.cut.at_ms),
        "since": render_instant(since_ms) if since_ms is not None else None,
        "ok": not any(verdict["violations"] for verdict in verdicts),
        "verdicts": verdicts,
        "sources": sources,
    }


# --- verdicts ------------------------------------------------------------------------------------------


def judge_totals(sources: Iterable[Json], results: Iterable[Result]) -> Json:
    """Say whether every total of the report is the store's own."""
    wrong = [mismatch for result in results for mismatch in result.mismatches]
    for source in sources:
        lake = {name: pair["lake"] for name, pair in source["totals"].items()}
        counts = {name: pair["store"] for name, pair in source["totals"].items()}
        mismatches = reconcile(lake, counts, may_exceed=source["kind"] in ARCHIVED)
        wrong += [f"{source['name']}: {mismatch}" for mismatch in mismatches]
    items = [{"total": text} for text in dict.fromkeys(wrong)]
    return _verdict("reconciliation", "every total here is the store's own count at the cut", len(items), items)


def judge_jobs(results: Iterable[Result]) -> list[Json]:
    told = ((result, JOBS[result.job].verdict) for result in results)
    return [_verdict(one.job, _about(one, proves), one.violations, one.items) for one, proves in told if proves]


def _about(result: Result, proves: str) -> str:
    cuts = [source["held_against"] for source in result.sources.values() if "held_against" in source]
    if None not in cuts:
        return proves
    held = len(cuts) - cuts.count(None)
    if not held:
        return "there is no earlier one to hold it against"
    return f"{proves} ({held} of {len(cuts)} stores have an earlier one)"


def _verdict(name: str, about: str, violations: int, items: list[Json]) -> Json:
    return {"name": name, "about": about, "violations": violations, "items": items[:EVIDENCE_MAX]}


# --- figures -------------------------------------------------------------------------------------------


def _describe(run: Run, name: str, source: SourceCut) -> Json:
    figures = _FIGURES.get(source.kind, _describe_other)(run, name, source)
    return {"name": name, "kind": source.kind, "store": source.store, "lag": source.lag, **figures}


def _describe_other(_run: Run, _name: str, source: SourceCut) -> Json:
    """Give the totals that need no knowledge of what is in the tables."""
    both = {table: rows for table, rows in source.live.items() if table in source.counts}
    return {"totals": pair_totals(both, {table: source.counts[table] for table in both})}


def _describe_outbox(run: Run, name: str, source: SourceCut) -> Json:
    totals = {row["name"]: row["rows"] for row in _rows(measures.outbox_totals(run.tables(name)))}
    totals["outbox"] = sum(totals.values())
    return {"totals": pair_totals(totals, source.counts)}


def _describe_inbox(run: Run, name: str, source: SourceCut) -> Json:
    tables = run.tables(name)
    totals = {"inbox": tables["inbox"].count()}
    return {"totals": pair_totals(totals, source.counts), "events": _rows(measures.peer_events(tables))}


def _describe_broker(run: Run, name: str, source: SourceCut) -> Json:
    tables = run.tables(name)
    traffic = _given(run, "traffic", name, "messages")
    states = _given(run, "traffic", name, "deliveries")
    totals = {
        **{table: rows for table, rows in source.live.items() if table in source.counts},
        **add_up(traffic, JOBS["traffic"].totals["messages"], ()),
        **add_up(states, JOBS["traffic"].totals["deliveries"], ()),
    }
    slugs = {row["uid"]: row["slug"] for row in _rows(tables["mesh"].select("uid", "slug"))}
    since_ms = run.params.since_ms or 0
    latency = _given(run, "latency", name, "latency")
    presence = {output: _given(run, "presence", name, output) for output in ("days", "endings")}
    return {
        "totals": pair_totals(totals, source.counts),
        "traffic": name_meshes((row for row in traffic if row["hour_at"] >= since_ms), slugs),
        "latency": name_meshes((row for row in latency if row["mesh"] and row["day"]), slugs),
        "dead_letters": name_meshes(_given(run, "latency", name, "dead_reasons"), slugs),
        "presence": name_meshes(presence["days"], slugs),
        "endings": name_meshes(presence["endings"], slugs),
        "members": _rows(measures.members(tables)),
    }


def _describe_ledger(run: Run, name: str, source: SourceCut) -> Json:
    totals = {table: rows for table, rows in source.live.items() if table in source.counts}
    for output, total in JOBS["ledger"].totals.items():
        totals |= add_up(_given(run, "ledger", name, output), total, ())
    return {
        "totals": pair_totals(totals, source.counts),
        "runs": order_runs(_given(run, "ledger", name, "runs"))[:RUNS_MAX],
        "lead_times": [row for row in _given(run, "ledger", name, "lead_times") if row["run_id"] is None],
        "requeued": _given(run, "ledger", name, "requeued"),
    }


def _describe_relay(run: Run, name: str, source: SourceCut) -> Json:
    classes = _given(run, "recovery", name, "classes")
    totals = {table: rows for table, rows in source.live.items() if table in source.counts}
    totals |= {"outage": source.rows["outage"], **add_up(classes, JOBS["recovery"].totals["classes"], ())}
    sums: Counter[tuple[str, str]] = Counter()
    for row in classes:
        sums[row["route_class"], row["status"]] += row["envelopes"]
    latest = sorted(_given(run, "recovery", name, "outages"), key=lambda row: -row["began_at"])
    return {
        "totals": pair_totals(totals, source.counts),
        "outages": latest[:RUNS_MAX],
        "envelopes": [{"route_class": one, "status": state, "envelopes": n} for (one, state), n in sums.items()],
    }


def _describe_hub(run: Run, name: str, source: SourceCut) -> Json:
    writes, rows = (_given(run, "writes", name, output) for output in ("writes", "rows"))
    adding = JOBS["writes"].totals
    totals = {**add_up(writes, adding["writes"], ()), **add_up(rows, adding["rows"], ())}
    since_ms = run.params.since_ms or 0
    return {
        "totals": pair_totals(totals, source.counts),
        "writes": [row for row in writes if row["hour_at"] >= since_ms],
    }


_FIGURES: Final = {
    "broker": _describe_broker,
    "outbox": _describe_outbox,
    "inbox": _describe_inbox,
    "ledger": _describe_ledger,
    "relay": _describe_relay,
    "hub": _describe_hub,
}


def pair_totals(totals: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Put what was added up beside what the store counted; what only one of them knows is none to the other."""
    names = sorted({*totals, *counts})
    return {name: {"lake": totals.get(name, 0), "store": counts.get(name, 0)} for name in names}


def name_meshes(rows: Iterable[Mapping[str, Any]], slugs: Mapping[str, str]) -> list[Json]:
    return [{**row, "mesh": slugs.get(row["mesh"], row["mesh"])} for row in rows]


def order_runs(rows: Iterable[Json]) -> list[Json]:
    """Put the line of all runs first, and then the largest."""
    return sorted(rows, key=lambda row: (row["run_id"] is not None, -row["steps"]))


def _given(run: Run, job: str, source: str, output: str) -> list[Json]:
    rows: list[Json] = read_output(run, JOBS[job], source, output).to_table().to_pylist()
    return rows


def _rows(frame: DataFrame) -> list[Json]:
    return [row.asDict(recursive=True) for row in frame.collect()]
