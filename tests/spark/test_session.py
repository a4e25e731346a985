"""The session that the pipeline stands on: what it computes, where it listens, how it fails and how it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
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
