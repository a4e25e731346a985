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
from claudemesh.cli.render import escape
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
    "top": "top.command:top",
    "doctor": "doctor.command:doctor",
    "install": "host.commands:install",
    "uninstall": "host.commands:uninstall",
    "hook": "host.hooked:hook",
    "mcp": "mcp:mcp",
    "dashboard": "dashboard:dashboard",
    "config": "config:config",
    "completions": "completions:completions",
}


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value and not context.resilient_parsing:  # which is a shell that asks what could come next
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only here

        found = version("claudemesh")
        session = context.ensure_object(Session)
        session.out.document({"version": found}, [f"{session.program} {found}"])
        context.exit()


VERSION = click.option(
    "--version", is_flag=True, expose_value=False, callback=_print_version, help="Print the version."
)


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
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
        if sys.stdout is not None:  # closed before we were started
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or closing it would fail once more
        return FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it was, whoever reads the output is told
        session.as_json = session.as_json or "--json" in _options(words)
        return _fail(session, error)
    return result if isinstance(result, int) else 0


def _fail(session: Session, raised: Exception) -> int:
    """Say what went wrong: to a person on one line, and with --json to a program. Return the exit code."""
    error, code = _judge(raised)
    session.out.problem(problem.render(error))
    detail = f": {error.detail}" if error.detail else ""
    named = "".join(f" {name}={value}" for name, value in error.extras.items() if name in _WORTH_SAYING)
    sys.stderr.write(f"{session.program}: {escape(error.title + detail)} [{escape(error.code + named)}]\n")
    return code


def _judge(raised: Exception) -> tuple[MeshError, int]:
    match raised:
        case MeshError():
            return raised, exit_code(raised)
        case OSError():
            error = _system(raised)
            return error, exit_code(error)
        case click.ClickException():
            return InvalidRequest(_usage(raised)), WRONG_USAGE
        case _:
            return _mistake(raised), FAILED


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


def _mistake(error: Exception) -> MeshError:
    """Show where it happened, for a report; a program is told that it was no fault of its own."""
    import traceback  # noqa: PLC0415 - not for what goes well

    traceback.print_exception(error)
    return MeshError(f"{type(error).__name__}: this should not happen, and where it did stands above")


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    return f"{' '.join(error.format_message().split()).rstrip('.')}{hint}"  # click breaks some into lines


def _options(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


if __name__ == "__main__":
    sys.exit(main())
