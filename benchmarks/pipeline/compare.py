"""Spark beside DuckDB and Polars: the orphan check, telemetry and latency over the same files, in turns.

`python -m benchmarks 1 pipeline` takes ten and thirty million messages. Every engine must find the planted holes
and no others, and all must agree on the other figures. Each run is a process of its own, so start-up counts.
"""

import json
import subprocess
import sys
import tempfile
import time
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


def _rounds(folder: Path, holes: list[Hole], repeats: int) -> list[dict[str, float]]:
    """Ask every engine in turns, and hold their answers against each other."""
    rounds = []
    for _ in range(repeats):
        totals, answers = {}, {}
        for engine in ENGINES:
            totals[engine], answers[engine] = _ask(engine, folder)
            times = "   ".join(f"{name} {spent:.1f}" for name, spent in answers[engine]["times"].items())
            say_value(f"{engine}, {folder.name} messages, total s", f"{totals[engine]:.1f}   {times}")
            assert [tuple(hole) for hole in answers[engine]["orphans"]] == holes, engine
        for what in ("limits", "latency"):
            assert answers["spark"][what] == answers["duckdb"][what] == answers["polars"][what], what
        rounds.append(totals)
    return rounds


def run(scale: float) -> None:
    costs = []
    for messages in (scaled(MESSAGES, scale), scaled(MESSAGES * GROWTH, scale)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / str(messages)
            rounds = _rounds(folder, generate(folder, messages), REPEATS)
        for peer in ("duckdb", "polars"):
            ratio = median(one["spark"] / one[peer] for one in rounds)
            is_goal = peer == "duckdb" and messages == scaled(MESSAGES, scale)
            say_ratio(f"Spark / {peer}, {messages:,} messages", ratio, at_most=(8, 4) if is_goal else None)
        costs.append(median(one["spark"] for one in rounds))
    say_ratio(f"Spark, {GROWTH}x the messages / once", costs[1] / costs[0], at_most=(2.6, 2.3))
