"""A hub or a relay in a process of its own, to be killed.

    python -m tests.chaos.relay_nodes hub STORE HOST:PORT
    python -m tests.chaos.relay_nodes relay FOLDER HOST:PORT UPSTREAM

It prints `ready WHERE` when it answers.
"""

import sys
from pathlib import Path

from claudemesh.edge import app as edge_app
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub import app as hub_app
from claudemesh.hub.settings import HubSettings


def say_ready(where: object) -> None:
    print(f"ready {where}", flush=True)  # noqa: T201  that is how the test knows


def main(kind: str, place: str, listen: str, *rest: str) -> int:
    if kind == "hub":
        return hub_app.run(HubSettings(store=place, listen=listen), say_ready)
    settings = EdgeSettings(upstream=rest[0], listen=listen)
    return edge_app.run(settings, edge_app.Place(folder=Path(place)), say_ready)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
