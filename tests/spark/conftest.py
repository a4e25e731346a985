"""One Spark session for all tests here: starting one takes seconds, and a process has room for one JVM."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from claudemesh.pipeline.session import BRIEF, build, stop
from tests.services.server import throwaway_directory

SMALL = {**BRIEF, "spark.sql.shuffle.partitions": "1"}  # as is right for the handful of rows in a test


_running: list[SparkSession] = []  # also for a test that runs a test


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if _running:
        yield _running[0]
        return
    with throwaway_directory() as directory:
        session = build("local[2]", scratch=directory, name="claudemesh-tests", conf=SMALL)
        _running.append(session)
        yield session
        stop(session)
