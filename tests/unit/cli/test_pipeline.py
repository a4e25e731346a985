"""`pipeline`: what is wrong is said in one line, before Spark is even loaded."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from claudemesh.pipeline import registry, runner
from claudemesh.pipeline.jobs.names import NAMES
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut
from claudemesh.pipeline.outputs import Result
from claudemesh.pipeline.stores import find_stores, open_stores
from claudemesh.pipeline.work import Work
from claudemesh.runtime.home import Home, InstanceLock
from tests.unit.cli.conftest import Run
from tests.unit.pipeline.test_metrics import CUT, SOURCE

WITHIN_S = 60.0
TABLES = {"broker": "message_history", "outbox": "outbox", "inbox": "inbox", "ledger": "cassette_messages"}
TABLES |= {"hub": "hub_write", "relay": "envelope_event"}


def make_store(path: Path, table: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table} (id)")
    connection.close()
    return path


def in_a_process(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line where nothing is loaded yet, and say at the end whether Spark is."""
    code = (
        f"import sys\n{before}\nfrom claudemesh.cli.main import main\n"
        f"code = main({list(words)!r})\nprint('pyspark' in sys.modules, file=sys.stderr)\nsys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


@pytest.mark.req("S4")
def test_the_jobs_that_can_be_named_are_those_that_there_are() -> None:
    assert list(NAMES) == list(registry.JOBS)


@pytest.mark.req("S4")
def test_an_unknown_job_is_wrong_usage_and_the_jobs_are_named(run: Run) -> None:
    ran = run("pipeline", "run", "orphan", "--json")
    assert ran.code == 2
    assert ran.json["code"] == "invalid_request"
    assert all(name in ran.err for name in NAMES)


@pytest.mark.req("S4")
@pytest.mark.parametrize("verb", ["ingest", "run", "check", "report"])
def test_a_home_without_a_store_is_wrong_usage(run: Run, home: Home, verb: str) -> None:
    ran = run("pipeline", verb)
    assert ran.code == 2
    assert f"{home.root} holds no store" in ran.err
    assert not (home.root / "lake").exists()


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("place", "code"),
    [("nothing.db", 2), ("text.db", 1), ("other.db", 1), ("mysql://u:hidden@host/x", 2)],
    ids=["not there", "not a database", "of another program", "of another kind"],
)
def test_what_is_no_store_is_refused_and_nothing_is_made(run: Run, tmp_path: Path, place: str, code: int) -> None:
    (tmp_path / "text.db").write_text("not a database")
    make_store(tmp_path / "other.db", "something")
    where = place if "://" in place else str(tmp_path / place)
    ran = run("pipeline", "ingest", "--store", where, "--lake", str(tmp_path / "lake"))
    assert ran.code == code
    assert "store" in ran.err
    assert "hidden" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.req("S4")
def test_a_lake_that_somebody_writes_is_left_alone(run: Run, tmp_path: Path) -> None:
    store = make_store(tmp_path / "broker.db", TABLES["broker"])
    (tmp_path / "lake").mkdir()
    with InstanceLock(tmp_path / "lake" / "lock"):
        ran = run("pipeline", "ingest", "--store", str(store), "--lake", str(tmp_path / "lake"), "--json")
    assert ran.code == 1
    assert ran.json["code"] == "already_running"
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["lock"]


@pytest.mark.req("S4")
def test_a_lake_that_cannot_be_read_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    store = make_store(tmp_path / "broker.db", TABLES["broker"])
    cut = tmp_path / "lake" / "_cuts" / "1.json"
    cut.parent.mkdir(parents=True)
    cut.write_text("{half of a c")
    ran = run("pipeline", "run", "--store", str(store), "--lake", str(tmp_path / "lake"), "--json")
    assert ran.code == 1
    assert ran.json["code"] == "config_invalid"
    assert str(cut) in ran.err
    assert cut.read_text() == "{half of a c"


@pytest.mark.req("S4")
def test_a_cut_that_is_not_there_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    ran = run("pipeline", "run", "orphans", "--cut", "4", "--lake", str(tmp_path / "lake"))
    assert ran.code == 2
    assert "no cut 4" in ran.err


@pytest.mark.req("S4")
@pytest.mark.parametrize("verb", ["check", "report"])
def test_a_log_that_cannot_be_read_is_refused_before_a_store_is_looked_at(
    run: Run, home: Home, tmp_path: Path, verb: str
) -> None:
    make_store(home.root / "broker.db", TABLES["broker"])
    (tmp_path / "log").write_text("nonsense\n")
    ran = run("pipeline", verb, "--history", str(tmp_path / "log"))
    assert ran.code == 2
    assert "log, line 1" in ran.err
    assert not (home.root / "lake").exists()


@pytest.mark.req("S4")
def test_a_log_is_not_held_against_stores_without_a_brokers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was acknowledged would look lost."""
    inbox = msgspec.structs.replace(SOURCE, kind="inbox")
    monkeypatch.setattr(Work, "bring", lambda _: Cut(number=1, at_ms=0, sources={"one": inbox}, read=["one"]))
    (tmp_path / "log").write_text("")
    ran = run("pipeline", "check", "--history", str(tmp_path / "log"))
    assert ran.code == 2
    assert "the broker's store" in ran.err


@pytest.mark.req("S4")
@pytest.mark.parametrize("option", ["--html", "--out"])
def test_a_report_is_not_begun_for_a_directory_that_is_not_there(run: Run, tmp_path: Path, option: str) -> None:
    ran = run("pipeline", "report", option, str(tmp_path / "typo" / "file"))
    assert ran.code == 2
    assert "no such directory" in ran.err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--since", "yesterday"), ("--retention-days", "0"), ("--window-s", "0"), ("--sends-per-window", "many")],
)
def test_a_value_that_is_none_is_wrong_usage(run: Run, option: str, value: str) -> None:
    assert run("pipeline", "run", option, value).code == 2


@pytest.fixture
def told(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[Params]:
    """Let a run end where Spark would begin, with what its jobs would be told."""
    told: list[Params] = []

    @contextmanager
    def run_nothing(work: Work, _cut: Cut) -> Iterator[None]:
        told.append(work.params())
        yield

    home.ensure_dir(home.root / "lake")
    monkeypatch.setattr(Work, "bring", lambda _: CUT)
    monkeypatch.setattr(Work, "run", run_nothing)
    monkeypatch.setattr(runner, "run_jobs", lambda _run, _jobs: [])
    return told


@pytest.mark.req("S4")
@pytest.mark.prints("claudemesh pipeline run")
def test_a_job_that_is_left_out_is_named_to_people_and_programs(run: Run, told: list[Params]) -> None:
    assert "--bodies" in run("pipeline", "run", "--json").json["left_out"]["search"]
    assert "search: left out: " in run("pipeline", "run").out
    assert told


@pytest.mark.req("S4")
def test_totals_that_are_not_the_stores_own_count_as_found(
    run: Run, home: Home, told: list[Params], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result("traffic", CUT.number, mismatches=["one: message_history: 3 here, 4 in the store"])
    monkeypatch.setattr(runner, "run_jobs", lambda _run, _jobs: [result])
    for words in (("run",), ("run", "traffic")):
        ran = run("pipeline", *words, "--json")
        assert (ran.code, ran.json["violations"]) == (1, 1)
    assert 'cm_pipeline_violations{job="traffic"} 1' in (home.root / "lake" / "metrics.prom").read_text()
    said = run("pipeline", "run", "traffic").out
    assert "3 here, 4 in the store" in said
    assert "no violations" not in said
    assert told


@pytest.mark.req("S4")
@pytest.mark.parametrize("words", [("--store", "x.db"), ("--full",), ("--bodies",), ("--no-bodies",)])
def test_an_older_cut_is_not_asked_of_stores(run: Run, words: tuple[str, ...]) -> None:
    ran = run("pipeline", "run", "orphans", "--cut", "1", *words)
    assert ran.code == 2
    assert "--cut reads no store" in ran.err


@pytest.mark.req("S2")
def test_what_only_the_broker_was_told_can_be_told_to_jobs(run: Run, told: list[Params]) -> None:
    assert run("pipeline", "run").code == 0
    words = ("--retention-days", "30", "--window-s", "10", "--sends-per-window", "7")
    assert run("pipeline", "run", *words).code == 0
    assert [(one.retention_days, one.window_s, one.sends_per_window) for one in told] == [
        (365, 60, 6_000),
        (30, 10, 7),
    ]


@pytest.mark.req("S4")
@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("report", "--cut", "1")])
def test_nothing_loads_spark_before_there_is_something_for_it_to_do(
    home: Home, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CLAUDEMESH_HOME", str(home.root))
    ran = in_a_process("pipeline", *words)
    assert ran.stderr.splitlines()[-1] == "False"


@pytest.mark.req("S4")
def test_without_the_extra_the_remedy_is_one_line(home: Home) -> None:
    make_store(home.root / "broker.db", TABLES["broker"])
    ran = in_a_process("pipeline", "ingest", before="sys.modules['pyarrow'] = None")
    assert ran.returncode == 1
    assert "pip install 'claudemesh[spark]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2  # this line, and what the test itself prints


def test_a_home_is_read_as_messages_pass(tmp_path: Path) -> None:
    for name in ("broker", "ledger", "hub"):
        make_store(tmp_path / f"{name}.db", TABLES[name])
    make_store(tmp_path / "edge" / "outbox.db", TABLES["relay"])
    for mesh in ("a", "b"):
        for name in ("inbox", "outbox"):
            make_store(tmp_path / "daemon" / mesh / f"{name}.db", TABLES[name])
    found = open_stores([*find_stores(tmp_path), f"sqlite:///{tmp_path}/broker.db"])
    daemons = ["outbox", "outbox", "broker", "inbox", "inbox"]
    assert [store.kind.name for store in found] == [*daemons, "ledger", "relay", "hub"]
