"""`claudemesh mcp` that kills itself where it is told to, and whose marks are free sooner.

python -m tests.chaos.mcp_node POINT:COUNT
"""

import sys

from claudemesh.cli.main import main as claudemesh
from claudemesh.mcp import keys
from tests.chaos.victim import arm

LEASE_MS = 1_000


def main(*points: str) -> None:
    keys.Keys.__init__.__defaults__ = (LEASE_MS,)  # type: ignore[misc]  as a dead process leaves its mark
    for point in points:
        arm(point)
    sys.argv = ["claudemesh", "mcp"]
    claudemesh()


if __name__ == "__main__":
    main(*sys.argv[1:])
