"""`completions`: the script that makes a shell complete our commands."""

import click

from claudemesh.cli.command import Command, Session

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
def completions(session: Session, shell: str) -> None:
    """Print the completion script of a SHELL, for example: eval "$(claudemesh completions bash)"."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only here

    from claudemesh.cli.main import root  # noqa: PLC0415 - it loads this file

    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"no completion is known for {shell}")
    script = completion(root, {}, "claudemesh", "_CLAUDEMESH_COMPLETE").source()
    session.out.document({"shell": shell, "script": script}, [script])
