"""The log of what a client did and what it was told, as it is read: docs/reference/history-log.md.

A line is written before each call and after each answer. A process that was killed may leave half a line at the
end; any other line that cannot be read is an error, since what it said is not known.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from claudemesh.kernel.errors import InvalidRequest

# What the invariants ask of, and its types in Spark's words.
COLUMNS: Final = {
    "n": "bigint",
    "t": "double",
    "asked": "double",
    "boot": "string",
    "process": "string",
    "ev": "string",
    "f": "string",
    "mesh": "string",
    "who": "string",
    "id": "string",
    "key": "string",
    "version": "bigint",
    "body": "string",
}


class Line(msgspec.Struct, frozen=True):
    t: float
    asked: float
    at: int
    process: str
    ev: Literal["invoke", "ok", "fail", "unknown"]
    f: str
    mesh: str
    who: str
    id: str = ""
    key: str = ""
    version: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    body: str = ""
    boot: str = ""


@dataclass(frozen=True, slots=True)
class History:
    rows: list[tuple[Any, ...]]  # in the order of COLUMNS
    torn: int = 0  # files whose last line is half a line


_VERSION: Final = re.compile(r"[0-9]{1,18}")  # a number to both engines
_decode: Final = msgspec.json.Decoder(Line).decode


def read_history(paths: Sequence[Path], until_ms: int | None = None) -> History:
    """Read logs of any number of processes. An answer from after `until_ms` counts as not heard."""
    rows: list[tuple[Any, ...]] = []
    torn = 0
    for number, path in enumerate({path.resolve(): path for path in paths}.values()):
        whole, _, rest = path.read_bytes().rpartition(b"\n")
        torn += bool(rest)
        for line in _lines(path, whole):
            if until_ms is None or line.ev == "invoke" or line.at <= until_ms:
                rows.append(to_row(len(rows), line, f"{number}:{line.boot}:{line.process}"))
    return History(rows, torn)


def to_row(n: int, line: Line, process: str) -> tuple[Any, ...]:
    boot = line.boot or process  # who does not say whose clock it is has one of their own
    values = msgspec.structs.asdict(line) | {"n": n, "process": process, "boot": boot}
    return tuple(values[name] for name in COLUMNS)


def _lines(path: Path, whole: bytes) -> Iterator[Line]:
    for number, text in enumerate(whole.split(b"\n") if whole else (), start=1):
        try:
            line = _decode(text)
            if line.f == "swap" and not _VERSION.fullmatch(line.id):
                raise ValueError(f"a swap starts from a version, and {line.id!r} is none")  # noqa: TRY301 - as others
        except (msgspec.DecodeError, ValueError) as error:
            raise InvalidRequest(f"{path}, line {number}: {error}") from error
        yield line
