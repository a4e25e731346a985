"""What every command shares: `--json` and `--mesh` wherever they stand, lazy loading, and how a failure ends.

A command takes the `Session` and does one thing. It raises what goes wrong; `exit_code` is the one place that
decides what that means to a script:

    0 done    1 failed    2 wrong usage    3 the other side is unreachable    4 conflict
"""

import importlib
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click

from claudemesh.cli.render import Output
from claudemesh.kernel.errors import (
    CassetteInvalid,
    DependencyError,
    InvalidRequest,
    MeshError,
    NoDaemon,
    StoreFull,
    StoreUnavailable,
)
from claudemesh.runtime.home import Home, Surroundings, read_surroundings

if TYPE_CHECKING:  # loading a client is for the commands that ask a daemon
    from claudemesh.daemon.client import Client
    from claudemesh.runtime.progress import Waiting

Program: TypeAlias = Literal["claudemesh", "cortex", "statehub", "statehub-edge"]

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
UNREACHABLE: Final = 3
CONFLICT: Final = 4
INTERRUPTED: Final = 130  # as a shell says it of Ctrl-C

_CONFLICT_STATUS: Final = 409
_NO_MESH: Final = (
    "you have joined no mesh: `claudemesh up` runs one of your own, "
    "`claudemesh mesh join CODE --name PEER` joins one by invitation, `claudemesh mesh create` makes one"
)


def exit_code(error: MeshError) -> int:
    if _CONFLICT_STATUS in (error.status, error.extras.get("unknown_status")):
        return CONFLICT
    if isinstance(error, InvalidRequest | CassetteInvalid):
        return WRONG_USAGE
    # A store that is full or unsure did answer.
    has_answered = isinstance(error, StoreFull | StoreUnavailable)
    is_unreachable = isinstance(error, DependencyError | NoDaemon) and not has_answered
    return UNREACHABLE if is_unreachable else FAILED


class Session:
    """One run of the command line: what was asked of all commands alike, and what it leads to."""

    def __init__(self, program: Program = "claudemesh") -> None:
        self.program = program  # by which of its names we were called
        self.as_json = False
        self.mesh: str | None = None

    @cached_property
    def surroundings(self) -> Surroundings:
        return read_surroundings()

    @cached_property
    def home(self) -> Home:
        return Home.of(self.surroundings)

    @property
    def out(self) -> Output:
        return Output(as_json=self.as_json, no_color=self.surroundings.no_color, program=self.program)

    def waiting(
        self, what: str, total: int = 0, *, by_thread: bool = True, is_shared: bool = False
    ) -> "AbstractContextManager[Waiting]":
        """Show on a terminal that this is waited for, if it takes longer than a second.

        `is_shared`: others write to this terminal too, and nothing is drawn over.
        """
        from claudemesh.runtime.clock import SystemClock  # noqa: PLC0415 - not for what is quick
        from claudemesh.runtime.progress import Line, waiting  # noqa: PLC0415 - as above

        is_dumb = is_shared or self.surroundings.is_dumb
        line = Line(sys.stderr, SystemClock(), is_dumb=is_dumb, program=self.program)
        return waiting(line, what, total, by_thread=by_thread)

    @cached_property
    def slug(self) -> str:
        """The mesh that is meant: by flag, by CLAUDEMESH_MESH, or the only one."""
        joined = self.home.meshes()
        asked = self.mesh or self.surroundings.mesh
        if asked is not None:
            self.home.mesh_dir(asked)  # refuses what is no slug
            if asked not in joined:
                raise click.UsageError(
                    f"you have not joined a mesh {asked!r}; joined: {', '.join(joined) or 'none'}"
                )
            return asked
        if not joined:
            raise click.UsageError(_NO_MESH)
        if len(joined) > 1:
            raise click.UsageError(f"which mesh? Say --mesh with one of: {', '.join(joined)}")
        return joined[0]

    @property
    def state_dir(self) -> Path:
        return self.home.mesh_dir(self.slug)

    def client(self, timeout_s: float = 30.0) -> "Client":
        from claudemesh.daemon.client import Client  # noqa: PLC0415 - only for commands that ask a daemon
        from claudemesh.daemon.client.recording import open_recorder  # noqa: PLC0415 - as above

        sock, history = self.state_dir / "sock", self.surroundings.history
        return Client(sock, timeout_s, recorder=open_recorder(history, sock) if history else None)


# --- options that every command takes ----------------------------------------------------------------


def _note(name: str) -> Any:  # noqa: ANN401 - click's own type of a callback
    def note(context: click.Context, _: click.Parameter, value: Any) -> None:  # noqa: ANN401 - as above
        if value:
            setattr(context.find_object(Session), name, value)

    return note


def _shared() -> list[click.Parameter]:
    return [
        click.Option(
            ["--json"], is_flag=True, is_eager=True, expose_value=False, callback=_note("as_json"),
            help="One JSON document on standard output.",
        ),
        click.Option(
            ["--mesh"], metavar="SLUG", is_eager=True, expose_value=False, callback=_note("mesh"),
            help="Which mesh (or CLAUDEMESH_MESH; default: the only one joined).",
        ),
    ]  # fmt: skip


class Command(click.Command):
    """A command with the shared options, but for those whose names mean something else to it."""

    def __init__(self, *args: Any, **attributes: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(*args, **attributes)
        taken = {name for parameter in self.params for name in parameter.opts}
        self.params += [option for option in _shared() if not taken & set(option.opts)]


class Group(click.Group):
    """A group whose commands may be named by module and attribute, and are loaded when they are called."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **attributes)
        self.params += _shared()
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self._lazy.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = where.partition(":")
        found: click.Command = getattr(importlib.import_module(f"claudemesh.cli.{module}"), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

            near = get_close_matches(args[0], self._lazy, n=1)  # click itself knows only those that are loaded
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None


# --- kinds of values ---------------------------------------------------------------------------------

_PORT_MAX: Final = 65_535
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Read seconds, written as 30s, 500ms, 15m, 24h or 7d."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(text[len(number) :] or "s")
    if unit is None or not text.isascii() or not number.replace(".", "", 1).isdecimal() or not float(number):
        raise click.BadParameter(f"{text!r} is not a time such as 30s, 500ms, 15m, 24h or 7d")
    return float(number) * unit


def parse_listen(text: str) -> str:
    """Accept where to listen: HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:7450")
    return text
