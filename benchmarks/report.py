"""How figures are kept and said: rates as they are, ratios with what was asked of them beside.

A round measures everything once, one after the other. A figure is the median over the rounds; a ratio is the median
of each round's own ratio, since the same machine is not the same from one minute to the next.
"""

from collections.abc import Callable
from statistics import median

ROUNDS = 3

Figures = dict[str, float]


class Rounds:
    def __init__(self, rows: list[Figures]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> float:
        return median(row[name] for row in self._rows)

    def ratio(self, above: str, below: str) -> float:
        return median(row[above] / row[below] for row in self._rows)


def measured(one_round: Callable[[], Figures]) -> Rounds:
    return Rounds([one_round() for _ in range(ROUNDS)])


def say_rate(name: str, rate: float, unit: str, more: str = "") -> None:
    print(f"{name:58} {rate:9,.0f} {unit}{more and '   ' + more}", flush=True)


def say_value(name: str, value: str) -> None:
    print(f"{name:58} {value:>9}", flush=True)


def say_ratio(
    name: str,
    ratio: float,
    *,
    at_least: tuple[float, float] | None = None,
    at_most: tuple[float, float] | None = None,
) -> None:
    """Say it beside its must and its moonshot. It fails nothing, since a busy machine is no bug."""
    verdict = ""
    if at_least is not None:
        verdict = _verdict(">=", at_least, [ratio >= bound for bound in at_least])
    if at_most is not None:
        verdict = _verdict("<=", at_most, [ratio <= bound for bound in at_most])
    print(f"ratio: {name:51} {ratio:9.3f}{verdict}", flush=True)


def _verdict(sign: str, bounds: tuple[float, float], met: list[bool]) -> str:
    must = "met" if met[0] else "MISSED"
    moonshot = "met" if met[1] else "not met"
    return f"   must {sign} {bounds[0]:g}: {must}   moonshot {sign} {bounds[1]:g}: {moonshot}"


def scaled(count: int, scale: float, least: int = 1) -> int:
    return max(int(count * scale), least)
