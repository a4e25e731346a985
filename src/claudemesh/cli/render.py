"""What a command prints: one JSON document, or lines and tables for people.

Texts of other people are shown with every character escaped that could move a cursor, hide or reorder what stands
around it. JSON is printed in ASCII for the same reason; a program reads the same from it. Colour is for a terminal
only, and NO_COLOR is heard.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TextIO

from claudemesh.kernel.texts import escape

__all__ = ["Colour", "Output", "age", "escape", "render_json", "text_width", "when"]

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400

Colour = Literal["red", "green", "yellow", "dim", "bold"]

_CODES: Final[dict[Colour, str]] = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_WIDE: Final = "WF"  # East Asian widths that take two columns

_STATES: Final[dict[str, Colour]] = {
    **dict.fromkeys(("dead", "aborted", "conflict", "stopped", "offline"), "red"),
    **dict.fromkeys(("pending", "inflight", "queued", "sending", "accepted"), "yellow"),
    **dict.fromkeys(("done", "acked", "delivered", "read", "acted", "online", "running"), "green"),
}


def when(instant: object) -> str:
    """Show an instant: wall milliseconds, or a text that already says it."""
    if not isinstance(instant, int):
        return escape(instant or "-")
    from datetime import UTC, datetime  # noqa: PLC0415 - most commands show no time

    try:
        return datetime.fromtimestamp(instant / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(instant)


def age(seconds: int) -> str:
    """Return how long ago it was, in its two largest units."""
    if seconds < MINUTE_S:
        return f"{max(seconds, 0)}s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S}m {seconds % MINUTE_S}s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S}h {seconds % HOUR_S // MINUTE_S}m"
    return f"{seconds // DAY_S}d {seconds % DAY_S // HOUR_S}h"


def render_json(document: object) -> str:
    import json  # noqa: PLC0415 - only with --json

    return json.dumps(document, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


class Output:
    """Where a command's results go. What is said meanwhile goes to standard error, so that results can be piped."""

    def __init__(self, *, as_json: bool, no_color: bool, program: str = "claudemesh") -> None:
        self.as_json = as_json
        self._program = program
        self._no_color = no_color

    def document(self, document: object, lines: Iterable[str]) -> None:
        """Print the one document, or the lines that say it to a person."""
        self.write([render_json(document)] if self.as_json else lines)

    def entry(self, document: object, lines: Iterable[str]) -> None:
        """Print one of many, as it comes: an object on a line of its own, or what says it to a person."""
        self.write([render_json(document)] if self.as_json else lines)

    def problem(self, problem: object) -> None:
        """Print what went wrong in the place of the document; a person reads it on standard error."""
        if self.as_json:
            self.write([render_json(problem)])

    def write(self, lines: Iterable[str]) -> None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()  # a reader at the other end of a pipe is following

    def say(self, text: str) -> None:
        sys.stderr.write(f"{self._program}: {escape(text)}\n")
        sys.stderr.flush()

    def paint(self, text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
        is_plain = colour is None or self.as_json or self._no_color or not (stream or sys.stdout).isatty()
        return text if is_plain or colour is None else f"\x1b[{_CODES[colour]}m{text}\x1b[0m"

    def state(self, word: object) -> str:
        return self.paint(escape(word), _STATES.get(str(word)))

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
        """Return lines in columns; the cells are escaped, and states take their colour."""
        cells = [[escape("-" if cell is None else cell) for cell in row] for row in rows]
        widths = [max(text_width(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]
        lines = [self.paint(_align([head.upper() for head in heads], widths), "dim")]
        for row in cells:
            painted = [self.paint(_pad(cell, widths[i]), _STATES.get(cell)) for i, cell in enumerate(row)]
            lines.append("  ".join(painted).rstrip())
        return lines


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(_pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - text_width(cell))


def text_width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - only for names that need it

    return sum(0 if combining(c) else 2 if east_asian_width(c) in _WIDE else 1 for c in text)
