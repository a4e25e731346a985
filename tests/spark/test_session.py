"""The session that the pipeline stands on: what it computes, where it listens, how it fails and how it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claudemesh.runtime.patience import wait_until

WITHIN_S = 900  # niced, beside everything else, on a slow machine

# In a process of its own, which has room for one session.
START = """
import sys
from pathlib import Path
from claudemesh.kernel.errors import NoSpark
from claudemesh.pipeline.session import build, stop
try:
    session = build(sys.argv[1], scratch=Path(sys.argv[2]), name="test", conf=dict([sys.argv[3].split("=")]))
except NoSpark as error:
    sys.exit(str(error))
try:
    print("ready", flush=True)
    session.range(10**15).selectExpr("sum(hash(id))").collect()
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    stop(session)
"""


def test_what_is_written_as_parquet_is_read_and_summed_by_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "deliveries.parquet")
    rows = [("orders", 1), ("orders", 2), ("alerts", 40)]
    spark.createDataFrame(rows, "topic string, copies long").write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("deliveries")
    summed = spark.sql("SELECT topic, sum(copies) AS copies FROM deliveries GROUP BY topic ORDER BY topic")
    assert [tuple(row) for row in summed.collect()] == [("alerts", 40), ("orders", 3)]


def test_the_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.parametrize(
    ("master", "setting", "why"),
    [
        ("local[1]", "spark.driver.memory=9999999g", "heap"),  # said by a JVM that does not start
        ("local[x]", "spark.ui.enabled=false", "local[x]"),  # said by Spark in one that did
    ],
)
def test_what_does_not_start_says_why_in_one_line(tmp_path: Path, master: str, setting: str, why: str) -> None:
    command = [sys.executable, "-c", START, master, str(tmp_path / "scratch"), setting]
    beside = {**os.environ, "JAVA_TOOL_OPTIONS": "-Dof.no=matter"}  # of which a JVM says that it heard them
    ran = subprocess.run(command, env=beside, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert why in line
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_interrupt_ends_a_job_and_its_jvm_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, "local[1]", str(tmp_path), "spark.ui.enabled=false"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, said, wrong) == (0, "interrupted\n", "")
    assert list(tmp_path.iterdir()) == []


# --- an interrupt while it starts -----------------------------------------------------------------------

# Whoever does not press Ctrl-C again waits for the JVM for longer than a test does.
BEGIN = """
import sys
from pathlib import Path
from claudemesh.pipeline import session
session.END_S = 10_000
built = None
try:
    built = session.build("local[1]", scratch=Path(sys.argv[1]), name="test", conf={"spark.ui.enabled": "false"})
    sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    if built is not None:
        session.stop(built)
"""


OF_THE_JVM = "--add-opens="  # an option that only the command of the JVM itself has


def started(scratch: Path) -> dict[int, str]:
    """Return what a start in this directory has begun: all of it has the directory among its words."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = (path / "cmdline").read_bytes().decode().split("\0")
            if any(f"={scratch}/" in word for word in words):
                found[int(path.name)] = " ".join(words)
    return found


def has_a(word: str) -> Callable[[Path], bool]:
    return lambda scratch: any(word in line for line in started(scratch).values())


def has_file(pattern: str) -> Callable[[Path], bool]:
    return lambda scratch: any(scratch.glob(pattern))


# Each stays true until the end, so that none is missed on a machine that is busy.
INSTANTS = {
    "its directory is made": has_file("spark-*"),
    "its log is opened": has_file("spark-*/jvm.log"),
    "the JVM begins": has_a(OF_THE_JVM),
    "the JVM listens": has_file("spark-*/gateway"),
    "the context begins": has_file("spark-*/blockmgr-*"),
    "the context has a directory": has_file("spark-*/spark-*/pyspark-*"),
}


@contextmanager
def beginning(scratch: Path) -> Iterator["subprocess.Popen[str]"]:
    """Have a process that starts a session; nothing of it is left behind, whatever is wrong with it."""
    command = [sys.executable, "-c", BEGIN, str(scratch)]
    try:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, text=True, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        for pid in started(scratch):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("instant", INSTANTS.values(), ids=INSTANTS)
def test_an_interrupt_of_a_start_leaves_neither_a_jvm_nor_a_directory(
    tmp_path: Path, instant: Callable[[Path], bool]
) -> None:
    with beginning(tmp_path) as process:
        assert wait_until(lambda: instant(tmp_path), WITHIN_S)
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, said, wrong) == (0, "interrupted\n", "")
        assert started(tmp_path) == {}
        assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_ends_a_jvm_that_does_not_answer_at_once(tmp_path: Path) -> None:
    with beginning(tmp_path) as process:
        assert wait_until(lambda: has_a(OF_THE_JVM)(tmp_path), WITHIN_S)
        [jvm] = [pid for pid, line in started(tmp_path).items() if OF_THE_JVM in line]
        os.kill(jvm, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        assert wait_until(lambda: is_asked_to_end(jvm), WITHIN_S)
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, said, wrong) == (0, "interrupted\n", "")
        assert started(tmp_path) == {}
        assert list(tmp_path.iterdir()) == []


def is_asked_to_end(pid: int) -> bool:
    """Say whether a process that was stopped will find a SIGTERM."""
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(lines["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1)
