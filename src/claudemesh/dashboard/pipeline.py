"""The newest report of the lake in the same home: verdicts, and the figures that plots are drawn from.

It is the report's own document, read from its file: no Spark is started here. Its page is not served, since its
plots are drawn anew from the same figures, by a page whose rules allow no markup that somebody else wrote.
"""

import os
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.dashboard.aside import Aside
from claudemesh.kernel.errors import MeshError
from claudemesh.pipeline.lake import Lake
from claudemesh.wire.instants import render_instant

Json = dict[str, Any]

COMMAND: Final = "claudemesh pipeline report"
REPORT_BYTES_MAX: Final = 32 << 20
ROWS_MAX: Final = 2_000  # of one list of figures: more is not drawn

_ORDER: Final = ("hour_at", "day", "began_at")  # what a list is cut by: its newest rows stay


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """`none`: no cut of the lake has a report yet. `cut` is the newest one; the report's may be older."""

    state: Literal["none", "there", "unusable"]
    command: str = COMMAND
    detail: str | None = None
    cut: int | None = None
    cut_at: str | None = None
    report: Json | None = None


class PipelineView:
    def __init__(self, root: Path) -> None:
        self._lake = Lake(root)
        self._aside = Aside("the lake")
        self._seen: tuple[tuple[str, int, int], Json] | None = None  # which file it was, and what it said

    async def read(self) -> Pipeline:
        try:
            return await self._aside.ask(self._read)
        except (MeshError, OSError, ValueError, msgspec.MsgspecError) as error:
            return Pipeline(state="unusable", detail=_why(error))

    def _read(self) -> Pipeline:
        newest = self._lake.latest()
        if newest is None:
            return Pipeline(state="none")
        cut_at = render_instant(newest.at_ms)
        places = (self._lake.gold("report", number) / "report.json" for number in reversed(self._lake.numbers()))
        file = next((place for place in places if place.exists()), None)
        if file is None:
            return Pipeline(state="none", cut=newest.number, cut_at=cut_at)
        return Pipeline(state="there", cut=newest.number, cut_at=cut_at, report=self._load(file))

    def _load(self, file: Path) -> Json:
        status = file.stat()
        mark = (os.fspath(file), status.st_mtime_ns, status.st_size)
        if self._seen is None or self._seen[0] != mark:
            if status.st_size > REPORT_BYTES_MAX:
                raise ValueError(f"{file.name} is larger than any report")
            made_at = render_instant(status.st_mtime_ns // 1_000_000)
            report = msgspec.json.decode(file.read_bytes(), type=_Report)
            document = {**msgspec.to_builtins(report), "made_at": made_at}
            document["sources"] = [_trimmed(source) for source in report.sources]
            self._seen = (mark, document)
        return self._seen[1]


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """As `pipeline.report.build` writes it."""

    cut: int
    at: str
    since: str | None
    ok: bool
    verdicts: list[Json]
    sources: list[Json]


def _trimmed(source: Json) -> Json:
    """Cut long lists of figures to their newest rows, and say which were."""
    long = [name for name, rows in source.items() if isinstance(rows, list) and len(rows) > ROWS_MAX]
    return {**source, **{name: _newest(source[name]) for name in long}, "shortened": long}


def _newest(rows: list[Json]) -> list[Json]:
    by = next((name for name in _ORDER if name in rows[0]), None)
    if by is not None:  # what has no time, such as a sum over all of it, counts as old
        rows = sorted(rows, key=lambda row: (row[by] is not None, 0 if row[by] is None else row[by]))
    return rows[-ROWS_MAX:]


def _why(error: Exception) -> str:
    if isinstance(error, MeshError):
        return error.detail or error.title
    if isinstance(error, OSError):
        return f"{Path(error.filename or '').name}: {error.strerror}"
    return f"the report cannot be read: {error}"


def pipeline_routes(root: Path) -> list[Route]:
    view = PipelineView(root)

    async def pipeline(_: Request) -> Response:
        return json_response(await view.read())

    return [
        Route(
            method="GET",
            path="/v1/dashboard/pipeline",
            handler=pipeline,
            summary="The newest report of the lake in this home.",
            response=Pipeline,
        )
    ]
