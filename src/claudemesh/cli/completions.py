"""`completions`: the script that makes a shell complete the commands of all our programs, or of one."""

from typing import Final, get_args

import click

from claudemesh.cli.command import Command, Program, Session

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAMS: Final = get_args(Program)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--program", type=click.Choice(PROGRAMS), help="Only this one's. [default: all of them]")
@click.pass_obj
def completions(session: Session, shell: str, program: str | None) -> None:
    """Print the completion script of a SHELL, for example: eval "$(claudemesh completions bash)"."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only here

    from claudemesh.cli.main import root  # noqa: PLC0415 - it loads this file

    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"no completion is known for {shell}")
    programs = PROGRAMS if program is None else (program,)
    # The script has nothing of the commands: it asks the program itself, by a variable of this name.
    script = "\n".join(completion(root, {}, name, _variable(name)).source() for name in programs)
    session.out.document({"shell": shell, "programs": list(programs), "script": script}, [script])


def _variable(program: str) -> str:
    return f"_{program.upper().replace('-', '_')}_COMPLETE"
