"""A broker or a daemon in a process of its own, which kills itself where it is told to.

    python -m tests.chaos.node broker FOLDER HOST:PORT [STORE] [behind=HOST:PORT] [POINT:COUNT]
    python -m tests.chaos.node daemon STATE_DIR [POINT:COUNT]

It prints `ready WHERE` when it answers.
"""

import sys
from pathlib import Path

from claudemesh.broker import app as broker_app
from claudemesh.broker.settings import BrokerSettings, Limits
from claudemesh.daemon import app as daemon_app
from claudemesh.daemon.settings import DaemonSettings
from tests.chaos.victim import arm


def say_ready(where: object) -> None:
    print(f"ready {where}", flush=True)  # noqa: T201  that is how the test knows


def main(kind: str, place: str, *rest: str) -> int:
    points = [word for word in rest if word.partition(":")[0].count(".") == 1]  # `daemon.before_ack:3`
    if points:
        arm(points[0])
    if kind == "daemon":
        return daemon_app.run(DaemonSettings(state_dir=Path(place), tcp=False), say_ready)
    # Without a budget to wait for: between two kills more is sent than a window takes.
    limits = Limits(sends_per_window=1_000_000)
    store = next((word for word in rest if word.startswith("postgresql:")), f"sqlite:///{place}/broker.db")
    fronts = [word.removeprefix("behind=") for word in rest if word.startswith("behind=")]
    settings = BrokerSettings(
        store=store,
        listen=rest[0],
        limits=limits,
        public_hosts=fronts,
        admin_token_file=f"{place}/admin-token" if fronts else None,
    )
    return broker_app.run(settings, say_ready, log_to_stderr=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
