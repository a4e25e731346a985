"""A broker or a daemon in a process of its own, which kills itself where it is told to.

    python -m tests.chaos.node broker FOLDER HOST:PORT [STORE] [behind=HOST:PORT] [POINT:COUNT]
    python -m tests.chaos.node daemon STATE_DIR [POINT:COUNT]

It prints `ready WHERE` when it answers. Of the environment it goes by LEASE_TTL_MS, PING_INTERVAL_MS and
STALE_PONG_THRESHOLD_MS as the command line does; by BROKER_LEASE_MS, after which a broker that does not beat is
taken for dead; and by WALL_FILE: eight bytes that say by how many ms its wall clock is off, now.
"""

import mmap
import os
import sys
from pathlib import Path

from claudemesh.broker import app as broker_app
from claudemesh.broker import policy, seating, upkeep
from claudemesh.broker.settings import BrokerSettings, Limits, Presence
from claudemesh.broker.stores.postgres import brokers
from claudemesh.daemon import app as daemon_app
from claudemesh.daemon.settings import DaemonSettings
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import read_timings
from tests.chaos.victim import arm

BEATS_A_LEASE = 3


def say_ready(where: object) -> None:
    print(f"ready {where}", flush=True)  # noqa: T201  that is how the test knows


def shift_wall_clock(path: str) -> None:
    """Have the wall clock jump whenever somebody writes so; the monotonic one goes on."""
    with open(path, "rb") as file:  # noqa: PTH123  mapped: a jump is there at once
        offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    right = SystemClock.wall_ms

    def wall_ms(clock: SystemClock) -> int:
        return right(clock) + int.from_bytes(offset[:8], "little", signed=True)

    SystemClock.wall_ms = wall_ms  # type: ignore[assignment,method-assign]


def beat_faster(lease_ms: int) -> None:
    for module in (policy, brokers, seating):
        module.BROKER_LEASE_MS = lease_ms  # type: ignore[attr-defined]
    upkeep.BEAT_EVERY_S = lease_ms / 1000 / BEATS_A_LEASE  # type: ignore[misc]


def main(kind: str, place: str, *rest: str) -> int:
    points = [word for word in rest if word.partition(":")[0].count(".") == 1]  # `daemon.before_ack:3`
    if points:
        arm(points[0])
    if "WALL_FILE" in os.environ:
        shift_wall_clock(os.environ["WALL_FILE"])
    if "BROKER_LEASE_MS" in os.environ:
        beat_faster(int(os.environ["BROKER_LEASE_MS"]))
    read = read_timings()
    timings = {name: getattr(read, name) for name in ("lease_ttl_ms", "ping_interval_ms", "stale_pong_ms")}
    if kind == "daemon":
        return daemon_app.run(DaemonSettings(state_dir=Path(place), tcp=False, **timings), say_ready)
    # Without a budget to wait for: between two kills more is sent than a window takes.
    limits = Limits(sends_per_window=1_000_000)
    store = next((word for word in rest if word.startswith("postgresql:")), f"sqlite:///{place}/broker.db")
    fronts = [word.removeprefix("behind=") for word in rest if word.startswith("behind=")]
    settings = BrokerSettings(
        store=store,
        listen=rest[0],
        limits=limits,
        presence=Presence(**timings),
        public_hosts=fronts,
        admin_token_file=f"{place}/admin-token" if fronts else None,
    )
    return broker_app.run(settings, say_ready, log_to_stderr=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
