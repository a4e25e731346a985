"""The home directory: whose it is, who can read it, what was left behind in it, and how much room there is."""

import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from claudemesh.cli.doctor.model import Finding, Repair, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.kernel.clock import HOUR_MS
from claudemesh.runtime.home import is_half_of_ours, is_half_written, is_ours

OTHERS: Final = 0o077
OTHERS_WRITE: Final = 0o022
ENTRIES_MAX: Final = 20_000
NAMED_MAX: Final = 3
LAKE: Final = "lake"  # the pipeline's: large, without secrets, and looked after by itself
LEFT_MS: Final = HOUR_MS  # what is being written is younger
ROOM_FAIL_BYTES: Final = 128 << 20
ROOM_WARN_BYTES: Final = 1 << 30

_SET_ASIDE: Final = re.compile(r".+\.corrupt-.+")


class Entry:
    """A file of ours and its status, without following it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.status = path.lstat()

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_open(self) -> bool:
        """Whether others could read or write it. Settings may be read, and the directory decides on links."""
        return not self.is_link and self.path.suffix != ".toml" and bool(self.status.st_mode & OTHERS)


def entries(root: Path) -> Iterator[Entry]:
    """Yield all that is ours below the home, but for what belongs to others and what comes and goes meanwhile."""
    waiting = [path for path in _listed(root) if is_ours(path) and path.name != LAKE]
    for _ in range(ENTRIES_MAX):
        if not waiting:
            return
        for entry in _there([waiting.pop()]):
            yield entry
            if entry.is_dir:
                waiting += _listed(entry.path)


def _there(paths: Iterable[Path]) -> Iterator[Entry]:
    """Yield those that are still there: others write and remove files meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield Entry(path)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # the check of the home, or of modes, says why


def _named(scene: Scene, found: list[Path]) -> str:
    names = [str(path.relative_to(scene.home.root)) for path in sorted(found)[:NAMED_MAX]]
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(names) + more


# --- the home itself -----------------------------------------------------------------------------------


@declare(
    "home",
    "home",
    "The home directory is there, is yours, and nobody else can write to it.",
    "`--fix` makes it and closes it; else name a directory of your own in `CLAUDEMESH_HOME`.",
)
def home(scene: Scene) -> Iterator[Finding]:
    root = scene.home.root
    try:
        status = root.stat()  # it may be its owner's link
    except (FileNotFoundError, NotADirectoryError):
        make = Repair(f"made {root}", scene.home.ensure)
        yield warn(
            f"{root} is not there yet", "`claudemesh up` makes it, and so does `doctor --fix`", repairs=[make]
        )
        return
    except OSError as error:
        yield fail(f"{root} cannot be looked at: {error.strerror}", "run as the user whose home it is")
        return
    yield _judge_home(root, status)


def _judge_home(root: Path, status: os.stat_result) -> Finding:
    if not stat.S_ISDIR(status.st_mode):
        return fail(f"{root} is not a directory", f"move it away: `mv {root} {root}.old`")
    if status.st_uid != os.geteuid():
        return fail(f"{root} belongs to user {status.st_uid}", "name a directory of your own in CLAUDEMESH_HOME")
    if status.st_mode & stat.S_ISVTX:
        return fail(f"{root} is for all users", "name a directory of your own in CLAUDEMESH_HOME")
    if status.st_mode & OTHERS_WRITE:
        return fail(f"others can write to {root}", f"`chmod 700 {root}`", repairs=[_close(root, 0o700)])
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return fail(f"{root} cannot be written to", f"`chmod 700 {root}`; or its file system is read-only")
    return ok(f"{root} is yours alone" if not status.st_mode & OTHERS else f"{root} is yours, and others may look")


def _close(path: Path, mode: int) -> Repair:
    return Repair(f"chmod {mode:o} {path}", partial(_chmod, path, mode))


def _chmod(path: Path, mode: int) -> None:
    """Close a path, and never what a link leads to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if stat.S_ISSOCK(path.lstat().st_mode):  # cannot be opened; its directory is ours alone
        path.chmod(mode)
        return
    descriptor = os.open(path, flags)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


# --- what is in it -------------------------------------------------------------------------------------


@declare(
    "home",
    "modes",
    "Directories are 0700 and files 0600: keys, tokens, databases, logs. Settings without a secret may be read.",
    "`claudemesh doctor --fix` closes them. A key that others could read is best replaced: `claudemesh "
    "daemon remint`.",
)
def modes(scene: Scene) -> Iterator[Finding]:
    found = [entry for entry in entries(scene.home.root) if entry.is_open]
    toml = scene.home.root / "broker.toml"
    key = next(file for file in scene.files if file.part == "broker").loaded.found.get("resume_token_key")
    if key is not None and key.source.kind == "file" and toml.lstat().st_mode & OTHERS:
        found.append(Entry(toml))
    if not found:
        yield ok("all that must be private is")
        return
    repairs = [
        _close(entry.path, 0o700 if entry.is_dir or entry.status.st_mode & stat.S_IXUSR else 0o600)
        for entry in found
        if entry.status.st_uid == os.geteuid()
    ]
    named = _named(scene, [entry.path for entry in found])
    yield fail(f"open to other users: {named}", "close them: `claudemesh doctor --fix`", repairs=repairs)


@declare(
    "home",
    "owners",
    "All that is kept in the home belongs to you.",
    'Give it back to its owner: `sudo chown -R "$USER" "$CLAUDEMESH_HOME"`; sudo made it so.',
)
def owners(scene: Scene) -> Iterator[Finding]:
    found = [entry.path for entry in entries(scene.home.root) if entry.status.st_uid != os.geteuid()]
    if found:
        fix = f'give it back: `sudo chown -R "$USER" {scene.home.root}`'
        yield fail(f"of another user: {_named(scene, found)}", fix)
    else:
        yield ok("all of it is yours")


@declare(
    "home",
    "links",
    "No file of ours is a symbolic link: a link would let somebody else choose what is read and written.",
    "Put the file itself there: `mv` it back to its place, or remove the link.",
)
def links(scene: Scene) -> Iterator[Finding]:
    found = [entry.path for entry in entries(scene.home.root) if entry.is_link]
    if found:
        fix = f"put the file itself there, or remove the link: `rm {found[0]}`"
        yield fail(f"symbolic links: {_named(scene, found)}", fix)
    else:
        yield ok("there are none")


@declare(
    "home",
    "leftovers",
    "No half-written file of a process that was killed, and no damaged database that was set aside.",
    "`claudemesh doctor --fix` removes half-written files. What was set aside is yours to look at and remove.",
)
def leftovers(scene: Scene) -> Iterator[Finding]:
    old_ns = (scene.clock.wall_ms() - LEFT_MS) * 1_000_000
    # The home's own half-written files begin with a dot, as none of ours does; others may have theirs beside them.
    own = _there(path for path in _listed(scene.home.root) if is_half_of_ours(path))
    found = [*entries(scene.home.root), *own]
    plain = [entry for entry in found if entry.is_file and entry.status.st_uid == os.geteuid()]
    half = [one.path for one in plain if is_half_written(one.path) and one.status.st_mtime_ns < old_ns]
    aside = [one.path for one in plain if _SET_ASIDE.fullmatch(one.path.name)]
    if half:
        repairs = [Repair(f"removed {path}", partial(path.unlink, missing_ok=True)) for path in half]
        yield warn(
            f"half-written: {_named(scene, half)}", "remove them: `claudemesh doctor --fix`", repairs=repairs
        )
    if aside:
        fix = f"look at what was set aside, and then remove it: `{shlex.join(['rm', *map(str, sorted(aside))])}`"
        yield warn(f"damaged and set aside: {_named(scene, aside)}", fix)
    if not half and not aside:
        yield ok("nothing was left behind")


# --- room ----------------------------------------------------------------------------------------------


@declare(
    "home",
    "disk",
    "The disk that holds the home has room left.",
    "Make room, or move the home to a larger disk. Nothing that was accepted is lost on a full disk; new "
    "sends are refused.",
)
def disk(scene: Scene) -> Iterator[Finding]:
    place = next((path for path in (scene.home.root, *scene.home.root.parents) if path.is_dir()), None)
    if place is None:
        yield unknown("there is no directory to measure", "set CLAUDEMESH_HOME to one that can be made")
        return
    free = shutil.disk_usage(place).free
    said = f"{free / (1 << 30):.1f} GiB are free"
    fix = f"make room on the disk of {place}: `df -h {place}`"
    if free < ROOM_FAIL_BYTES:
        yield fail(said, fix)
    elif free < ROOM_WARN_BYTES:
        yield warn(said, fix)
    else:
        yield ok(said)


@declare(
    "home",
    "mesh",
    "At least one mesh is joined, or this machine serves others.",
    "`claudemesh up` for a mesh of your own, or `claudemesh mesh join CODE --name PEER` with an invite.",
)
def mesh(scene: Scene) -> Iterator[Finding]:
    joined = scene.home.meshes()
    served = [name for name in ("broker.db", "broker.toml", "hub.db", "edge") if (scene.home.root / name).exists()]
    if joined:
        yield ok(f"joined: {', '.join(joined)}")
    elif served:
        yield absent(f"no mesh is joined; this home has {', '.join(served)}")
    else:
        yield warn("no mesh is joined", "make one with `claudemesh up`, or `claudemesh mesh join CODE --name PEER`")


CHECKS: Final = (home, modes, owners, links, leftovers, disk, mesh)
