"""Plots as SVG, drawn by hand: bars over time, lines over time, bars beside names, spans beside names.

All of a plot is in its elements and their `<title>`s; colours are classes (`c0`, `c1`, …) that the page's style
knows, so that light and dark need no second drawing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final
from xml.etree.ElementTree import Element

from claudemesh.kernel.clock import DAY_MS, HOUR_MS
from claudemesh.pipeline.report.markup import el, printable

WIDTH: Final = 480
HEIGHT: Final = 220
LEFT: Final = 54  # for the numbers of the value axis
TOP: Final = 8
BOTTOM: Final = 22  # for the times
ROW: Final = 20  # of a plot with names
NAMES: Final = 160
BARS_MAX: Final = 120
LOG_FROM: Final = 30  # from this ratio of the greatest value to the least on, equal steps are equal factors
_STEPS: Final = (1, 2, 3, 6, 12, 24, 7 * 24, 28 * 24)  # hours in a bar
_LABEL_MAX: Final = 22
_UNITS_MS: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1000, "s"))

Series = Mapping[str, Mapping[int, float]]  # name -> instant (wall ms) -> value


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    start_ms: int
    end_ms: int
    title: str


def say_time(at_ms: float, step_ms: int = 1) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.strftime("%Y-%m-%d" if step_ms >= DAY_MS else "%m-%d %H:%M" if step_ms > 1 else "%Y-%m-%d %H:%M:%SZ")


def parse_day(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def say_number(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"  # noqa: PLR2004 - beyond it three digits would lie


def say_ms(value: float) -> str:
    size, unit = next((pair for pair in _UNITS_MS if value >= pair[0]), (1, "ms"))
    return f"{value / size:.3g} {unit}"


# --- over time ---------------------------------------------------------------------------------------


def choose_step(first_ms: int, last_ms: int) -> int:
    """Return how long one bar is: an hour, or as many as keep the number of bars within bounds."""
    hours = (last_ms - first_ms) // HOUR_MS + 1
    return next((step for step in _STEPS if hours / step <= BARS_MAX), ceil(hours / BARS_MAX / 24) * 24) * HOUR_MS


def bars(series: Series, unit: str) -> Element:
    """Draw bars on top of each other: what came in each hour, or in as many hours as there is room for."""
    instants = sorted({at for points in series.values() for at in points})
    if not instants:
        return nothing()
    step = choose_step(instants[0], instants[-1])
    start = instants[0] // step * step
    count = (instants[-1] - start) // step + 1
    stacks = {name: [0.0] * count for name in series}
    for name, points in series.items():
        for at, value in points.items():
            stacks[name][(at - start) // step] += value
    top = _ceiling(max(map(sum, zip(*stacks.values(), strict=True))))
    plot = _frame("bars", [top * part / 4 for part in range(5)], lambda value: value / top, say_number)
    width = (WIDTH - LEFT) / count
    for i in range(count):
        below = 0.0
        for colour, (name, values) in enumerate(stacks.items()):
            if values[i]:
                title = f"{say_time(start + i * step, step)}  {printable(name)}: {say_number(values[i])} {unit}"
                shape = {
                    "x": LEFT + i * width,
                    "y": _y((below + values[i]) / top),
                    "width": max(width - 0.5, 0.5),
                    "height": max(_y(0) - _y(values[i] / top), 0.5),
                }
                plot.append(el("rect", el("title", title), class_=f"c{colour}", **shape))
                below += values[i]
    _times(plot, start, start + count * step, step)
    return plot


def lines(series: Series, unit: Callable[[float], str]) -> Element:
    """Draw a line for each name, with a dot for each of its days."""
    instants = sorted({at for points in series.values() for at in points})
    values = [value for points in series.values() for value in points.values()]
    if not values:
        return nothing()
    ticks, scale = _scale(min(values), max(values))
    plot = _frame("lines", ticks, scale, unit)
    first, last = instants[0], instants[-1]

    def x(at: int) -> float:
        return LEFT + 8 + (WIDTH - LEFT - 16) * ((at - first) / (last - first) if last > first else 0.5)

    for colour, (name, points) in enumerate(series.items()):
        places = [(x(at), _y(scale(value)), at, value) for at, value in sorted(points.items())]
        for (x1, y1, *_), (x2, y2, *_) in pairwise(places):
            plot.append(el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"s{colour}", stroke_width=2))
        for cx, cy, at, value in places:
            title = f"{say_time(at, DAY_MS)}  {printable(name)}: {unit(value)}"
            plot.append(el("circle", el("title", title), cx=cx, cy=cy, r=3, class_=f"c{colour}"))
    _times(plot, first, last, DAY_MS)
    return plot


def _scale(least: float, greatest: float) -> tuple[list[float], Callable[[float], float]]:
    """Return the ticks of the value axis, and where on it (0 to 1) a value stands."""
    least = max(least, 1)
    if greatest / least < LOG_FROM:
        top = _ceiling(greatest)
        return [top * part / 4 for part in range(5)], lambda value: value / top
    low, high = floor(log10(least)), ceil(log10(greatest))
    return [
        10.0**power for power in range(low, high + 1)
    ], lambda value: (log10(max(value, 10**low)) - low) / (high - low)


def _ceiling(greatest: float) -> float:
    """Return a round number that is no less, of which the quarters are round too."""
    power = 10.0 ** floor(log10(max(greatest, 1)))
    return max(next(part * power for part in (1.2, 1.6, 2, 4, 8, 12) if part * power >= greatest), 4)


def _y(part: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - part)


def _frame(
    what: str, ticks: Sequence[float], scale: Callable[[float], float], say: Callable[[float], str]
) -> Element:
    plot = el("svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", class_=f"plot {what}")
    for tick in ticks:
        y = _y(scale(tick))
        plot.append(el("line", x1=LEFT, y1=y, x2=WIDTH, y2=y, class_="grid"))
        plot.append(el("text", say(tick), x=LEFT - 5, y=y + 4, text_anchor="end"))
    return plot


def _times(plot: Element, first: int, last: int, step: int) -> None:
    for anchor, x, at in (("start", LEFT, first), ("end", WIDTH, last)):
        if anchor == "start" or last > first:
            plot.append(el("text", say_time(at, step), x=x, y=HEIGHT - 5, text_anchor=anchor))


# --- beside names --------------------------------------------------------------------------------------


def ranking(values: Mapping[str, float], unit: str) -> Element:
    """Draw a bar beside each name, the longest first."""
    if not values:
        return nothing()
    ordered = sorted(values.items(), key=lambda pair: -pair[1])
    plot = el("svg", viewBox=f"0 0 {WIDTH} {len(ordered) * ROW}", role="img", class_="plot ranking")
    room = WIDTH - NAMES - 60
    for i, (name, value) in enumerate(ordered):
        width = max(room * value / max(ordered[0][1], 1), 1.0)
        title = el("title", f"{printable(name)}: {value:.0f} {unit}")
        plot.append(_name(i, name))
        plot.append(el("rect", title, x=NAMES, y=i * ROW + 3, width=width, height=ROW - 6, class_="bad"))
        plot.append(el("text", say_number(value), x=NAMES + width + 5, y=i * ROW + 14))
    return plot


def spans(rows: Sequence[Span]) -> Element:
    """Draw a line beside each name, from the first time it was seen to the last."""
    if not rows:
        return nothing()
    first, last = min(row.start_ms for row in rows), max(row.end_ms for row in rows)
    height = len(rows) * ROW + BOTTOM
    plot = el("svg", viewBox=f"0 0 {WIDTH} {height}", role="img", class_="plot spans")

    def x(at: int) -> float:
        return NAMES + 6 + (WIDTH - NAMES - 12) * ((at - first) / (last - first) if last > first else 0.5)

    for i, row in enumerate(rows):
        y = i * ROW + ROW / 2
        plot.append(_name(i, row.name))
        plot.append(el("line", x1=x(row.start_ms), y1=y, x2=x(row.end_ms), y2=y, class_="s0", stroke_width=3))
        plot.append(el("circle", el("title", row.title), cx=x(row.end_ms), cy=y, r=4, class_="c0"))
    plot.append(el("text", say_time(first, HOUR_MS), x=NAMES, y=height - 5))
    plot.append(el("text", say_time(last, HOUR_MS), x=WIDTH, y=height - 5, text_anchor="end"))
    return plot


def _name(row: int, name: str) -> Element:
    shown = printable(name)
    short = shown if len(shown) <= _LABEL_MAX else f"{shown[: _LABEL_MAX - 1]}…"
    return el("text", short, el("title", shown), x=NAMES - 6, y=row * ROW + 14, text_anchor="end")


def nothing() -> Element:
    return el("p", "Nothing in this cut.", class_="nothing")
