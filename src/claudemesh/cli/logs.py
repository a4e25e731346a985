"""The daemon's log on a terminal: its last lines, and what comes after them. The log may be exchanged meanwhile."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

from claudemesh.cli.render import Output, escape
from claudemesh.kernel.errors import NotFound
from claudemesh.runtime.processes import pause

TAIL_BYTES_MAX: Final = 4 << 20
POLL_S: Final = 0.2


def show_log(out: Output, path: Path, lines: int, *, follow: bool) -> None:
    """Print the last lines; following, one JSON object a line, else one document of them all."""
    try:
        last, position = _tail(path, lines)
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not there: the daemon has not run yet") from error
    if not follow:
        out.document({"lines": [_parsed(line) for line in last]}, map(escape, last))
        return
    with suppress(KeyboardInterrupt):  # how following ends
        for line in chain(last, _followed(path, position)):
            out.entry(_parsed(line), [escape(line)])


def _tail(path: Path, lines: int) -> tuple[list[str], int]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - TAIL_BYTES_MAX, 0))
        whole = file.read(size - file.tell())
    complete, _, _ = whole.rpartition(b"\n")  # a line that is being written is for later
    position = size - (len(whole) - len(complete) - (1 if b"\n" in whole else 0))
    found = complete.decode("utf-8", "replace").split("\n") if complete else []
    return found[len(found) - min(lines, len(found)) :], position


def _followed(path: Path, position: int) -> Iterator[str]:
    rest = b""
    file = path.open("rb")
    try:
        file.seek(position)
        while True:
            data = file.read()
            *complete, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in complete)
            if data:
                continue
            pause(POLL_S)
            if _is_exchanged(path, file.fileno()):
                file.close()
                file, rest = path.open("rb"), b""
    finally:
        file.close()


def _is_exchanged(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _parsed(line: str) -> dict[str, Any]:
    import json  # noqa: PLC0415 - only with --json

    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict):
            return told
    return {"text": line}
