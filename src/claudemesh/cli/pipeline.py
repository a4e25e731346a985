"""`pipeline`: copy the stores into a lake, and check, rebuild and measure from it on Spark.

Spark is loaded, and a JVM started, when there is something for it to do: an `ingest` without news does neither.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from claudemesh.cli.command import DONE, FAILED, Group, Session
from claudemesh.cli.render import escape, render_json, when
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.pipeline.jobs.names import NAMES
from claudemesh.pipeline.jobs.params import RETENTION_DAYS, SENDS_PER_WINDOW, WINDOW_S
from claudemesh.runtime.clock import SystemClock

if TYPE_CHECKING:
    from claudemesh.pipeline.lake import Cut
    from claudemesh.pipeline.outputs import Result, Run
    from claudemesh.pipeline.work import Work

ITEMS_SHOWN: Final = 50

Json = dict[str, Any]


# --- what the commands share ---------------------------------------------------------------------------


def _since(text: str) -> int:
    from claudemesh.wire.instants import parse_instant  # noqa: PLC0415 - only where it is said

    return parse_instant(text)


def _shared(command: Callable[..., int]) -> Callable[..., int]:
    options = (
        click.option(
            "--store",
            multiple=True,
            metavar="URL",
            help="What to read, a file, sqlite:///PATH or postgresql://HOST/NAME; repeatable [default: the home's]",
        ),
        click.option(
            "--lake",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Where copies go. [default: lake in the home]",
        ),
        click.option("--master", metavar="URL", help="Where Spark runs. [default: local[*]]"),
        click.option("--since", type=_since, metavar="ISO", help="Measure from then on; a copy is always whole."),
        click.option(
            "--bodies/--no-bodies", default=None, help="Also copy what people wrote. [default: as before]"
        ),
        click.option("--full", is_flag=True, help="Read the stores anew, whatever was copied of them before."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _count(name: str, default: int, text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.option(
        name, type=click.IntRange(min=1), default=default, show_default=True, metavar="N", help=text
    )


_CUT: Final = click.option("--cut", type=int, metavar="N", help="An older cut, and no ingest before.")
_HISTORY: Final = click.option(
    "--history",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What clients were told, as SDK and command line record it; may be repeated.",
)


@contextmanager
def _work(session: Session, said: Json) -> "Iterator[Work]":
    from claudemesh.pipeline.progress import Progress  # noqa: PLC0415 - not for `--help`
    from claudemesh.pipeline.work import Asked, working  # noqa: PLC0415 - as above

    clock = SystemClock()
    is_dumb = session.surroundings.is_dumb
    progress = Progress(sys.stderr, clock, is_quiet=session.as_json, is_dumb=is_dumb)
    with working(session.home.root, Asked(**said), clock, progress) as work:
        yield work


# --- the commands --------------------------------------------------------------------------------------


@click.group(cls=Group)
def pipeline() -> None:
    """Pipeline on Spark: ingest, run, check, report."""


@pipeline.command()
@_shared
@click.pass_obj
def ingest(session: Session, /, **said: Any) -> int:  # noqa: ANN401 - as the options name them
    """Copy what is new in the stores into the lake."""
    with _work(session, said) as work:
        before = work.lake.latest()
        cut = work.bring(verify=False)
    is_new = before is None or before.number != cut.number
    sources: dict[str, Json] = {
        name: {"kind": one.kind, "store": one.store, "bodies": one.bodies, "rows": one.rows, "lag": one.lag}
        for name, one in cut.sources.items()
    }
    rows = [(name, one["store"], sum(one["rows"].values())) for name, one in sources.items()]
    lines = [f"cut {cut.number} of {when(cut.at_ms)}{'' if is_new else ': nothing is new'}"]
    document = {"cut": cut.number, "at_ms": cut.at_ms, "is_new": is_new, "sources": sources}
    session.out.document(document, [*lines, *session.out.table(("source", "store", "rows"), rows)])
    return DONE


@pipeline.command(help=f"Run a job on the newest cut, or all: {', '.join(NAMES)}.")
@click.argument("job", type=click.Choice(["all", *NAMES]), default="all", metavar="[JOB]")
@_shared
@_CUT
@_count("--retention-days", RETENTION_DAYS, "For `retention`: how long messages are kept.")
@_count("--sends-per-window", SENDS_PER_WINDOW, "For `limits`: the budget in a mesh that has none of its own.")
@_count("--window-s", WINDOW_S, "For `limits`: how long a window is.")
@click.pass_obj
def run(session: Session, /, job: str, **said: Any) -> int:  # noqa: ANN401 - as above
    with _work(session, said) as work:
        cut = work.bring()
        from claudemesh.pipeline import metrics, runner  # noqa: PLC0415 - all of Spark

        jobs, left_out = runner.choose_jobs(job, cut, work.lake.newest())
        with work.run(cut) as given:
            results = runner.run_jobs(given, jobs)
            metrics.write_metrics(work.lake, cut, {one.job: one.found for one in results})
    documents = [_summary(result) for result in results]
    found = sum(one.found for one in results)
    whole = {"cut": cut.number, "violations": found, "jobs": documents, "left_out": left_out}
    lines = [*_tell(session, results), *(f"{name}: left out: {why}" for name, why in left_out.items())]
    session.out.document(documents[0] if job != "all" else whole, lines)
    return DONE if all(result.is_ok for result in results) else FAILED


@pipeline.command()
@_shared
@_CUT
@_HISTORY
@click.pass_obj
def check(session: Session, /, history: tuple[Path, ...], **said: Any) -> int:  # noqa: ANN401 - as above
    """Prove from what the stores hold, and what clients were told, that nothing promised was broken."""
    _look_into(history)
    with _work(session, said) as work:
        cut = work.bring()
        _need_a_broker(cut, history)
        with work.run(cut) as given:
            verdict, checked = _check(work, given, history)
            from claudemesh.pipeline.metrics import write_metrics  # noqa: PLC0415 - as above

            write_metrics(work.lake, cut, {"check": verdict["violations"]})
    document = {
        "cut": cut.number,
        "violations": verdict["violations"],
        "checked": checked,
        "items": verdict["items"],
    }
    looked = ", ".join(f"{'log' if name == 'h' else escape(name)} {count}" for name, count in checked.items())
    found = _items(session, verdict["items"], verdict["violations"])
    session.out.document(document, [f"cut {cut.number}, looked at: {looked}", *found])
    return FAILED if verdict["violations"] else DONE


@pipeline.command()
@_shared
@_CUT
@_HISTORY
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the page. [default: report.html beside the cut's results in the lake]",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the document. [default: report.json beside it]",
)
@click.pass_obj
def report(
    session: Session,
    /,
    history: tuple[Path, ...],
    html: Path | None,
    out: Path | None,
    **said: Any,  # noqa: ANN401 - as above
) -> int:
    """Write what a cut shows: a JSON document, and a page with plots."""
    for file in filter(None, (html, out)):
        if not file.absolute().parent.is_dir():
            raise InvalidRequest(f"{file}: there is no such directory")
    _look_into(history)
    with _work(session, said) as work:
        cut = work.bring()
        _need_a_broker(cut, history)
        from claudemesh.pipeline import metrics  # noqa: PLC0415 - as above
        from claudemesh.pipeline.lake import write_durably  # noqa: PLC0415 - as above
        from claudemesh.pipeline.report.build import build_report  # noqa: PLC0415 - as above
        from claudemesh.pipeline.report.page import build_page  # noqa: PLC0415 - as above

        with work.run(cut) as given:
            document = build_report(given, [_check(work, given, history)[0]])
            metrics.write_metrics(work.lake, cut, {one["name"]: one["violations"] for one in document["verdicts"]})
        place = work.lake.gold("report", cut.number)
        places = {"html": html or place / "report.html", "out": out or place / "report.json"}
        write_durably(places["html"].absolute(), build_page(document).encode())
        write_durably(places["out"].absolute(), render_json(document).encode())
    verdicts = [(one["name"], one["violations"] or "holds", one["about"]) for one in document["verdicts"]]
    lines = [
        *session.out.table(("verdict", "found", "about"), verdicts),
        *(escape(path) for path in places.values()),
    ]
    session.out.document({**document, **{name: str(path) for name, path in places.items()}}, lines)
    return DONE if document["ok"] else FAILED


def _look_into(history: tuple[Path, ...]) -> None:
    """Refuse a log that cannot be read before anything takes time."""
    from claudemesh.pipeline.history import read_history  # noqa: PLC0415 - not for `--help`

    read_history(history)


def _need_a_broker(cut: "Cut", history: tuple[Path, ...]) -> None:
    """Refuse to hold a log against nothing: all that was acknowledged would look lost."""
    if history and all(source.kind != "broker" for source in cut.sources.values()):
        raise InvalidRequest("a log is held against the broker's store, and there is none: name it with --store")


def _check(work: "Work", given: "Run", history: tuple[Path, ...]) -> tuple[Json, Json]:
    """Return the verdict of the history checker, and how much it looked at."""
    from claudemesh.pipeline import checks  # noqa: PLC0415 - as above

    work.progress.expect(1)
    with work.progress.stage("history check"):
        tables = {source: given.tables(source) for source in given.cut.sources}
        found = checks.run(given.spark, tables, history, until_ms=work.until_ms(given.cut))
    items = [{"invariant": one.invariant, **one.evidence} for one in found.violations]
    logs = "1 log" if len(history) == 1 else f"{len(history)} logs"
    about = f"the stores, with each other and with what clients were told ({logs})"
    if any(source.kind == "ledger" for source in given.cut.sources.values()):
        about += "; not a ledger's schema and chain: `claudemesh ledger verify`"
    return {"name": "check", "about": about, "violations": len(items), "items": items}, dict(found.checked)


# --- what is printed -----------------------------------------------------------------------------------


def _summary(result: "Result") -> Json:
    from msgspec import to_builtins  # noqa: PLC0415 - not for `--help`

    return {**to_builtins(result), "violations": result.found}


def _tell(session: Session, results: "list[Result]") -> Iterator[str]:
    for result in results:
        for source, summary in result.sources.items():
            rows = ", ".join(f"{escape(name)} {count}" for name, count in summary.get("rows", {}).items())
            yield f"{result.job}: {escape(source)}: {rows}"
            if "execute" in summary:
                yield f"  {escape(summary['execute'])}"
        yield from (session.out.paint(escape(f"{result.job}: {text}"), "red") for text in result.mismatches)
        yield from _items(session, result.items, result.found)


def _items(session: Session, items: list[Json], violations: int) -> list[str]:
    if not items:
        return [] if violations else ["no violations"]
    heads = list(items[0])
    rows = [[_cell(item.get(head)) for head in heads] for item in items[:ITEMS_SHOWN]]
    return [f"{violations} violation{'s' if violations > 1 else ''}", *session.out.table(heads, rows)]


def _cell(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
