"""Checks beside each other: none takes another down, or keeps it waiting."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from claudemesh.cli.doctor.checks import ALL
from claudemesh.cli.doctor.model import Check, Finding, Repair, Verdict, declare, ok, warn
from claudemesh.cli.doctor.runner import explain, run, run_and_fix
from claudemesh.cli.doctor.scene import Scene
from claudemesh.kernel.errors import ConfigError

MakeScene = Callable[..., Scene]

BEGUN_WITHIN_S = 1.0  # by then a thread has started, also on a busy machine


def quiet(_done: int, _total: int, _name: str) -> None:
    """Show nothing."""


def check(look: Callable[[Scene], Iterator[Finding]], within_s: float = 10) -> Check:
    return declare("home", look.__name__, "looks", "mends", within_s)(look)


def fine(_: Scene) -> Iterator[Finding]:
    yield ok("fine")


@pytest.mark.req("C5")
def test_a_check_that_raises_fails_by_its_class_and_the_others_run(make_scene: MakeScene) -> None:
    def broken(_: Scene) -> Iterator[Finding]:
        yield ok("one thing was fine")
        raise ValueError("glpat-a-secret-in-the-words")

    results = run(make_scene(), [check(broken), check(fine)], quiet)
    assert [result.finding.verdict for result in results] == [Verdict.OK, Verdict.FAIL, Verdict.OK]
    assert "ValueError" in results[1].finding.detail
    assert "secret" not in results[1].finding.detail


@pytest.mark.req("C5")
def test_a_check_that_hangs_is_left_and_what_it_had_found_counts(make_scene: MakeScene) -> None:
    over = threading.Event()

    def hanging(_: Scene) -> Iterator[Finding]:
        yield ok("one thing was fine")
        over.wait()

    try:
        results = run(make_scene(), [check(hanging, BEGUN_WITHIN_S), check(fine)], quiet)
    finally:
        over.set()
    assert [result.finding.verdict for result in results] == [Verdict.OK, Verdict.UNKNOWN, Verdict.OK]


@pytest.mark.req("C5")
def test_it_is_told_which_check_runs_and_how_many_are_done(make_scene: MakeScene) -> None:
    told: list[tuple[int, int, str]] = []

    def slow(_: Scene) -> Iterator[Finding]:
        assert told[-1][2] == "slow"
        yield ok("at last")

    results = run(make_scene(), [check(fine), check(slow)], lambda *words: told.append(words))
    assert told == [(0, 2, "fine"), (1, 2, "slow")]
    assert [result.finding.verdict for result in results] == [Verdict.OK, Verdict.OK]


@pytest.mark.req("C5")
def test_the_same_checks_judge_what_was_mended(make_scene: MakeScene) -> None:
    state = {"is_broken": True}

    def lying(_: Scene) -> Iterator[Finding]:
        yield warn("broken", "mend it", repairs=[Repair("mended", lambda: None)])

    def mendable(_: Scene) -> Iterator[Finding]:
        if state["is_broken"]:
            yield warn("broken", "mend it", repairs=[Repair("mended", lambda: state.update(is_broken=False))])
        else:
            yield ok("sound")

    report = run_and_fix(make_scene, (check(lying), check(mendable)), quiet)
    assert [result.finding.verdict for result in report.results] == [Verdict.WARN, Verdict.OK]
    assert len(report.fixed) == 2
    assert not report.ok


@pytest.mark.req("C5")
def test_a_repair_that_fails_is_told_and_the_others_are_tried(make_scene: MakeScene) -> None:
    def refuse() -> None:
        raise ConfigError("no")

    done: list[int] = []

    def two(_: Scene) -> Iterator[Finding]:
        yield warn("broken", "mend it", repairs=[Repair("a", refuse), Repair("b", lambda: done.append(1))])

    report = run_and_fix(make_scene, (check(two),), quiet)
    assert [one.error for one in report.fixed] == ["config_invalid: no", None]
    assert (done, report.ok) == ([1], False)


def test_an_error_is_explained_without_the_words_of_strangers() -> None:
    assert explain(ConfigError("ours")) == "config_invalid: ours"
    assert explain(PermissionError(13, os.strerror(13), "/some/file")) == "PermissionError: Permission denied"
    assert explain(KeyError("theirs")) == "KeyError"


def test_every_check_says_what_it_is_for_and_how_it_is_mended() -> None:
    assert len({one.name for one in ALL}) == len(ALL)
    assert all(one.looks_at.endswith(".") and one.remedy.endswith(".") for one in ALL)
