"""On a cluster of processes: a master and two workers of one core each, from the wheel, all on loopback."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyspark
import pytest
from pyspark.sql import SparkSession

from claudemesh.pipeline import frames
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.java import find_java, make_java_home
from claudemesh.pipeline.jobs.orphans import orphans
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Lake
from claudemesh.pipeline.session import BRIEF
from claudemesh.pipeline.sources.connection import connected
from claudemesh.pipeline.stores import open_stores
from tests.ports import own_port
from tests.services.postgres import Postgres, wheel
from tests.services.server import Server, running, throwaway_directory
from tests.spark.stores import KEYS, writing

SPARK_HOME = Path(pyspark.__file__).parent
QUICK_JAVA = BRIEF["spark.driver.defaultJavaOptions"]
DEFAULTS = f"""
spark.driver.defaultJavaOptions {QUICK_JAVA}
spark.executor.defaultJavaOptions {QUICK_JAVA}
"""
WITHIN_S = 900  # niced, beside everything else, on a slow machine


class Part(Server):
    """A process of the cluster, which says in its log when it is ready."""

    def __init__(self, directory: Path, java_home: Path, sign: str, *words: str) -> None:
        directory.mkdir()
        memory = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
        variables = {"JAVA_HOME": java_home, "SPARK_HOME": SPARK_HOME, **memory}
        settings = [f"{name}={value}" for name, value in variables.items()]
        super().__init__(directory, ["env", *settings, str(SPARK_HOME / "bin" / "spark-class"), *words])
        self._sign = sign

    def is_ready(self) -> bool:
        return self._sign in self._log.read_text(errors="replace")


@dataclass(frozen=True)
class Cluster:
    url: str
    workers: list[Path]  # a directory for each, in which it makes one for each run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with throwaway_directory() as folder, ExitStack() as parts:
        java_home = make_java_home(folder / "java", find_java(os.environ))
        at, port = ["--host", "127.0.0.1", "--webui-port", "0"], own_port()
        made = Cluster(f"spark://127.0.0.1:{port}", [folder / "one", folder / "two"])
        master = ["org.apache.spark.deploy.master.Master", *at, "--port", str(port)]
        parts.enter_context(running(Part(folder / "master", java_home, "New state: ALIVE", *master)))
        for directory in made.workers:
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory)]
            worker = ["org.apache.spark.deploy.worker.Worker", *at, *room, made.url]
            parts.enter_context(running(Part(directory, java_home, "Successfully registered", *worker)))
        yield made


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Make a Python with our dependencies and without us: what it runs of ours was shipped."""
    script = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    # Without `site` no link from there to the sources of a package is followed.
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script


def find_orphans(store: str, lake: Path, master: str, **variables: str) -> tuple[int, dict[str, Any]]:
    words = ["pipeline", "run", "orphans", "--store", store, "--lake", str(lake), "--master", master, "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "claudemesh.cli.main", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def rows_of(lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that was copied of the one store, in an order of its own."""
    cut = Lake(lake).latest()
    assert cut is not None
    [source] = cut.sources
    place = lake / "bronze" / source / f"g={cut.sources[source].generation}"
    files = {table: [str(file) for file in (place / table).glob("batch=*/*.parquet")] for table in KEYS}
    asked = "SELECT * FROM read_parquet($files, hive_partitioning = false) ORDER BY ALL"
    return {table: duckdb.execute(asked, {"files": found}).fetchall() for table, found in files.items() if found}


@pytest.mark.req("S6")
@pytest.mark.timeout(2 * WITHIN_S)  # a run and the start of the cluster
def test_a_cluster_copies_and_finds_what_one_machine_does(
    spark: SparkSession,
    cluster: Cluster,
    bare_python: Path,
    tmp_path: Path,
    postgres_servers: Callable[[str], Postgres],
) -> None:
    """Of a server, whose snapshot all workers read in with connections of their own."""
    store = postgres_servers(wheel().name).create_database("cluster")
    with writing(store) as writer:
        writer.say("fill 400")
    with connected("postgresql", store) as cursor:
        cursor.execute("DELETE FROM mesh.queue_lease WHERE history_id = 3")

    cut = Ingest(Lake(tmp_path / "here"), lambda: spark, Wish(), lambda _: None).run(open_stores([store]), 0)
    [source] = cut.sources
    found = orphans(frames.tables(spark, Lake(tmp_path / "here"), cut, source), Params(now_ms=0)).collect()
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    variables = {
        "PYSPARK_PYTHON": str(bare_python),
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    code, there = find_orphans(store, tmp_path / "there", cluster.url, **variables)

    assert code == 1
    assert there["items"] == [{**row.asDict(), "source": source} for row in found]
    assert [item["missing"] for item in there["items"]] == [["queue_lease"]]
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    assert [len(list(worker.glob("app-*/*/stdout"))) for worker in cluster.workers] == [1, 1]
