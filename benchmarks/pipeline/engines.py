"""One engine in a process of its own: `python -m benchmarks.pipeline.engines ENGINE FOLDER` prints what it said."""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ENGINES = {"spark": "spark_run:Spark", "duckdb": "duckdb_peer:DuckDB", "polars": "polars_peer:Polars"}


def run(engine: str, folder: Path) -> dict[str, Any]:
    times: dict[str, float] = {}

    def timed(name: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever is asked for
        began_s = time.monotonic()
        answer = ask()
        times[name] = time.monotonic() - began_s
        return answer

    module, name = ENGINES[engine].split(":")
    begin = getattr(import_module(f"benchmarks.pipeline.{module}"), name)
    one = timed("start", lambda: begin(folder))
    answers = {what: timed(what, getattr(one, what)) for what in ("orphans", "limits", "latency")}
    one.close()
    return {
        "times": times,
        "orphans": sorted(answers["orphans"]),
        "limits": answers["limits"],
        "latency": sorted(_summary(row) for row in answers["latency"]),
    }


def _summary(row: tuple[Any, ...]) -> tuple[int, float, float, float, int]:
    """Give a row's figures only: engines write a day differently."""
    _, _, deliveries, *quantiles, max_ms = row
    flat = quantiles[0] if isinstance(quantiles[0], list) else quantiles
    half, most, nearly_all = (round(float(value), 3) for value in flat)
    return deliveries, half, most, nearly_all, max_ms


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))
