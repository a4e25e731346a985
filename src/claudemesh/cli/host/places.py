"""Where an agent host looks: which file holds which part, for a user or for a project, and which program is ours.

For a user the program is named by its whole path, since a host with windows has another PATH than a shell. A
project's files are shared by many machines, so there it is a bare name, and no home of one machine is written.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from claudemesh.cli.host.declared import HOME_VARIABLE, NAME, Wanted
from claudemesh.cli.host.plan import Part
from claudemesh.kernel.errors import ConfigError

Scope = Literal["user", "project"]
SCOPES: Final[tuple[Scope, ...]] = ("user", "project")

_MARKS: Final = (".git", ".hg", ".jj")  # where a project begins


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one scope. Below `root` nothing is followed that leads elsewhere, unless it is asked for."""

    scope: Scope
    root: Path
    files: Mapping[Part, Path]


def user_place(environment: Mapping[str, str]) -> Place:
    """Return where Claude Code keeps what is a user's: CLAUDE_CONFIG_DIR, or ~/.claude and ~/.claude.json."""
    chosen = environment.get("CLAUDE_CONFIG_DIR")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where this returns its argument
    if not chosen and not os.path.isabs(home):  # noqa: PTH117 - as above
        raise ConfigError("nobody knows where your home directory is: set HOME")
    root = Path(os.path.abspath(chosen)) if chosen else Path(home)  # noqa: PTH100 - follows no link
    folder = root if chosen else root / ".claude"
    return Place(
        "user",
        root,
        {
            "server": root / ".claude.json",
            "hooks": folder / "settings.json",
            "skill": folder / "skills" / NAME / "SKILL.md",
        },
    )


def project_place(folder: Path) -> Place:
    """Return the files of the project that a folder is in: at the nearest root of a repository, else there."""
    start = Path(os.path.abspath(folder))  # noqa: PTH100 - follows no link
    marked = (at for at in (start, *start.parents) if any((at / mark).exists() for mark in _MARKS))
    root = next(marked, start)
    return Place(
        "project",
        root,
        {
            "server": root / ".mcp.json",
            "hooks": root / ".claude" / "settings.json",
            "skill": root / ".claude" / "skills" / NAME / "SKILL.md",
            "agents": root / "AGENTS.md",
        },
    )


def is_users(project: Place, environment: Mapping[str, str]) -> bool:
    """Say whether a file of a project is one of the user's too, as where their home is the root of a repository."""
    try:
        user = user_place(environment)
    except ConfigError:  # who has no place shares none
        return False
    theirs = {os.path.realpath(path) for path in user.files.values()}
    return any(os.path.realpath(path) in theirs for path in project.files.values())


def derive_wanted(scope: Scope, environment: Mapping[str, str], mesh: str | None = None) -> Wanted:
    if scope == "project":
        return Wanted(NAME, mesh, None, is_same_program)
    home = environment.get(HOME_VARIABLE)
    absolute = os.path.abspath(os.path.expanduser(home)) if home else None  # noqa: PTH100, PTH111 - as in runtime.home
    usual = os.path.abspath(os.path.expanduser("~/.claudemesh"))  # noqa: PTH100, PTH111 - as above
    return Wanted(find_program(), mesh, None if absolute == usual else absolute, is_same_program)


def judge_texts(wanted: Wanted) -> None:
    """Refuse a path that cannot be named in a host's files: they are UTF-8, and a path may be any bytes."""
    for what, path in (("CLAUDEMESH_HOME", wanted.home), ("the program's path", wanted.program)):
        shown = os.fsencode(path or "").decode("utf-8", "backslashreplace")
        if shown != (path or ""):
            raise ConfigError(
                f"{what} is not UTF-8, and a host's files are: {shown}. Choose another. Nothing was written"
            )


def find_program() -> str:
    """Return the path of this very program, links and all: what an upgrade replaces is where the link leads."""
    called = sys.argv[0] if sys.argv else ""
    beside = os.path.join(os.path.dirname(sys.executable), NAME)  # noqa: PTH118, PTH120 - as text
    if os.path.basename(called) == NAME and os.sep in called and os.access(called, os.X_OK):  # noqa: PTH119 - as above
        return os.path.abspath(called)  # noqa: PTH100 - as above
    found = beside if os.access(beside, os.X_OK) else shutil.which(NAME)
    if found is None:
        raise ConfigError("there is no program `claudemesh` beside this Python or on the PATH: install the package")
    return os.path.abspath(found)  # noqa: PTH100 - as above


def is_same_program(one: str, other: str) -> bool:
    """Say whether two names start the same file, here and now."""
    return one == other or (_resolve(one) is not None and _resolve(one) == _resolve(other))


def _resolve(program: str) -> str | None:
    found = shutil.which(program)
    return None if found is None else os.path.realpath(found)
