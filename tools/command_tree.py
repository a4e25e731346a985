"""All commands of the four programs, by their words."""

from collections.abc import Iterator

import click

from claudemesh.cli.cortex import root as cortex
from claudemesh.cli.main import root as claudemesh
from claudemesh.cli.statehub.edge import edge
from claudemesh.cli.statehub.main import root as statehub

PROGRAMS: dict[str, click.Command] = {
    "claudemesh": claudemesh,
    "cortex": cortex,
    "statehub": statehub,
    "statehub-edge": edge,
}


def walk() -> Iterator[click.Context]:
    """Yield a context of every command and group, each group before what is in it."""
    for name, command in PROGRAMS.items():
        yield from _walk(click.Context(command, info_name=name))


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            if below is None:
                raise LookupError(f"{context.command_path} lists {name}, and has no such command")
            yield from _walk(click.Context(below, context, info_name=name))


def leaves() -> dict[str, click.Command]:
    """Return the commands that do something."""
    found = {context.command_path: context.command for context in walk()}
    return {path: command for path, command in found.items() if not isinstance(command, click.Group)}
