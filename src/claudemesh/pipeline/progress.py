"""How far a run is, on standard error: a bar where somebody watches, a line for each stage where nobody does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from claudemesh.kernel.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDRAW_S: Final = 0.25
BAR: Final = 20
CLEAR: Final = "\r\x1b[2K"

Tasks = tuple[int, int]  # of Spark, in the stages that run: done, all


class Progress:
    def __init__(self, stream: TextIO, clock: Clock, *, is_quiet: bool = False) -> None:
        self._stream = stream
        self._clock = clock
        self._is_live = stream.isatty()
        self._is_silent = is_quiet and not self._is_live
        self._done = 0
        self._expected = 0
        self._detail = ""
        self._count_tasks: Callable[[], Tasks] = lambda: (0, 0)

    def expect(self, stages: int) -> None:
        self._expected += stages

    def watch(self, spark: "SparkSession") -> None:
        """Show the tasks of this session too."""
        tracker = spark.sparkContext.statusTracker()

        def count() -> Tasks:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)

        self._count_tasks = count

    def step(self, text: str) -> None:
        """Say what the stage that runs is at."""
        self._detail = f": {text}"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start_ms = self._clock.monotonic_ms()
        with self._redrawing(name, start_ms):
            yield
        self._done += 1
        self._detail = ""
        if not self._is_silent:
            self._write(f"claudemesh: {name}: {(self._clock.monotonic_ms() - start_ms) / 1000:.1f} s\n")

    @contextmanager
    def _redrawing(self, name: str, start_ms: int) -> Iterator[None]:
        if not self._is_live:
            yield
            return
        is_over = threading.Event()

        def redraw() -> None:
            while not is_over.wait(REDRAW_S):
                elapsed_ms = self._clock.monotonic_ms() - start_ms
                line = draw(self._done, self._expected, name + self._detail, elapsed_ms, self._count_tasks())
                self._write(f"{CLEAR}{line}")

        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def draw(done: int, expected: int, name: str, elapsed_ms: int, tasks: Tasks) -> str:
    """Return the line: all stages, the one that runs, and within it Spark's tasks."""
    finished, all_ = tasks
    part = (done + (finished / all_ if all_ else 0)) / max(expected, done + 1)
    full = int(part * BAR)
    counted = f", {finished}/{all_} tasks" if all_ else ""
    bar = "█" * full + "░" * (BAR - full)
    return f"{bar} {min(done + 1, expected)}/{expected} {name} ({elapsed_ms / 1000:.0f} s{counted})"
