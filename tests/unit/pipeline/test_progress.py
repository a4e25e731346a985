"""Progress is drawn where somebody watches, said in lines where nobody does, and silent where it would disturb."""

import io
import threading

import pytest

from claudemesh.pipeline import progress
from claudemesh.pipeline.progress import Progress, draw
from claudemesh.runtime import progress as lines
from claudemesh.runtime.progress import CLEAR
from tests.doubles import ManualClock

WITHIN_S = 10.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.req("S4")
def test_where_nobody_watches_every_stage_is_a_line() -> None:
    stream, clock = io.StringIO(), ManualClock()
    with Progress(stream, clock).stage("orphans"):
        clock.advance(1500)
    assert stream.getvalue() == "claudemesh: orphans: 1.5 s\n"


@pytest.mark.req("S4")
def test_with_json_nothing_is_said_unless_somebody_watches() -> None:
    stream = io.StringIO()
    with Progress(stream, ManualClock(), is_quiet=True).stage("orphans"):
        pass
    assert stream.getvalue() == ""


@pytest.mark.req("S4")
def test_on_a_terminal_a_bar_is_drawn_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = threading.Event()
    monkeypatch.setattr(lines, "REDRAW_S", 0.001)
    monkeypatch.setattr(progress, "draw", lambda *_: drawn.set() or "the bar")
    stream = Terminal()
    shown = Progress(stream, ManualClock(), is_quiet=True)
    shown.expect(2)
    with shown.stage("orphans"):
        assert drawn.wait(WITHIN_S)
    assert f"{CLEAR}the bar" in stream.getvalue()
    assert stream.getvalue().endswith(f"{CLEAR}claudemesh: orphans: 0.0 s\n")


def test_a_stage_that_fails_is_not_said_to_be_done() -> None:
    stream = io.StringIO()
    with pytest.raises(OSError, match="full"), Progress(stream, ManualClock()).stage("orphans"):
        raise OSError("full")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("done", "tasks", "full"),
    [(0, (0, 0), 0), (1, (0, 0), 5), (1, (5, 10), 7), (3, (10, 10), 20)],
)
def test_the_bar_grows_with_stages_and_with_tasks_inside_them(done: int, tasks: tuple[int, int], full: int) -> None:
    line = draw(done, 4, "orphans", 61_000, tasks)
    assert line.count("█") == full
    assert "orphans (61 s" in line
