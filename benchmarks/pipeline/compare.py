"""Spark beside DuckDB and Polars: the orphan check, telemetry and latency over the same files, in turns.

`python -m benchmarks 1 pipeline` takes ten million messages, and then thirty with Spark alone: DuckDB's joins run
out of 19 GB of memory there. Every engine must find the planted holes and no others, and all must agree on the
other figures. Each run is a process of its own, so start-up counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pipeline.engines import ENGINES
from benchmarks.pipeline.generate import Hole, generate
from benchmarks.report import say_ratio, say_value, scaled

MESSAGES = 10_000_000
GROWTH = 3
REPEATS = 3


def _ask(engine: str, folder: Path) -> tuple[float, dict[str, Any]]:
    began_s = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.pipeline.engines", engine, str(folder)]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603 - ourselves
    return time.monotonic() - began_s, json.loads(said)


def _rounds(folder: Path, holes: list[Hole], engines: Iterable[str]) -> list[dict[str, float]]:
    """Ask every engine in turns, and hold their answers against each other."""
    rounds = []
    for _ in range(REPEATS):
        totals, answers = {}, {}
        for engine in engines:
            totals[engine], answers[engine] = _ask(engine, folder)
            times = "   ".join(f"{name} {spent:.1f}" for name, spent in answers[engine]["times"].items())
            say_value(f"{engine}, {folder.name} messages, total s", f"{totals[engine]:.1f}   {times}")
            assert [tuple(hole) for hole in answers[engine]["orphans"]] == holes, engine
            for what in ("limits", "latency"):
                assert answers[engine][what] == answers["spark"][what], (engine, what)
        rounds.append(totals)
    return rounds


def _measure(messages: int, engines: Iterable[str]) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / str(messages)
        return _rounds(folder, generate(folder, messages), engines)


def run(scale: float) -> None:
    messages = scaled(MESSAGES, scale)
    beside = _measure(messages, ENGINES)
    for peer, at_most in (("duckdb", (8, 4)), ("polars", None)):
        ratio = median(one["spark"] / one[peer] for one in beside)
        say_ratio(f"Spark / {peer}, {messages:,} messages", ratio, at_most=at_most)
    alone = _measure(GROWTH * messages, ["spark"])
    growth = median(one["spark"] for one in alone) / median(one["spark"] for one in beside)
    say_ratio(f"Spark, {GROWTH}x the messages / once", growth, at_most=(2.6, 2.3))
