"""What hangs keeps a place for itself, and nobody waiting."""

import asyncio
import threading

import pytest

from claudemesh.dashboard.aside import AT_ONCE, Aside
from claudemesh.kernel.errors import DeadlineExceeded, NotFound

BOUND_S = 30
SOON_S = 0.05


async def test_an_answer_and_a_refusal_come_as_they_are() -> None:
    aside = Aside("the relay")
    assert await aside.ask(lambda: 7) == 7

    def refuse() -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound, match="no such thing"):
        await aside.ask(refuse)


@pytest.mark.req("C4")
async def test_whoever_asks_what_hangs_is_told_so_and_the_loop_goes_on() -> None:
    aside, release = Aside("the relay"), threading.Event()
    try:
        with pytest.raises(DeadlineExceeded, match="the relay did not answer"):
            await aside.ask(lambda: release.wait(BOUND_S), SOON_S)
        assert await aside.ask(lambda: "another") == "another"
    finally:
        release.set()


async def test_a_question_that_could_not_even_begin_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    aside = Aside("the relay")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(AT_ONCE):
            with pytest.raises(RuntimeError, match="new thread"):
                await aside.ask(lambda: 7)
    assert await aside.ask(lambda: 7, BOUND_S) == 7


async def test_so_many_questions_hang_at_once_and_no_more() -> None:
    aside, release, begun = Aside("the relay"), threading.Event(), []

    def hang() -> None:
        begun.append(1)
        release.wait(BOUND_S)

    try:
        asked = [aside.ask(hang, SOON_S) for _ in range(AT_ONCE * 3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
        assert len(begun) == AT_ONCE
    finally:
        release.set()
    async with asyncio.timeout(BOUND_S):
        assert await aside.ask(lambda: "again", BOUND_S) == "again"
