"""The live view, driven by its keys: what it draws, and that nothing it shows can do anything."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, Tab, Tabs

from claudemesh.cli.top.app import Details, TopApp
from claudemesh.cli.top.looking import Looker
from tests.doubles import ManualClock
from tests.unit.cli.top.looks import HOSTILE, ScriptedLooker, away, look

WITHIN_S = 20.0

View = Pilot[Any]


def top(looker: ScriptedLooker, clock: ManualClock | None = None) -> TopApp:
    return TopApp(cast("Looker", looker), clock or ManualClock(), 0.2)


async def until(pilot: View, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await pilot.pause(0.01)


def text(pilot: View, selector: str) -> str:
    return str(pilot.app.screen.query_one(selector, Static).content)


def cells(pilot: View) -> list[list[str]]:
    rows = pilot.app.query_one(DataTable)
    return [[str(cell) for cell in rows.get_row_at(at)] for at in range(rows.row_count)]


def screenshot(pilot: View) -> str:
    return pilot.app.export_screenshot().replace("&#160;", " ")


@pytest.mark.req("C5")
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 50)])
async def test_the_view_shows_how_the_daemon_is_on_any_terminal(size: tuple[int, int]) -> None:
    async with top(ScriptedLooker(look())).run_test(size=size) as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        assert text(pilot, "#state") == "daemon connected"
        assert "outbox: pending 3" in text(pilot, "#summary")
        assert str(pilot.app.query_one("#dead", Tab).label) == "Dead 2"
        assert pilot.app.query_one(DataTable).region.height >= 3
        await until(pilot, lambda: "Quit" in screenshot(pilot))


@pytest.mark.req("C5")
async def test_names_that_look_like_markup_are_shown_as_they_are_and_do_nothing() -> None:
    async with top(ScriptedLooker(look())).run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        assert cells(pilot)[0][0] == HOSTILE
        await pilot.pause()
        assert HOSTILE in screenshot(pilot)
        rows = pilot.app.query_one(DataTable)
        for x in range(2, 2 + len(HOSTILE), 3):
            await pilot.click(rows, offset=(x, 1))
        assert pilot.app.is_running


@pytest.mark.req("C5")
async def test_enter_shows_the_trace_of_a_dead_row_and_its_texts_are_inert() -> None:
    looker = ScriptedLooker(look())
    async with top(looker).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("tab")
        await until(pilot, lambda: cells(pilot)[0][0] == "message-1")
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Details) and HOSTILE in text(pilot, "#text"))
        assert looker.traced == ["message-2"]
        await pilot.pause()
        assert HOSTILE in screenshot(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Details))


async def test_enter_on_a_row_that_nobody_knows_more_of_shows_all_of_its_cells() -> None:
    async with top(ScriptedLooker(look())).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Details))
        assert "lease     90s" in text(pilot, "#text")


@pytest.mark.req("C5")
async def test_while_the_daemon_is_away_the_last_picture_stays_with_its_age_and_it_comes_back() -> None:
    looker, clock = ScriptedLooker(look(5_000_000), away(5_001_000), look(5_040_000)), ManualClock()
    async with top(looker, clock).run_test() as pilot:
        await until(pilot, lambda: text(pilot, "#state") == "daemon connected")
        clock.advance(30_000)
        await until(pilot, lambda: text(pilot, "#state").startswith("daemon away   as of 30s ago"))
        assert cells(pilot)[1][0] == "bob"
        assert "no daemon answers" in text(pilot, "#state")
        clock.advance(30_000)
        await until(pilot, lambda: text(pilot, "#state") == "daemon connected")


@pytest.mark.req("C5")
async def test_a_daemon_that_hangs_holds_up_no_key_and_is_asked_once_at_a_time() -> None:
    looker, clock = ScriptedLooker(look()), ManualClock()
    async with top(looker, clock).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        looker.may_answer.clear()
        for _ in range(3):
            clock.advance(60_000)
            await pilot.press("r")
        before = looker.looked
        await pilot.press("tab")
        await until(pilot, lambda: cells(pilot)[0][0] == "message-1")
        assert looker.looked == before
        looker.may_answer.set()


async def test_paused_it_looks_only_when_it_is_told_to() -> None:
    looker, clock = ScriptedLooker(look()), ManualClock()
    async with top(looker, clock).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("p")
        await until(pilot, lambda: text(pilot, "#state").endswith("(paused)"))
        looked = looker.looked
        clock.advance(60_000)
        cast("TopApp", pilot.app)._tick()
        await pilot.pause()
        assert looker.looked == looked
        await pilot.press("r")
        await until(pilot, lambda: looker.looked == looked + 1)


async def test_rows_are_filtered_and_sorted_by_keys() -> None:
    async with top(ScriptedLooker(look())).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("tab", "s", "s")
        await until(pilot, lambda: [row[1] for row in cells(pilot)] == ["bob", "carol"])
        await pilot.press("S")
        await until(pilot, lambda: [row[1] for row in cells(pilot)] == ["carol", "bob"])
        await pilot.press("slash", *"bob")
        await until(pilot, lambda: [row[1] for row in cells(pilot)] == ["bob"])
        await pilot.press("slash", "q", "enter")
        await until(pilot, lambda: cells(pilot) == [])
        assert pilot.app.query_one(Input).value == "bob/q"
        assert text(pilot, "#empty") == "no row holds: bob/q"
        await pilot.press("escape")
        await until(pilot, lambda: len(cells(pilot)) == 2)


async def test_the_row_under_the_cursor_stays_there_when_others_come() -> None:
    first = look()
    second = look(dead=[*(first.dead or ())][::-1])
    looker, clock = ScriptedLooker(first, second), ManualClock()
    async with top(looker, clock).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("tab")
        await until(pilot, lambda: cells(pilot)[0][0] == "message-1")
        await pilot.press("r")
        await until(pilot, lambda: cells(pilot)[0][0] == "message-2")
        assert pilot.app.query_one(DataTable).cursor_row == 1


async def test_the_arrows_and_tab_go_round_the_tables() -> None:
    async with top(ScriptedLooker(look())).run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        keys = ("tab", "right", "right", "right", "right", "left", "shift+tab")
        for key, name in zip(keys, ("dead", "queues", "relay", "ledger", "peers", "ledger", "relay"), strict=True):
            await pilot.press(key)
            await until(pilot, lambda name=name: pilot.app.query_one(Tabs).active == name)


async def test_a_smaller_terminal_is_drawn_anew() -> None:
    async with top(ScriptedLooker(look())).run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: max(map(len, text(pilot, "#summary").split("\n"))) <= 58)
        assert pilot.app.query_one(DataTable).region.height >= 3


async def test_help_says_every_key_and_q_ends_the_view() -> None:
    app = top(ScriptedLooker(look()))
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(cells(pilot)))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, Details))
        assert "it changes nothing" in text(pilot, "#text")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Details))
        await pilot.press("q")
    assert app.return_code == 0
