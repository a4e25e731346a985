"""JSON of others, written again: whatever was read can be written.

orjson reads 1024 levels and writes 254; other readers take integers beyond 64 bits, and halves of surrogate pairs.
What fails at that, fails after the effect it is about, and maybe at every start anew; so nothing here does.
"""

from collections.abc import Iterator
from typing import Final

import orjson

NESTING_MAX: Final = 10_000  # no reader goes as deep: a value that does holds itself


def dump_json(value: object) -> bytes:
    """Return a JSON value as orjson writes it, or written out here if orjson has no form for it.

    A half of a surrogate pair becomes U+FFFD, so that everyone can read the result. TypeError says that it is no
    JSON value, ValueError that it holds itself: no reader returns such.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # too deep, too large a number, half a character, or no JSON at all
        return b"".join(_written(value))


def _written(root: object) -> Iterator[bytes]:
    """Write it out piece by piece, without recursion: there is a limit to that, too."""
    stack = [(iter([(b"", root)]), b"")]
    while stack:
        members, end = stack[-1]
        found = next(members, None)
        if found is None:
            stack.pop()
            yield end
            continue
        before, value = found
        yield before
        if isinstance(value, dict):
            yield b"{"
            stack.append((_of_object(value), b"}"))
        elif isinstance(value, list | tuple):
            yield b"["
            stack.append((_of_array(value), b"]"))
        else:
            yield _scalar(value)
        if len(stack) > NESTING_MAX:
            raise ValueError("a value that holds itself has no JSON form")


def _of_object(members: dict[object, object]) -> Iterator[tuple[bytes, object]]:
    for position, (name, value) in enumerate(members.items()):
        if not isinstance(name, str):
            raise TypeError("an object's names must be texts")
        yield (b"," if position else b"") + _scalar(name) + b":", value


def _of_array(elements: list[object] | tuple[object, ...]) -> Iterator[tuple[bytes, object]]:
    for position, value in enumerate(elements):
        yield b"," if position else b"", value


def _scalar(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        if isinstance(value, str):
            return orjson.dumps(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        if isinstance(value, int):
            return b"%d" % value
        raise
