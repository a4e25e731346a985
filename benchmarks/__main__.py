"""Measure what is built so far: `make bench`, or `python -m benchmarks [SCALE] [NAME…]`.

Every figure of ours stands beside a floor or a peer of the same run, because the same machine is not the same from
one minute to the next: compare ratios of one run, never rates of two.
"""

import platform
import sys

import apsw

from benchmarks import (
    broker,
    canonical,
    daemon,
    engine,
    flat,
    hook,
    ledger,
    limiter,
    mesh,
    peers,
    postgres,
    presence,
    relay,
)
from benchmarks.pipeline import compare, ingest

SUITES = {
    "engine": engine.run,
    "canonical": canonical.run,
    "daemon": daemon.run,
    "broker": broker.run,
    "hook": hook.run,
    "ledger": ledger.run,
    "limiter": limiter.run,
    "mesh": mesh.run,
    "peers": peers.run,
    "postgres": postgres.run,
    "presence": presence.run,
    "relay": relay.run,
}
ON_REQUEST = {"flat": flat.run, "pipeline": compare.run, "ingest": ingest.run}  # they take many minutes


def main(arguments: list[str]) -> None:
    scale = float(arguments[0]) if arguments else 1.0
    print(f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()}")
    for name in arguments[1:] or SUITES:
        print(f"\n--- {name}")
        (SUITES | ON_REQUEST)[name](scale)


if __name__ == "__main__":
    main(sys.argv[1:])
