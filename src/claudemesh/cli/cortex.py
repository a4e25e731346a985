"""`cortex`: the ledger under the name that its first users know."""

import sys
from collections.abc import Sequence

import click

from claudemesh.cli.command import Group
from claudemesh.cli.main import VERSION, run


@click.group(
    cls=Group, lazy={"cassette": "ledger:cassette"}, context_settings={"help_option_names": ["-h", "--help"]}
)
@VERSION
def root() -> None:
    """Work that is claimed once, receipted once and provable for ever."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run(root, "cortex", arguments)


if __name__ == "__main__":
    sys.exit(main())
