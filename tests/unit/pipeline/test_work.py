"""A command at a lake: how late an answer may be that its cut has to know of, and what its jobs are told."""

import io
from pathlib import Path

import pytest

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut
from claudemesh.pipeline.progress import Progress
from claudemesh.pipeline.work import Asked, Work
from tests.doubles import ManualClock


@pytest.mark.req("S3")
def test_a_cut_of_now_knows_all_answers_and_an_older_one_those_before_it(tmp_path: Path) -> None:
    clock = ManualClock()
    cut = Cut(number=1, at_ms=1_000, sources={}, read=[])

    def until_ms(asked: Asked) -> int:
        return Work(tmp_path, asked, clock, Progress(io.StringIO(), clock)).until_ms(cut)

    # With nothing new the cut is an old one, and still all that the stores have now.
    assert until_ms(Asked()) == clock.wall_ms()
    assert until_ms(Asked(cut=1)) == 1_000


@pytest.mark.req("S2")
def test_jobs_are_told_what_the_command_was(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(since=5, retention_days=30, window_s=10, sends_per_window=7)
    told = Work(tmp_path, asked, clock, Progress(io.StringIO(), clock)).params()
    assert told == Params(clock.wall_ms(), since_ms=5, retention_days=30, window_s=10, sends_per_window=7)
