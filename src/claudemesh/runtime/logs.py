"""Events as lines of JSON, in a file and on standard error.

This file decides the form of a line and when a file is full. Which events there are, and what is in them, is for
whoever publishes. Only plain values are written (texts, numbers, enums, and lists of them): what an event carries
along for other subscribers, such as a whole message, is left out, so that no body reaches a log.

    {"at":"2026-03-01T12:00:00.000Z","level":"info","event":"outbox.row_settled","id":"01J…","state":"done"}

A log never stands in the way of what it tells of. A line that cannot be written is counted and dropped, and the
file is opened again with the next one.
"""

import dataclasses
import os
import stat
import threading
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path, PurePath
from typing import Final, cast

import msgspec

from claudemesh.kernel.clock import Clock
from claudemesh.runtime.observe import Event, Level, Observer, level_of

FILE_BYTES_MAX: Final = 16 << 20
TEXT_CHARS_MAX: Final = 2_000  # of one value: a line is read by people and by line-based tools

_LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")
_STDERR: Final = 2

_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class JsonLog:
    def __init__(
        self,
        clock: Clock,
        path: Path | None = None,
        *,
        stderr: bool = False,
        level: Level = "info",
        file_bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        self.lost = 0  # lines that could not be written
        self._clock = clock
        self._path = path
        self._stderr = stderr
        self._levels = frozenset(_LEVELS[_LEVELS.index(level) :])
        self._file_bytes_max = file_bytes_max
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._torn = False  # the file ends in the middle of a line

    def attach(self, observer: Observer) -> None:
        """Write every event of this level or above. Events below it cost their publishers nothing."""
        every = cast("type[Event]", object)
        observer.subscribe(every, self.write, lambda event_class: level_of(event_class) in self._levels)

    def write(self, event: Event) -> None:
        try:
            line = render(event, self._clock.wall_ms())
        except Exception:  # noqa: BLE001 - an event that cannot be written down must not hurt its publisher
            self.lost += 1
            return
        if self._stderr:
            with suppress(OSError):
                os.write(_STDERR, line)
        if self._path is not None:
            with self._lock:
                self._append(self._path, line)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _append(self, path: Path, line: bytes) -> None:
        try:
            descriptor = self._room_for(path, len(line))
            written = os.write(descriptor, b"\n" + line if self._torn else line)
            complete = written == len(line) + self._torn
            self._torn = not complete
            self.lost += not complete
        except OSError:
            self.lost += 1
            self._close()

    def _room_for(self, path: Path, size: int) -> int:
        descriptor = self._descriptor if self._descriptor is not None else self._open(path)
        if os.fstat(descriptor).st_size + size > self._file_bytes_max:
            self._close()
            path.rename(path.with_name(f"{path.name}.1"))  # over the last predecessor
            self._torn = False
            descriptor = self._open(path)
        return descriptor

    def _open(self, path: Path) -> int:
        # Without following a link, and without waiting for the reader of a pipe.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != stat.S_IRUSR | stat.S_IWUSR:
                os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def render(event: Event, wall_ms: int) -> bytes:
    """Return the event's line. Its own fields come last and cannot replace the three that every line has."""
    instant = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    line: dict[str, object] = {
        "at": instant.replace("+00:00", "Z"),
        "level": level_of(type(event)),
        "event": event.name,
    }
    for name in _field_names(event):
        value = getattr(event, name)
        if _is_plain(value) or (isinstance(value, list | tuple) and all(map(_is_plain, value))):
            line.setdefault(name, _shortened(value))
    return _encoder.encode(line) + b"\n"


def _field_names(event: Event) -> tuple[str, ...]:
    if isinstance(event, msgspec.Struct):
        return event.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(event))  # type: ignore[arg-type]  # it is one


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | Enum | PurePath)


def _shortened(value: object) -> object:
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return f"{value[:TEXT_CHARS_MAX]}… ({len(value)} characters)"
    return value
