"""One Spark session for all tests here: starting one takes seconds, and a process has room for one JVM."""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.services.server import BOUND_S, throwaway_directory


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with throwaway_directory() as directory:
        session = (
            SparkSession.builder.master("local[2]")
            .appName("claudemesh-tests")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", str(directory))
            .config("spark.sql.shuffle.partitions", "2")  # the default, 200, is for data of another size
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        yield session
        session.stop()
        end_jvm()


def end_jvm() -> None:
    """Wait until it is gone: `stop` leaves it running, and pyspark only lets it notice that Python ended."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None  # whoever wants a session after this starts a JVM anew
    gateway.shutdown()
    gateway.proc.stdin.close()  # the sign to end
    gateway.proc.wait(BOUND_S)
