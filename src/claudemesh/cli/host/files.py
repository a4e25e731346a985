"""Reading and writing files that belong to others: what is refused, and how what is written is there whole or not.

Refused, with nothing written: a link (its owner may say to follow it), a file of another user, one that its owner
made read-only, one of a group that its owner is not in, one with a second name that a replacement would part from
it, what is no plain file, what is not UTF-8 or larger than such files are, and one that changed since it was read.

A file is replaced by renaming a new one over it, in the same directory, with the same mode and group. Between the
last look and the rename lies a moment in which another program's change would be lost: hosts write some of these
files too, and there is no lock that both know.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from claudemesh.kernel.errors import HostFileRefused
from claudemesh.runtime import points
from claudemesh.runtime.home import sync_directory
from claudemesh.runtime.tokens import fresh_token

BYTES_MAX: Final = 64 << 20
WRITTEN: Final = points.declare("host.written")
CHECKED: Final = points.declare("host.checked")  # before a file is looked at for the last time

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Held:
    """A file as it was read; `data` is None if it is not there. `real` is where a link leads."""

    path: Path
    real: Path
    data: bytes | None
    mode: int  # that it has, or is to have
    group: int | None = None  # that it has

    @property
    def text(self) -> str | None:
        if self.data is None:
            return None
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise refused(self.path, "it is not UTF-8", "not_utf8") from error


def refused(path: Path, why: str, reason: str) -> HostFileRefused:
    return HostFileRefused(f"{path}: {why}", path=str(path), reason=reason)


def read(path: Path, root: Path, *, follow: bool = False, private: bool = False) -> Held:
    """Read a file below a root, or learn that there is none; HostFileRefused if it is not to be touched.

    One that is made later is its owner's alone if it is private, and else as the owner's other files.
    """
    real = _resolve(path, root, follow=follow)
    try:
        descriptor = os.open(real, _OPEN)
    except FileNotFoundError:
        _judge_folder(real)
        return Held(path, real, None, 0o600 if private else 0o666 & ~_umask())
    except OSError as error:
        raise refused(path, f"it cannot be read ({error.strerror})", "unreadable") from error
    try:
        status = os.fstat(descriptor)
        _judge(path, status)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > BYTES_MAX:
        raise refused(path, f"it is larger than {BYTES_MAX >> 20} MiB", "too_large")
    return Held(path, real, data, stat.S_IMODE(status.st_mode), status.st_gid)


def _resolve(path: Path, root: Path, *, follow: bool) -> Path:
    """Return the file itself. A link below the root is followed only if that was asked for."""
    real = root
    for step in path.relative_to(root).parts:
        real /= step
        if not real.is_symlink():
            continue
        if not follow:
            told = "is" if real == path else f"leads through {real}, which is"
            raise refused(path, f"it {told} a link to {real.readlink()}; --follow-links writes there", "symlink")
        try:
            real = real.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise refused(path, f"the link {real} leads nowhere", "symlink") from error
    return real


def _judge(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise refused(path, "it is not a plain file", "not_a_file")
    if status.st_uid != os.geteuid():
        raise refused(path, "it belongs to another user", "foreign_owner")
    if not status.st_mode & stat.S_IWUSR:
        raise refused(path, "it is read-only", "read_only")
    if status.st_nlink > 1:
        raise refused(path, "it has another name (a hard link), which would keep the old text", "hard_link")


def _judge_folder(path: Path) -> None:
    """Refuse to make a file where none can be made, before anything else is written."""
    folder = next(at for at in path.parents if at.exists())
    if not folder.is_dir():
        raise refused(path, f"{folder} is not a directory", "not_a_directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise refused(path, f"{folder} cannot be written to", "read_only")


def missing_folders(path: Path) -> Iterator[Path]:
    """Yield the directories that a file still needs, outermost first."""
    yield from reversed([at for at in path.parents if not at.exists()])


# --- writing -----------------------------------------------------------------------------------------


def write(held: Held, data: bytes | None) -> None:
    """Replace, make or remove a file, provided that it is still as it was read."""
    real = held.real
    if data is None:
        judge_unchanged(held)
        real.unlink()
        sync_directory(real.parent)
        return
    for folder in missing_folders(real):
        with suppress(FileExistsError):
            folder.mkdir()
    temporary = real.with_name(f".{real.name}.{fresh_token()}.tmp")
    descriptor = os.open(temporary, _CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor, which Path cannot open
            file.write(data)
            file.flush()
            _give_to_group(file.fileno(), held)
            os.fchmod(file.fileno(), held.mode)
            os.fsync(file.fileno())
        judge_unchanged(held)
        if held.data is None:
            os.link(temporary, real)  # unlike a rename it refuses what is there
        else:
            temporary.rename(real)
    except FileExistsError as error:
        raise _changed(held) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_directory(real.parent)
    points.reach(WRITTEN)


def _give_to_group(descriptor: int, held: Held) -> None:
    """Let the new file be of the old one's group: it may be how others read it."""
    if held.group is None or held.group == os.fstat(descriptor).st_gid:
        return
    try:
        os.fchown(descriptor, -1, held.group)
    except PermissionError as error:
        raise refused(held.path, "it is of a group that you are not in", "foreign_group") from error


def judge_unchanged(held: Held) -> None:
    """Refuse to go on if the file is not what it was when it was read."""
    points.reach(CHECKED)
    try:
        now = read(held.real, held.real.parent).data
    except HostFileRefused as error:
        raise _changed(held) from error
    if now != held.data:
        raise _changed(held)


def _changed(held: Held) -> HostFileRefused:
    return refused(held.path, "somebody else changed it just now; run the command again", "changed_meanwhile")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
