"""An ingest in a process of its own, killed with its JVM at a named point.

python -m tests.spark.driver LAKE STORE POINT FEW
"""

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from claudemesh.pipeline import copying
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.lake import Lake
from claudemesh.pipeline.session import BRIEF, build
from claudemesh.pipeline.stores import open_stores
from claudemesh.runtime import points


def die() -> None:
    gateway = SparkContext._gateway
    if gateway is not None:
        os.killpg(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main(lake: str, store: str, point: str, few: str) -> None:
    points.arm(point, die)
    copying.FEW = int(few)  # beyond it Spark's workers read
    place = Lake(Path(lake))

    def session() -> SparkSession:
        return build("local[2]", scratch=place.root / "_scratch", name="doomed", conf=BRIEF)

    Ingest(place, session, Wish(), print).run(open_stores([store]), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
