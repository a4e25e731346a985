"""How far something is, for whoever watches: one line of a terminal, drawn over and gone at the end.

This file decides when there is anything to see. It comes after a second, so that what is quick says nothing; it is
for a terminal only, so that nothing is in a pipe or a file; and a terminal that cannot draw over a line (TERM=dumb)
gets one plain line instead. A bar is drawn where it is known how much there is, else the time that went by. It has
no colour.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from claudemesh.kernel.clock import Clock

AFTER_MS: Final = 1_000
REDRAW_S: Final = 0.25
BAR: Final = 20
CLEAR: Final = "\r\x1b[2K"
WIDTH: Final = 80  # of a terminal that does not say

Draw = Callable[[int], str]  # of the milliseconds that went by


class Line:
    """The line at the cursor. What is written meanwhile, by whom it is, goes through `aside`."""

    def __init__(self, stream: TextIO, clock: Clock, *, is_dumb: bool = False, program: str = "claudemesh") -> None:
        self._stream = stream
        self._clock = clock
        self._program = program
        self._turn = threading.RLock()
        self._is_drawn = False
        self.is_seen = stream.isatty()
        self.is_live = self.is_seen and not is_dumb
        self.blocks = "█░" if (stream.encoding or "").lower().startswith("utf") else "#."

    @contextmanager
    def redrawing(self, draw: Draw, after_ms: int = 0) -> Iterator[Callable[[], None]]:
        """Draw again and again, in a thread, until the end; yields what draws at once."""
        look = self._looking(draw, after_ms)
        if not self.is_seen:
            yield look
            return
        is_over = threading.Event()

        def go_on() -> None:
            while not is_over.wait(REDRAW_S):
                look()

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield look
        finally:
            is_over.set()
            thread.join()
            self.clear()

    @contextmanager
    def redrawn(self, draw: Draw, after_ms: int = 0) -> Iterator[Callable[[], None]]:
        """As `redrawing`, for one who starts processes and so has no thread: drawn only when it is said."""
        try:
            yield self._looking(draw, after_ms)
        finally:
            self.clear()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line away while something else is written there."""
        with self._turn:
            self.clear()
            yield

    def clear(self) -> None:
        with self._turn:
            if self._is_drawn:
                self._write(CLEAR)
                self._is_drawn = False

    def write(self, text: str) -> None:
        with self.aside():
            self._write(text)

    def _looking(self, draw: Draw, after_ms: int) -> Callable[[], None]:
        start_ms = self._clock.monotonic_ms()
        said = False

        def look() -> None:
            nonlocal said
            elapsed_ms = self._clock.monotonic_ms() - start_ms
            if not self.is_seen or elapsed_ms < after_ms:
                return
            with self._turn:
                if self.is_live:
                    self._write(f"{CLEAR}{draw(elapsed_ms)[: self._width() - 1]}")
                    self._is_drawn = True
                elif not said:
                    self._write(f"{self._program}: {draw(elapsed_ms)}\n")
                    said = True

        return look

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or WIDTH
        except (OSError, ValueError):
            return WIDTH

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Waiting:
    """What is waited for, and how much of it is done if that is known."""

    def __init__(self, line: Line, what: str, total: int) -> None:
        self._line = line
        self._what = what
        self._done = 0
        self._total = total
        self._detail = ""
        self._look: Callable[[], None] = lambda: None

    def reach(self, done: int, total: int | None = None, detail: str = "") -> None:
        """Say how much is done, and of how much; what is told of others is escaped already."""
        self._done, self._total = done, self._total if total is None else total
        self._detail = f": {detail}" if detail else ""
        self._look()

    def aside(self, write: Callable[[str], None], text: str) -> None:
        """Have something else written, and not into the line."""
        with self._line.aside():
            write(text)

    def draw(self, elapsed_ms: int) -> str:
        words = f"{self._what}{self._detail}"
        if not self._total:
            return f"{words} ({elapsed_ms // 1000} s)"
        drawn = bar(self._done / self._total, self._line.blocks)
        return f"{drawn} {self._done}/{self._total} {words} ({elapsed_ms // 1000} s)"

    @contextmanager
    def shown(self, *, by_thread: bool) -> Iterator["Waiting"]:
        way = self._line.redrawing if by_thread else self._line.redrawn
        with way(self.draw, AFTER_MS) as look:
            if not by_thread:
                self._look = look
            yield self


@contextmanager
def waiting(line: Line, what: str, total: int = 0, *, by_thread: bool = True) -> Iterator[Waiting]:
    """Show that this is waited for, from a second on; without a thread where processes are started."""
    with Waiting(line, what, total).shown(by_thread=by_thread) as shown:
        yield shown


def bar(part: float, blocks: str) -> str:
    full = int(min(max(part, 0.0), 1.0) * BAR)
    return blocks[0] * full + blocks[1] * (BAR - full)
