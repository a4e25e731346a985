"""Processes: daemons that run and answer, and what those that were killed left behind.

The lock decides who runs, never the number in its file. So what a free lock leaves behind, its number and its
socket, is provably nobody's, and is removed under that very lock.
"""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from claudemesh.cli.daemon import SUPERVISED
from claudemesh.cli.doctor.checks.broker import is_here, start_of
from claudemesh.cli.doctor.model import Finding, Repair, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.scene import ASK_S, Scene
from claudemesh.kernel.errors import ConfigError, MeshError
from claudemesh.runtime.home import InstanceLock, find_socket, lock_holder, read_private

_PEER: Final = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid


@declare(
    "processes",
    "daemon",
    "The daemon of each joined mesh runs, and answers.",
    "Start it: `claudemesh daemon up --mesh SLUG`. One that runs and does not answer: `claudemesh daemon "
    "restart --mesh SLUG`, "
    "and `claudemesh daemon logs` says what it was at.",
)
def daemon(scene: Scene) -> Iterator[Finding]:
    for slug in scene.meshes:
        pid, answer = scene.holder(slug), scene.answer(slug)
        if isinstance(answer, dict):
            yield ok(f"process {pid or 'unknown'} answers, up for {answer.get('uptime_s')} s", slug)
        elif pid is None:
            yield fail("it does not run", _start(scene, slug), slug)
        else:
            why = answer.code if isinstance(answer, MeshError) else answer.strerror
            fix = f"look at `claudemesh daemon logs --mesh {slug}`, then `claudemesh daemon restart --mesh {slug}`"
            yield fail(
                f"process {pid or 'unknown'} runs, and does not answer within {ASK_S:g} s ({why})", fix, slug
            )
    if not scene.meshes:
        yield absent("no mesh is joined")


def _start(scene: Scene, slug: str) -> str:
    """Say how it is started: with its broker by `up`, if that one is away too."""
    joined = scene.joined(slug) if slug == SUPERVISED else None
    if joined is not None and is_here(joined.broker_url) and scene.broker(joined.broker_url).step != "reached":
        return start_of(scene, joined.broker_url)
    return f"start it: `claudemesh daemon up --mesh {slug}`"


# --- locks ---------------------------------------------------------------------------------------------


def locks(scene: Scene) -> list[Path]:
    home = scene.home
    servers = [home.root / f"{name}.db.lock" for name in ("broker", "hub")]
    return [home.up_lock, *servers, home.edge_dir / "pid", *(home.mesh_dir(slug) / "pid" for slug in scene.meshes)]


@declare(
    "processes",
    "locks",
    "No lock file names a process that is gone.",
    "`claudemesh doctor --fix` empties them. They keep nobody from starting: the lock counts, and not the "
    "number in its file.",
)
def stale_locks(scene: Scene) -> Iterator[Finding]:
    stale, held = [], 0
    for path in locks(scene):
        try:
            holder = lock_holder(path)
            number = b"" if holder is not None else read_private(path).strip()
        except FileNotFoundError:
            continue
        except ConfigError as error:
            yield fail(error.detail, f"look at it: `ls -l {path}`")
            continue
        except OSError as error:
            yield fail(f"{path} cannot be read: {error.strerror}", f"look at it: `ls -l {path}`")
            continue
        held += holder is not None
        if number:
            stale.append(path)
    if stale:
        names = ", ".join(str(path.relative_to(scene.home.root)) for path in stale)
        repairs = [Repair(f"emptied {path}", partial(_empty, path)) for path in stale]
        yield warn(f"of processes that are gone: {names}", "empty them: `claudemesh doctor --fix`", repairs=repairs)
    else:
        yield ok(f"{held} held, none of a process that is gone")


def _empty(lock: Path) -> None:
    with InstanceLock(lock):  # which refuses while somebody holds it, and empties the file when it is released
        pass


# --- sockets -------------------------------------------------------------------------------------------


@declare(
    "processes",
    "sockets",
    "Behind each socket is the process that holds the lock beside it; none was left by a process that is gone.",
    "`claudemesh doctor --fix` removes what a killed process left. If somebody else listens there: find it with "
    "`ss -xlp`, stop it, and `claudemesh daemon restart`.",
)
def sockets(scene: Scene) -> Iterator[Finding]:
    places = [(slug, scene.home.mesh_dir(slug)) for slug in scene.meshes]
    if scene.home.edge_dir.is_dir():
        places.append(("relay", scene.home.edge_dir))
    for subject, folder in places:
        yield _judge_socket(subject, folder)
    if not places:
        yield absent("there is no daemon and no relay")


def _judge_socket(subject: str, folder: Path) -> Finding:
    try:
        holder = lock_holder(folder / "pid")
        found = find_socket(folder / "sock")
    except ConfigError as error:
        return fail(error.detail, f"stop the daemon, and remove it: `rm {folder / 'sock'}`", subject)
    except OSError as error:
        return unknown(f"cannot be looked at: {error.strerror}", f"look at it: `ls -l {folder}`", subject)
    listener = None if found is None else _listener(found)
    remains = [path for path in (folder / "sock", folder / "http.port") if path.exists() or path.is_symlink()]
    if listener is None and holder is None and remains:
        named = ", ".join(path.name for path in remains)
        repair = Repair(f"removed {named} of {subject}", partial(_remove, folder, found, remains))
        return warn(
            f"left by a process that is gone: {named}", "remove it: `claudemesh doctor --fix`", subject, [repair]
        )
    if listener is not None and listener != holder:
        locked = f"process {holder} holds the lock" if holder else "nobody holds the lock"
        said = f"process {listener} listens there, and {locked}"
        return fail(said, f"find out what it is: `ps {listener}`; stop it, and start the daemon again", subject)
    return ok("nobody listens, and nothing is left" if listener is None else f"process {listener} listens", subject)


def _listener(path: Path) -> int | None:
    """Return the process that listens at a socket, or None if nobody does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ASK_S)
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return None
        pid, _, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(pid)


def _remove(folder: Path, found: Path | None, remains: list[Path]) -> None:
    """Remove a socket under the lock of whoever would make a new one; and only if still nobody listens."""
    with InstanceLock(folder / "pid"):
        if found is not None and _listener(found) is not None:
            raise ConfigError(f"somebody listens at {found} by now")
        if found is not None and found not in remains:  # the socket that a `sock` in words leads to
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(found.lstat().st_mode) and found.lstat().st_uid == os.geteuid():
                    found.unlink()
        for path in remains:
            path.unlink(missing_ok=True)


CHECKS: Final = (daemon, stale_locks, sockets)
