"""Where things are kept and who may read them: the home directory, private files, one process at a time.

This file decides how a file that must stay private is written and read, and what the environment says about the
place that a process runs in. What is in the files is for others to say.

    $CLAUDEMESH_HOME/            ~/.claudemesh unless the variable is set
      broker.db broker.toml      the embedded broker's store and its settings
      hub.db hub.toml            the same of the hub
      host.json                  what `install` made in an agent host's files
      edge/ edge.toml            the state directory of the relay, 0700, and its settings
      mcp/keys.db                keys that agents' calls were made under, and what they were answered
      pending/<slug>.json        a key that was shown to a broker which has not answered yet
      daemon/<slug>/             the state directory of one mesh, 0700
      left/                      state directories of meshes that were left

A private file is ours, 0600 and no link. Anything else is refused with the command that mends it: a secret that
others could read, or swap, is not one.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from claudemesh.kernel.errors import AlreadyRunning, ConfigError, InvalidRequest
from claudemesh.kernel.rhythm import (
    LEASE_TTL_MS,
    LEASE_TTL_MS_MIN,
    PING_INTERVAL_MS,
    STALE_PONG_MS,
    TIME_MS_MAX,
    TIME_MS_MIN,
)
from claudemesh.runtime.patience import wait_until

PRIVATE_BYTES_MAX: Final = 1 << 20
SOCKET_PATH_BYTES_MAX: Final = 107  # of sockaddr_un on Linux, without its closing zero byte

LOCK_PATIENCE_S: Final = 0.2

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FOLDERS: Final = frozenset({"daemon", "edge", "lake", "left", "mcp", "pending"})
# Databases have files beside them (-wal, .lock, .corrupt-…); bundles of doctor carry their instant.
_FILES: Final = re.compile(
    r"(?:broker|hub|ledger)\.db(?:[-.].+)?|(?:broker|hub|edge)\.toml|host\.json|ledger\.key|up\.pid"
    r"|doctor-\w+\.tar\.gz"
)
_TEMPORARY: Final = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


# --- the place that a process runs in --------------------------------------------------------------

CI_VARIABLES: Final = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "JENKINS_URL")
_NO: Final = frozenset({"", "0", "false", "no"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the environment says. The three defaults are overruled by flags, so that a test is the same under CI."""

    home: Path
    mesh: str | None = None
    ci: str | None = None  # the variable that says so
    container: str | None = None  # docker, podman, kubernetes or runpod
    runtime_dir: Path | None = None
    no_color: bool = False
    is_dumb: bool = False  # a terminal that only takes lines
    history: Path | None = None  # where clients write down what they ask and what they are told

    @property
    def ephemeral(self) -> bool:
        return self.ci is not None

    @property
    def tcp(self) -> bool:
        return self.ci is None and self.container is None

    @property
    def hooks(self) -> bool:
        return self.ci is None


def read_surroundings(environment: Mapping[str, str] = os.environ, root: str = "/") -> Surroundings:
    home = environment.get("CLAUDEMESH_HOME") or _default_home()
    runtime_dir = environment.get("XDG_RUNTIME_DIR")
    history = environment.get("CLAUDEMESH_HISTORY")
    return Surroundings(
        home=Path(os.path.abspath(os.path.expanduser(home))),  # noqa: PTH100, PTH111 - cheaper, and follows no link
        mesh=environment.get("CLAUDEMESH_MESH") or None,
        ci=next((name for name in CI_VARIABLES if environment.get(name, "").lower() not in _NO), None),
        container=_container(environment, root),
        runtime_dir=Path(runtime_dir) if runtime_dir and os.path.isabs(runtime_dir) else None,  # noqa: PTH117
        no_color=bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb",
        is_dumb=environment.get("TERM") == "dumb",
        history=Path(history) if history else None,
    )


def _default_home() -> str:
    home = os.path.expanduser("~/.claudemesh")  # noqa: PTH111 - Path.home() raises where this returns its argument
    if home.startswith("~"):
        raise ConfigError("nobody knows where your home directory is: set CLAUDEMESH_HOME")
    return home


def _container(environment: Mapping[str, str], root: str) -> str | None:
    if environment.get("RUNPOD_POD_ID"):
        return "runpod"
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv"}
    return next((name for name, mark in marks.items() if os.path.exists(os.path.join(root, mark))), None)  # noqa: PTH110, PTH118


DIGITS_MAX = 20  # of a number that is read, and quoted


@dataclass(frozen=True, slots=True)
class Timings:
    """How fast presence beats: read by broker and daemon alike, so that they agree without a file."""

    lease_ttl_ms: int = LEASE_TTL_MS
    ping_interval_ms: int = PING_INTERVAL_MS
    stale_pong_ms: int = STALE_PONG_MS


def read_timings(environment: Mapping[str, str] = os.environ) -> Timings:
    """Return what the environment says to a daemon; a broker's are in its settings, under the same variables."""
    standard = Timings()
    return Timings(
        _milliseconds(environment, "LEASE_TTL_MS", standard.lease_ttl_ms, LEASE_TTL_MS_MIN),
        _milliseconds(environment, "PING_INTERVAL_MS", standard.ping_interval_ms, TIME_MS_MIN),
        _milliseconds(environment, "STALE_PONG_THRESHOLD_MS", standard.stale_pong_ms, TIME_MS_MIN),
    )


def _milliseconds(environment: Mapping[str, str], name: str, otherwise: int, least: int) -> int:
    text = environment.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal() or len(text) > DIGITS_MAX or not least <= int(text) <= TIME_MS_MAX:
        allowed = f"is not a number of milliseconds from {least} to {TIME_MS_MAX}"
        raise ConfigError(f"{name}={text[:DIGITS_MAX]!r} in the environment {allowed}")
    return int(text)


# --- the home --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @classmethod
    def of(cls, surroundings: Surroundings) -> Self:
        return cls(surroundings.home)

    @property
    def broker_db(self) -> Path:
        return self.root / "broker.db"

    @property
    def hub_db(self) -> Path:
        return self.root / "hub.db"

    @property
    def ledger_db(self) -> Path:
        return self.root / "ledger.db"

    @property
    def lake_dir(self) -> Path:
        return self.root / "lake"

    @property
    def edge_dir(self) -> Path:
        return self.root / "edge"

    @property
    def host_receipt(self) -> Path:
        return self.root / "host.json"

    @property
    def up_lock(self) -> Path:
        return self.root / "up.pid"

    def mesh_dir(self, slug: str) -> Path:
        return self.root / "daemon" / _checked(slug)

    def pending_file(self, slug: str) -> Path:
        return self.root / "pending" / f"{_checked(slug)}.json"

    def left_dir(self, slug: str, stamp: str) -> Path:
        return self.root / "left" / f"{_checked(slug)}-{stamp}"

    def meshes(self) -> list[str]:
        """Return the slugs of the joined meshes. What has no membership is not one: a join that was cut short."""
        found = (path.parent.name for path in (self.root / "daemon").glob("*/membership.json"))
        return sorted(name for name in found if _SLUG.fullmatch(name))

    def ensure(self) -> None:
        """Make the home, 0700. One that is there and holds nothing but ours is closed to others.

        Else others may look at it, since all of ours in it is private; they may not write to it.
        """
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
        status = self.root.stat()  # it may be its owner's link
        _judge_directory(self.root, status, stat.S_IWGRP | stat.S_IWOTH)
        if status.st_mode & _OTHERS and all(is_ours(path) for path in self.root.iterdir()):
            self.root.chmod(0o700)

    def ensure_dir(self, path: Path) -> Path:
        """Make a directory inside the home, and what leads to it: each 0700."""
        self.ensure()
        for step in [*reversed(path.relative_to(self.root).parents), path.relative_to(self.root)][1:]:
            ensure_private_dir(self.root / step)
        return path


def is_ours(path: Path) -> bool:
    """Say whether what stands in a home is ours, by its whole name: a directory may hold others' beside it."""
    return path.name in _FOLDERS or (_FILES.fullmatch(path.name) is not None and not path.is_dir())


def is_half_written(path: Path) -> bool:
    """Say whether a file has the name that `write_private` gives until all of it is there."""
    return _TEMPORARY.fullmatch(path.name) is not None


def is_half_of_ours(path: Path) -> bool:
    """Say whether what stands in a home is half of a file of ours there."""
    found = _TEMPORARY.fullmatch(path.name)
    return found is not None and is_ours(path.with_name(found[1]))


def _checked(slug: str) -> str:
    """Refuse what would lead elsewhere. What a slug may be is for `wire.names`; here it becomes a path."""
    if not _SLUG.fullmatch(slug):
        raise InvalidRequest("this is not the slug of a mesh")
    return slug


def ensure_private_dir(path: Path) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    _judge_directory(path, path.lstat(), _OTHERS)


def _judge_directory(path: Path, status: os.stat_result, unwanted: int) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is not a directory: move it away")
    if status.st_uid != os.geteuid():
        raise ConfigError(f"{path} belongs to another user: name a directory of your own in CLAUDEMESH_HOME")
    if status.st_mode & unwanted:
        if status.st_mode & stat.S_ISVTX or path == path.parent:  # /tmp, or the root: not to be closed to others
            raise ConfigError(f"{path} is for all users: name a directory of your own, which only you can open")
        raise ConfigError(f"{path} is open to other users: chmod 700 {path}")


# --- private files ---------------------------------------------------------------------------------


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file that only its owner reads, so that it is there in full and durable, or not at all.

    Without `replace` an existing file stays as it is: FileExistsError.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor, which Path cannot open
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.rename(path)
        else:
            os.link(temporary, path)  # unlike a rename it refuses what is there
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path) -> bytes:
    """Read a file that only its owner can have written or read; FileNotFoundError if there is none."""
    try:
        # Without waiting: a pipe in its place has no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a symbolic link: put the file itself there") from error
        if error.errno in (errno.ENXIO, errno.EACCES, errno.EPERM):
            raise ConfigError(f"{path} cannot be opened: {error.strerror}") from error
        raise
    try:
        _judge_private(path, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(PRIVATE_BYTES_MAX)
    finally:
        os.close(descriptor)


def _judge_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not a plain file: move it away")
    if status.st_uid != os.geteuid():
        raise ConfigError(f"{path} belongs to another user: run as that user, or make one of your own")
    if status.st_mode & _OTHERS:
        raise ConfigError(f"{path} can be read or written by other users: chmod 600 {path}")
    if status.st_size > PRIVATE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than any file of its kind: move it away")


# --- where the socket is ---------------------------------------------------------------------------


def choose_socket(state_dir: Path, runtime_dir: Path | None) -> Path:
    """Return where the daemon's socket is to be: beside its state or, were that too long, in the runtime folder."""
    beside = state_dir / "sock"
    if len(os.fsencode(beside)) <= SOCKET_PATH_BYTES_MAX:
        return beside
    import hashlib  # noqa: PLC0415 - most homes are short, and most commands start fast

    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    elsewhere = runtime_dir / "claudemesh" if runtime_dir else Path(f"/tmp/claudemesh-{os.geteuid()}")  # noqa: S108 - 0700
    short = elsewhere / f"{name}.sock"
    if len(os.fsencode(short)) > SOCKET_PATH_BYTES_MAX:
        raise ConfigError(
            f"{short} is too long for a socket: set XDG_RUNTIME_DIR or CLAUDEMESH_HOME to a shorter path"
        )
    return short


def find_socket(sock: Path) -> Path | None:
    """Return the path to connect to: `sock` itself, or the one written in it; None if there is neither."""
    try:
        mode = sock.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISSOCK(mode):
        found = sock
    else:
        found = Path(os.fsdecode(read_private(sock).strip()))
        if not found.is_absolute():
            raise ConfigError(f"{sock} is neither a socket nor names one: stop the daemon and remove it")
    if len(os.fsencode(found)) > SOCKET_PATH_BYTES_MAX:
        raise ConfigError(f"{found} is too long for a socket: set CLAUDEMESH_HOME to a shorter path")
    return found


# --- one process at a time -------------------------------------------------------------------------


class InstanceLock:
    """A lock that ends with its process, in a file that says whose it is.

    The lock decides, never the number in the file: a number outlives its process and comes back for another. The
    file is not removed, since between two starts that would let each lock a file of its own.
    """

    def __init__(self, path: Path, within_s: float = LOCK_PATIENCE_S) -> None:
        self._path = path
        self._within_s = within_s
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise AlreadyRunning with the holder's `pid`."""
        while self._descriptor is None:
            descriptor = _open_lock(self._path)
            # Somebody may hold it just to see who does: that is over at once.
            if not wait_until(partial(_flock, descriptor, fcntl.LOCK_EX), self._within_s):
                pid = _read_pid(descriptor)
                os.close(descriptor)
                raise AlreadyRunning(f"process {pid or 'unknown'} holds {self._path}", pid=pid)
            if _is_at(descriptor, self._path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                self._descriptor = descriptor
            else:  # removed by hand in between: what was locked is nobody's file any more
                os.close(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_holder(path: Path) -> int | None:
    """Return the pid of the process that holds the lock (0 if it has not said yet), or None if nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared: two who look at once would take each other for the holder.
        return None if _flock(descriptor, fcntl.LOCK_SH) else _read_pid(descriptor) or 0
    finally:
        os.close(descriptor)  # and with it a lock that was only taken to see


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a symbolic link: remove it") from error
        raise


def _flock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
