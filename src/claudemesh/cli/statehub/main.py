"""`statehub`: the hub, and what operators ask of it."""

import sys
from collections.abc import Sequence

import click

from claudemesh.cli.command import Group
from claudemesh.cli.main import VERSION, run

COMMANDS = {
    "serve": "statehub.hub:serve",
    "idempotency": "statehub.hub:idempotency",
    "outbox": "statehub.outbox:outbox",
    "drill": "statehub.drill:drill",
    "fix-consistency": "statehub.fix:fix_consistency",
}


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def root() -> None:
    """Progress, messages, decisions and tasks of many agents, written once however often they are sent."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run(root, "statehub", arguments)


if __name__ == "__main__":
    sys.exit(main())
