"""A command at a lake: which cut it takes, what that has to know of and hold, and what its jobs are told."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException

from claudemesh.kernel.errors import ConfigError, DependencyError, IntegrityError, InvalidRequest
from claudemesh.pipeline import place, session, work
from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut
from claudemesh.pipeline.progress import Progress
from claudemesh.pipeline.work import Asked, Work, working
from tests.doubles import ManualClock
from tests.unit.pipeline.test_metrics import SOURCE


def work_in(home: Path, asked: Asked) -> Work:
    clock = ManualClock()
    return Work(home, asked, clock, Progress(io.StringIO(), clock))


def cut_of(**changed: object) -> Cut:
    source = replace(SOURCE, **{"version": BROKER.version, **changed})
    return Cut(number=1, at_ms=1_000, sources={"one": source}, read=["one"])


@pytest.mark.req("S3")
def test_a_cut_of_now_knows_all_answers_and_an_older_one_those_before_it(tmp_path: Path) -> None:
    # With nothing new the cut is an old one, and still all that the stores have now.
    assert work_in(tmp_path, Asked()).until_ms(cut_of()) == ManualClock().wall_ms()
    assert work_in(tmp_path, Asked(cut=1)).until_ms(cut_of()) == 1_000


@pytest.mark.req("S2")
def test_jobs_are_told_what_the_command_was(tmp_path: Path) -> None:
    asked = Asked(since=5, retention_days=30, window_s=10, sends_per_window=7)
    told = work_in(tmp_path, asked).params()
    assert told == Params(ManualClock().wall_ms(), since_ms=5, retention_days=30, window_s=10, sends_per_window=7)


@pytest.mark.req("S2")
@pytest.mark.parametrize(("asked", "looked_ms"), [(Asked(), ManualClock().wall_ms()), (Asked(cut=1), 1_000)])
def test_jobs_are_told_when_the_stores_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked, looked_ms: int
) -> None:
    monkeypatch.setattr(place, "check_whole", lambda *_: None)
    monkeypatch.setattr(session, "suit", lambda *_: None)
    monkeypatch.setattr(Work, "spark", lambda _: None)
    with work_in(tmp_path, asked).run(cut_of()) as given:
        assert given.params.looked_ms == looked_ms


# --- an older cut ----------------------------------------------------------------------------------------


@pytest.mark.req("S4")
def test_an_older_cut_is_taken_as_it_is(tmp_path: Path) -> None:
    asked = work_in(tmp_path, Asked(cut=1))
    asked.lake.publish(cut_of())
    assert asked.bring() == cut_of()


@pytest.mark.req("S4")
@pytest.mark.parametrize("changed", [{"version": BROKER.version + 1}, {"kind": "later"}])
def test_a_cut_with_tables_of_another_version_is_refused_with_the_remedy(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    asked = work_in(tmp_path, Asked(cut=1))
    asked.lake.publish(cut_of(**changed))
    with pytest.raises(ConfigError, match="without --cut, or with the version that wrote it"):
        asked.bring()


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    "asked",
    [Asked(cut=1, store=("a.db",)), Asked(cut=1, full=True), Asked(cut=1, bodies=True), Asked(cut=1, bodies=False)],
)
def test_what_is_said_of_reading_stores_is_refused_beside_a_cut_that_reads_none(
    tmp_path: Path, asked: Asked
) -> None:
    asking = work_in(tmp_path, asked)
    asking.lake.publish(cut_of())
    with pytest.raises(InvalidRequest, match="--cut reads no store"):
        asking.bring()


@pytest.mark.req("S4")
def test_no_job_is_run_on_a_cut_of_which_something_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "spark", lambda _: None)
    monkeypatch.setattr(session, "suit", lambda _spark, _rows: None)
    with pytest.raises(IntegrityError, match="rows"), work_in(tmp_path, Asked()).run(cut_of()):
        pass


# --- how much there is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "brief"),
    [
        ({"broker.db": 600}, True),
        ({"broker.db": 1_000}, False),
        ({"broker.db": 600, "broker.db-wal": 600}, False),
        ({"broker.db": 600, "broker.db.backup": 5_000}, True),
    ],
    ids=["little", "much", "much in the log", "much of something else"],
)
def test_a_session_is_brief_if_the_stores_and_their_logs_are_small(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: dict[str, int],
    brief: bool,  # noqa: FBT001
) -> None:
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    built: list[bool] = []
    monkeypatch.setattr(work, "LITTLE_BYTES", 1_000)
    monkeypatch.setattr(session, "build", lambda _master, **said: built.append(said["brief"]))
    monkeypatch.setattr(Progress, "watch", lambda _progress, _spark: None)
    for store in ((), (f"{tmp_path}/broker.db",), (f"sqlite:///{tmp_path}/broker.db",)):
        work_in(tmp_path, Asked(store=store)).spark()
    assert built == [brief] * 3


def test_of_a_server_nobody_knows_how_much_it_holds(tmp_path: Path) -> None:
    assert not work_in(tmp_path, Asked(store=("postgresql://host/name",)))._is_little()


def test_what_goes_wrong_in_spark_is_told_in_a_line(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        pytest.raises(DependencyError, match="No space left"),
        working(tmp_path, Asked(), clock, Progress(io.StringIO(), clock)),
    ):
        raise PySparkException("No space left on device\nat org.apache.spark")
