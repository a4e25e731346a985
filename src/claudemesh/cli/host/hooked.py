"""`hook`, as the command line knows it. `entry` runs the same without loading any of the command line."""

import click

from claudemesh.cli.command import Command, Session
from claudemesh.cli.host.hook import main


@click.command(
    cls=Command,
    hidden=True,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def hook(session: Session, words: tuple[str, ...]) -> int:
    """Run by an agent host: session-start or prompt-submit. Says what waits, always as JSON, and never fails."""
    return main([*words, *(["--mesh", session.mesh] if session.mesh else [])])
