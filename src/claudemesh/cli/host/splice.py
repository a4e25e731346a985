"""Changes to JSON that belongs to somebody else: values are put in and taken out, and every other byte stays.

Nothing is parsed and written out again, since that would lose what its owner sees: order, indentation, line ends,
how a number is written. A value is put in beside its neighbours in their style, and `drop` of what was put in gives
back the very text that was there before. A text that is not plainly one JSON object is refused: with comments, with
a name that stands twice, with a container of another kind than is asked for.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]  # names and positions, from the outermost object inwards

EMPTY: Final = "{}\n"

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_INDENT: Final = "  "


class NotUnderstoodError(ValueError):
    """A text that we do not know how to change."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object or an item of a list; `start` is where its name begins, or itself."""

    name: str | int
    start: int
    value_start: int
    end: int
    value: Any


@dataclass(frozen=True, slots=True)
class _Container:
    start: int
    parts: tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Style:
    newline: str
    unit: str | None  # of indentation; None if all stands on one line
    colon: str

    def render(self, value: object, base: str | None) -> str:
        """Return a value as text; its further lines begin with `base`, and without one there is one line."""
        if base is None or self.unit is None:
            comma = ", " if self.colon == ": " else ","
            return json.dumps(value, ensure_ascii=False, separators=(comma, self.colon))
        text = json.dumps(value, ensure_ascii=False, indent=self.unit, separators=(",", self.colon))
        return text.replace("\n", self.newline + base)


# --- reading -----------------------------------------------------------------------------------------


def parse(text: str) -> dict[str, Any]:
    """Return what the text says; NotUnderstoodError if it is not strictly one JSON object."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except NotUnderstoodError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotUnderstoodError(f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise NotUnderstoodError("it is JSON, but no object")
    return value


def _distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        counts = Counter(name for name, _ in members)
        twice = next(name for name, count in counts.items() if count > 1)
        raise NotUnderstoodError(f"the name {twice!r} stands twice in one object, and only one of them can count")
    return found


def _refuse(word: str) -> Any:  # noqa: ANN401  never returns
    raise NotUnderstoodError(f"{word} is not JSON")


def has(text: str, path: Path) -> bool:
    return _find(text, path) is not None


def get(text: str, path: Path) -> Any:  # noqa: ANN401  JSON is anything
    """Return the value at a path, or None."""
    part = _find(text, path)
    return None if part is None else part.value


def _find(text: str, path: Path) -> _Part | None:
    """Return the part at a path; NotUnderstoodError if the way there leads through something else."""
    at = _skip(text, 0)
    part = None
    for depth, name in enumerate(path):
        container = _read(text, at, path[:depth], "[" if isinstance(name, int) else "{")
        part = next((one for one in container.parts if one.name == name), None)
        if part is None:
            return None
        at = part.value_start
    return part


def _read(text: str, at: int, path: Path, kind: str) -> _Container:
    if text[at] != kind:
        where = ".".join(map(str, path))
        raise NotUnderstoodError(f"{where!r} is not {'an object' if kind == '{' else 'a list'}")
    parts: list[_Part] = []
    position = _skip(text, at + 1)
    while text[position] not in "}]":
        start, name = position, len(parts)
        if kind == "{":
            name, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
        value, end = _DECODER.raw_decode(text, position)
        parts.append(_Part(name, start, position, end, value))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return _Container(at, tuple(parts))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _style(text: str) -> _Style:
    """Read how the outermost object is written; it stands for the rest."""
    root = _read(text, _skip(text, 0), (), "{")
    newline = "\r\n" if "\r\n" in text else "\n"
    if not root.parts:
        return _Style(newline, _INDENT, ": ")
    first = root.parts[0]
    colon = ": " if text[first.value_start - 1] in " \t\r\n" else ":"
    lead = text[root.start + 1 : first.start]
    return _Style(newline, lead.rpartition("\n")[2] if "\n" in lead else None, colon)


# --- putting in --------------------------------------------------------------------------------------


def put(text: str, path: Path, value: object) -> tuple[str, list[Path]]:
    """Set the value at a path of names; return the text, and which objects on the way there had to be made."""
    for depth in range(1, len(path)):
        if _find(text, path[:depth]) is None:
            inner = value
            for name in reversed(path[depth:]):
                inner = {name: inner}
            return _insert(text, path[:depth], inner), [path[:end] for end in range(depth, len(path))]
    return _set(text, path, value), []


def append(text: str, path: Path, value: object) -> tuple[str, list[Path]]:
    """Add an item to the list at a path of names; return the text, and which containers had to be made."""
    standing = _find(text, path)
    if standing is None:
        text, made = put(text, path, [value])
        return text, [*made, path]
    return _insert(text, (*path, len(_read(text, standing.value_start, path, "[").parts)), value), []


def _set(text: str, path: Path, value: object) -> str:
    part = _find(text, path)
    if part is None:
        return _insert(text, path, value)
    base = _line_indent(text, part.start)
    return text[: part.value_start] + _style(text).render(value, base) + text[part.end :]


def _insert(text: str, path: Path, value: object) -> str:
    """Put a new part at the end of its container."""
    *way, name = path
    outer = _find(text, tuple(way))
    at = _skip(text, 0) if outer is None else outer.value_start
    container = _read(text, at, tuple(way), "[" if isinstance(name, int) else "{")
    style = _style(text)

    def render(base: str | None) -> str:
        label = "" if isinstance(name, int) else json.dumps(name, ensure_ascii=False) + style.colon
        return label + style.render(value, base)

    if container.parts:
        first, last = container.parts[0], container.parts[-1]
        lead = text[container.start + 1 : first.start]
        base = lead.rpartition("\n")[2] if "\n" in lead else None
        between = (" " if style.colon == ": " else "") if base is None else style.newline + base
        return text[: last.end] + "," + between + render(base) + text[last.end :]
    if style.unit is None:
        return text[: at + 1] + render(None) + text[at + 1 :]
    outside = _line_indent(text, at)
    inside = outside + style.unit
    more = style.newline + inside + render(inside) + style.newline + outside
    return text[: at + 1] + more + text[at + 1 :]


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- taking out --------------------------------------------------------------------------------------


def drop(text: str, path: Path) -> str:
    """Take out the part at a path, and what was put in around it; without such a part nothing changes."""
    part = _find(text, path)
    if part is None:
        return text
    *way, name = path
    outer = _find(text, tuple(way))
    at = _skip(text, 0) if outer is None else outer.value_start
    parts = _read(text, at, tuple(way), "[" if isinstance(name, int) else "{").parts
    place = parts.index(part)
    if place:
        return text[: parts[place - 1].end] + text[part.end :]
    if len(parts) > 1:
        return text[: part.start] + text[parts[1].start :]
    after = part.end
    if part.start > at + 1:  # it stood on a line of its own, and so does what closes its container
        closing = _style(text).newline + _line_indent(text, at)
        after += len(closing) if text.startswith(closing, after) else 0
    return text[: at + 1] + text[after:]


def drop_empty(text: str, paths: Sequence[Path]) -> str:
    """Take out those of these containers that hold nothing, the innermost first."""
    for path in sorted(paths, key=len, reverse=True):
        part = _find(text, path)
        if part is not None and part.value in ({}, []):
            text = drop(text, path)
    return text
