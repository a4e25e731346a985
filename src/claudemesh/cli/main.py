"""The entry point: which commands there are, and how every run ends.

Commands live in one file a noun and are loaded when they are called, since a `send` should cost what a send costs.
An error is one line on standard error; with `--json` it is also the one document on standard output, so that
`code`, `conflict` and the rest can be read where an answer is read, and the exit code tells which of them it is.
"""

import errno
import os
import sys
from collections.abc import Sequence

import click

from claudemesh.cli.command import FAILED, INTERRUPTED, WRONG_USAGE, Group, Program, Session, exit_code
from claudemesh.cli.render import escape, render_json
from claudemesh.kernel.errors import ConfigError, InvalidRequest, MeshError
from claudemesh.wire import problem

COMMANDS = {
    "up": "up:up",
    "broker": "broker:broker",
    "mesh": "mesh:mesh",
    "member": "member:member",
    "daemon": "daemon:daemon",
    "send": "messages:send",
    "inbox": "messages:inbox",
    "topic": "topic:topic",
    "queue": "queue:queue",
    "peer": "peer:peer",
    "trace": "messages:trace",
    "ledger": "ledger:ledger",
    "pipeline": "pipeline:pipeline",
    "config": "config:config",
    "completions": "completions:completions",
}


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only here

        found = version("claudemesh")
        context.ensure_object(Session).out.document({"version": found}, [f"claudemesh {found}"])
        context.exit()


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, callback=_print_version, help="Print the version.")
def root() -> None:
    """Durable, idempotent messages and work between agents and services on many machines."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run(root, "claudemesh", arguments)


def run(command: click.Command, program: Program, arguments: Sequence[str] | None) -> int:
    """Run one command of a program, and return how it ended."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a letter gets its number, not a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    session = Session(program)
    try:
        result = command.main(words, prog_name=program, standalone_mode=False, obj=session)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or closing it would fail once more
        return FAILED
    except (MeshError, OSError) as error:
        failure = error if isinstance(error, MeshError) else _system(error)
        return _fail(session, failure, exit_code(failure))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG_USAGE
    except click.ClickException as error:
        session.as_json = session.as_json or "--json" in _options(words)
        return _fail(session, InvalidRequest(_usage(error)), WRONG_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _fail(session: Session, error: MeshError, code: int) -> int:
    """Say what went wrong: to a person on one line, and with --json to a program."""
    if session.as_json:
        session.out.write([render_json(problem.render(error))])
    detail = f": {error.detail}" if error.detail else ""
    named = "".join(f" {name}={value}" for name, value in error.extras.items() if name in _WORTH_SAYING)
    sys.stderr.write(f"{session.program}: {escape(error.title + detail)} [{escape(error.code + named)}]\n")
    return code


_WORTH_SAYING = ("conflict", "fingerprint_prefix", "reason", "client_message_id", "broker_message_id", "bytes_max")


# What is wrong with a place, and not with us: not there, read-only, somebody else's, in the way.
_OF_THE_PLACE = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
)


def _system(error: OSError) -> MeshError:
    if not error.filename:
        return MeshError(str(error.strerror or error))
    kind = ConfigError if error.errno in _OF_THE_PLACE else MeshError
    return kind(f"{error.filename}: {error.strerror}")


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    return f"{' '.join(error.format_message().split()).rstrip('.')}{hint}"  # click breaks some into lines


def _options(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


if __name__ == "__main__":
    sys.exit(main())
