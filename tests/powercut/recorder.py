"""Writes down, in their order, all that SQLite does to a disk and all that a client was told meanwhile.

It stands between SQLite and the system as a VFS. Registered as the default one before a store is opened, it needs
no change in that store. What it writes down is a list of events; `states` makes from it the disks that a power cut
could leave behind.

A write is noted before it is done and a sync after it was done, both the pessimistic way round. A note and its
write happen under one lock, so the notes stand in the order in which the writes took effect. A sync does not hold
it, so that whatever other threads do during a sync is seen to happen during it.

The WAL index (-shm) is no file to this VFS: SQLite maps it, and rebuilds it after a power cut.
"""

import os
import stat
import threading
from pathlib import Path
from typing import Final

import apsw
import msgspec

Payload = str | int


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One thing that happened. A file is a number: two files may have the same name, one after the other."""


class Found(Event):
    """A file that was there before, with all its bytes: it is taken to be on the disk."""

    file: int
    name: str
    data: bytes


class Created(Event):
    """A new, empty file; its name is on the disk only after a DirectorySynced."""

    file: int
    name: str


class Written(Event):
    file: int
    offset: int
    data: bytes


class Truncated(Event):
    file: int
    size: int


class SyncBegun(Event):
    number: int
    file: int
    name: str
    flags: int


class SyncEnded(Event):
    """What was written before the sync began is on the disk, unless the disk lied (see `states.with_lie`)."""

    number: int
    is_lie: bool = False


class Deleted(Event):
    """The name is gone; on the disk only after a DirectorySynced."""

    name: str


class DirectorySynced(Event):
    folder: str


class Mark(Event):
    """What a client did or was told at this moment."""

    kind: str
    payload: Payload


class Past(Event):
    """What clients had done and been told before any of this, in a life that a power cut has ended."""

    marks: tuple[Mark, ...]


Events = Found | Created | Written | Truncated | SyncBegun | SyncEnded | Deleted | DirectorySynced | Mark | Past
Log = list[Events]

_DECODER: Final = msgspec.msgpack.Decoder(Log)


def save(log: Log, path: Path) -> None:
    path.write_bytes(msgspec.msgpack.encode(log))


def load(path: Path) -> Log:
    return _DECODER.decode(path.read_bytes())


class Recorder:
    """The log of what happens in one folder, and below it. Whatever is in it at the start is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.log: Log = []
        self.lock = threading.RLock()  # a connection that the garbage collector closes may delete a file under it
        self._folder = folder.resolve()
        self._files: dict[str, int] = {}  # name -> file
        self._files_seen = 0
        self._syncs = 0
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):
                name = str(path.relative_to(self._folder))
                self.log.append(Found(self._next_file(name), name, path.read_bytes()))

    def mark(self, kind: str, payload: Payload) -> None:
        with self.lock:
            self.log.append(Mark(kind, payload))

    def name_of(self, path: str | Path) -> str | None:
        """Return the path below the folder, "." for the folder; None for what is not recorded."""
        below = Path(path)
        return str(below.relative_to(self._folder)) if below.is_relative_to(self._folder) else None

    def opened(self, name: str) -> int:
        """Return the number of the file."""
        with self.lock:
            if name not in self._files:
                self.log.append(Created(self._next_file(name), name))
            return self._files[name]

    def deleted(self, name: str) -> None:
        with self.lock:
            if self._files.pop(name, None) is not None:
                self.log.append(Deleted(name))

    def sync_begun(self, file: int, name: str, flags: int) -> int:
        """Return the number of the sync."""
        with self.lock:
            self._syncs += 1
            self.log.append(SyncBegun(self._syncs, file, name, flags))
            return self._syncs

    def sync_ended(self, number: int) -> None:
        with self.lock:
            self.log.append(SyncEnded(number))

    def directory_synced(self, folder: str) -> None:
        with self.lock:
            self.log.append(DirectorySynced(folder))

    def _next_file(self, name: str) -> int:
        self._files[name] = self._files_seen
        self._files_seen += 1
        return self._files[name]


class RecordedFile(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: str, path: str | apsw.URIFilename, flags: list[int]) -> None:
        self._recorder = recorder
        self._name = name
        # The system's VFS syncs the directory with the first sync of a journal or WAL that it may have created.
        is_journal = flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL)
        self._syncs_directory = bool(is_journal and flags[0] & apsw.SQLITE_OPEN_CREATE)
        with recorder.lock:
            super().__init__("unix", path, flags)
            self._file = recorder.opened(name)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  apsw's name, as all of these
        with self._recorder.lock:
            self._recorder.log.append(Written(self._file, offset, bytes(data)))
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._recorder.lock:
            self._recorder.log.append(Truncated(self._file, newsize))
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        number = self._recorder.sync_begun(self._file, self._name, flags)
        super().xSync(flags)
        self._recorder.sync_ended(number)
        if self._syncs_directory:
            self._syncs_directory = False
            self._recorder.directory_synced(folder_of(self._name))


class RecordingVfs(apsw.VFS):
    """The system's VFS, with a recorder that listens."""

    def __init__(self, recorder: Recorder, name: str = "recording", *, is_default: bool) -> None:
        self._recorder = recorder
        super().__init__(name, "unix", makedefault=is_default)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        recorded = None if path is None else self._recorder.name_of(path)
        if name is None or recorded is None:
            return apsw.VFSFile("unix", name, flags)
        return RecordedFile(self._recorder, recorded, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802
        recorded = self._recorder.name_of(filename)
        with self._recorder.lock:
            super().xDelete(filename, syncdir)
            if recorded is not None:
                self._recorder.deleted(recorded)
                if syncdir:
                    self._recorder.directory_synced(folder_of(recorded))


def folder_of(name: str) -> str:
    return str(Path(name).parent)


def listen_to_directory_syncs(recorder: Recorder) -> None:
    """Note the `os.fsync` of a directory, by whomever in this process, for the rest of its life."""
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            name = recorder.name_of(Path(f"/proc/self/fd/{descriptor}").readlink())
            if name is not None:
                recorder.directory_synced(name)

    os.fsync = noted
