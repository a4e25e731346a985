"""A report on a terminal: one line a check, and then what did not pass with its fix, where eyes end up."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from claudemesh.cli.doctor.model import Report, Result, Verdict
from claudemesh.cli.render import Colour, Output, escape

TITLE_MAX: Final = 34

_WORDS: Final[dict[Verdict, tuple[str, Colour]]] = {
    Verdict.OK: ("ok", "green"),
    Verdict.WARN: ("warn", "yellow"),
    Verdict.FAIL: ("FAIL", "red"),
    Verdict.UNKNOWN: ("?", "yellow"),
    Verdict.NOT_APPLICABLE: ("-", "dim"),
}
_WORST_LAST: Final = (Verdict.UNKNOWN, Verdict.WARN, Verdict.FAIL)


def render(out: Output, report: Report) -> Iterable[str]:
    wide = min(max((len(result.title) for result in report.results), default=0), TITLE_MAX)
    for family, results in groupby(report.results, lambda result: result.check.family):
        yield out.paint(family, "bold")
        yield from (
            f"  {_word(out, one)}  {escape(one.title).ljust(wide)}  {escape(one.finding.detail)}" for one in results
        )
    for one in report.fixed:
        done = (
            f"fixed  {escape(one.says)}"
            if one.error is None
            else f"could not be fixed: {escape(one.says)}: {escape(one.error)}"
        )
        yield out.paint(done, "green" if one.error is None else "red")
    yield from _verdict(out, report)


def _word(out: Output, result: Result) -> str:
    word, colour = _WORDS[result.finding.verdict]
    return out.paint(word.ljust(4), colour)


def _verdict(out: Output, report: Report) -> Iterable[str]:
    wrong = [result for result in report.results if not result.passes]
    yield ""
    if not wrong:
        looked = sum(result.finding.verdict is Verdict.OK for result in report.results)
        yield out.paint(f"all is well: {looked} checks pass", "green")
        return
    for result in sorted(wrong, key=lambda one: _WORST_LAST.index(one.finding.verdict)):
        yield f"{_word(out, result)}  {out.paint(escape(result.title), 'bold')}: {escape(result.finding.detail)}"
        yield f"      fix: {escape(result.finding.fix)}"
    yield out.paint(f"{len(wrong)} of {len(report.results)} checks do not pass", "red")
    if any(result.finding.repairs for result in wrong):
        yield "`claudemesh doctor --fix` mends what is safe to mend"
