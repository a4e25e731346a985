"""How far a run is, on standard error: a bar where somebody watches, a line for each stage where nobody does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from claudemesh.kernel.clock import Clock
from claudemesh.runtime.progress import Line, bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tasks = tuple[int, int]  # of Spark, in the stages that run: done, all


class Progress:
    def __init__(self, stream: TextIO, clock: Clock, *, is_quiet: bool = False, is_dumb: bool = False) -> None:
        self._line = Line(stream, clock, is_dumb=is_dumb)
        self._clock = clock
        self._is_silent = is_quiet and not self._line.is_live
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
        with self._redrawing(name):
            yield
        self._done += 1
        self._detail = ""
        if not self._is_silent:
            self._line.write(f"claudemesh: {name}: {(self._clock.monotonic_ms() - start_ms) / 1000:.1f} s\n")

    @contextmanager
    def _redrawing(self, name: str) -> Iterator[None]:
        if not self._line.is_live:  # its stages are said as they end
            yield
            return

        def draw_now(elapsed_ms: int) -> str:
            tasks, blocks = self._count_tasks(), self._line.blocks
            return draw(self._done, self._expected, name + self._detail, elapsed_ms, tasks, blocks)

        with self._line.redrawing(draw_now):
            yield


def draw(done: int, expected: int, name: str, elapsed_ms: int, tasks: Tasks, blocks: str = "█░") -> str:  # noqa: PLR0913, PLR0917 - all that is in the line
    """Return the line: all stages, the one that runs, and within it Spark's tasks."""
    finished, all_ = tasks
    part = (done + (finished / all_ if all_ else 0)) / max(expected, done + 1)
    counted = f", {finished}/{all_} tasks" if all_ else ""
    drawn = bar(part, blocks)
    return f"{drawn} {min(done + 1, expected)}/{expected} {name} ({elapsed_ms / 1000:.0f} s{counted})"
