"""What takes long shows that it goes on, to whoever watches and to nobody else."""

import fcntl
import io
import os
import pty
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from claudemesh.runtime import progress
from claudemesh.runtime.progress import AFTER_MS, BAR, CLEAR, Line, bar, waiting
from tests.doubles import ManualClock

WITHIN_S = 10.0


@contextmanager
def terminal(encoding: str = "utf-8") -> Iterator[tuple[TextIO, "Screen"]]:
    """Yield a stream onto a real terminal, and what reads what is shown there."""
    main, side = pty.openpty()
    stream = os.fdopen(side, "w", encoding=encoding, errors="backslashreplace")
    screen = Screen(main)
    try:
        yield stream, screen
    finally:
        stream.close()
        screen.thread.join(WITHIN_S)
        os.close(main)


class Screen:
    def __init__(self, descriptor: int) -> None:
        self._shown = b""
        self._more = threading.Condition()
        self._descriptor = descriptor
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._descriptor, 4096)
            except OSError:  # the other end was closed
                return
            with self._more:
                self._shown += piece
                self._more.notify_all()

    def until(self, text: str) -> str:
        with self._more:
            assert self._more.wait_for(lambda: text.encode() in self._shown, WITHIN_S), self._shown
            return self._shown.decode()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    monkeypatch.setattr(progress, "REDRAW_S", 0.001)
    return ManualClock()


@pytest.mark.req("C1")
def test_what_takes_long_is_shown_on_a_terminal_and_leaves_no_trace(clock: ManualClock) -> None:
    with terminal() as (stream, screen):
        line = Line(stream, clock)
        with waiting(line, "starting the daemon"):
            clock.advance(AFTER_MS + 2_000)
            screen.until("starting the daemon (3 s)")
        stream.write("the end\n")
        stream.flush()
        assert screen.until("the end").endswith(f"{CLEAR}the end\r\n")


@pytest.mark.req("C1")
def test_what_is_quick_says_nothing(clock: ManualClock) -> None:
    with terminal() as (stream, screen):
        with waiting(Line(stream, clock), "starting the daemon", 3, by_thread=False) as shown:
            clock.advance(AFTER_MS - 1)
            shown.reach(1)
        stream.write("the end\n")
        stream.flush()
        assert screen.until("the end") == "the end\r\n"


@pytest.mark.req("C1")
def test_off_a_terminal_nothing_is_drawn_and_no_thread_is_started(clock: ManualClock) -> None:
    stream, before = io.StringIO(), {*threading.enumerate()}
    with waiting(Line(stream, clock), "checking the store") as shown:
        clock.advance(60_000)
        shown.reach(1, 2)
        assert {*threading.enumerate()} <= before, "one may end meanwhile, of whoever ran before"
    assert stream.getvalue() == ""


@pytest.mark.req("C1")
def test_a_dumb_terminal_gets_one_plain_line_and_no_control_sequence(clock: ManualClock) -> None:
    with terminal() as (stream, screen):
        with waiting(Line(stream, clock, is_dumb=True), "sweeping", by_thread=False) as shown:
            clock.advance(5_000)
            shown.reach(0)
            shown.reach(0)
        stream.write("the end\n")
        stream.flush()
        assert screen.until("the end") == "claudemesh: sweeping (5 s)\r\nthe end\r\n"


def test_where_it_is_known_how_much_there_is_a_bar_says_how_far_it_is(clock: ManualClock) -> None:
    with terminal() as (stream, screen), waiting(Line(stream, clock), "replaying", 4, by_thread=False) as shown:
        clock.advance(2_000)
        shown.reach(1, detail="of four")
        assert f"{'█' * 5}{'░' * 15} 1/4 replaying: of four (2 s)" in screen.until("(2 s)")


def test_a_terminal_that_cannot_show_blocks_gets_letters(clock: ManualClock) -> None:
    with (
        terminal("ascii") as (stream, screen),
        waiting(Line(stream, clock), "replaying", 2, by_thread=False) as shown,
    ):
        clock.advance(2_000)
        shown.reach(1)
        assert f"{'#' * 10}{'.' * 10} 1/2" in screen.until("(2 s)")


def test_what_is_said_meanwhile_stands_on_a_line_of_its_own(clock: ManualClock) -> None:
    with terminal() as (stream, screen), waiting(Line(stream, clock), "joining", 2, by_thread=False) as shown:
        clock.advance(2_000)
        shown.reach(1)
        shown.aside(lambda text: print(text, file=stream, flush=True), "it is not there yet")
        assert screen.until("not there yet").endswith(f"{CLEAR}it is not there yet\r\n")


def test_the_line_goes_away_when_the_work_fails(clock: ManualClock) -> None:
    with terminal() as (stream, screen):

        def fail() -> None:
            with waiting(Line(stream, clock), "x", 1, by_thread=False) as shown:
                clock.advance(2_000)
                shown.reach(0)
                raise OSError("full")

        with pytest.raises(OSError, match="full"):
            fail()
        stream.write("the end\n")
        stream.flush()
        assert screen.until("the end").endswith(f"{CLEAR}the end\r\n")


def test_a_line_is_never_wider_than_the_terminal(clock: ManualClock) -> None:
    with terminal() as (stream, screen):
        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        with waiting(Line(stream, clock), "a" * 100, by_thread=False) as shown:
            clock.advance(2_000)
            shown.reach(0)
            drawn = screen.until("aaa").removeprefix(CLEAR)
            assert drawn == "a" * 29


@pytest.mark.parametrize(("part", "full"), [(-1.0, 0), (0.0, 0), (0.5, BAR // 2), (1.0, BAR), (2.0, BAR)])
def test_a_bar_stays_within_its_ends(part: float, full: int) -> None:
    assert bar(part, "#.") == "#" * full + "." * (BAR - full)
