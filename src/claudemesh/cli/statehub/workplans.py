"""Reading workplan files: what a repository says its workplans and tasks are. The files are canon.

A file is Markdown. It begins with lines `key: value` between two lines `---`; each task is a fenced block of such
lines, below the heading that names it:

    ---
    id: STATE-WP-0068
    title: "State Hub offline write buffer and edge relay"
    status: active
    ---
    ## T01 - Write safety
    ```task
    id: STATE-WP-0068-T01
    status: done
    ```

Only this much of YAML is read, and nothing is guessed: what is not understood is refused with its file and line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

WORKPLAN_HUB_ID: Final = "state_hub_workstream_id"
TASK_HUB_ID: Final = "state_hub_task_id"
TITLE_CHARS_MAX: Final = 1_000
STATUS_CHARS_MAX: Final = 64

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+(?P<text>.*)")
_FENCE: Final = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*(?P<kind>[^`\s]*).*")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ESCAPED: Final = re.compile(r'(?:[^\\]|\\["\\])*')
_NOT_PLAIN: Final = frozenset("[{&*!|>%@`")  # what begins a value that is more than a text in YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: str
    heading: str  # "" if there is none
    status: str
    hub_id: str | None
    where: str  # file and line, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplan:
    id: str
    title: str
    status: str
    hub_id: str | None
    repo: str | None  # as the file names it
    where: str
    tasks: tuple[Task, ...]


class WrongFile(Exception):
    """What a file says cannot be taken; the message names the place."""


class _Value(NamedTuple):
    text: str
    line: int


_Fields = Mapping[str, _Value]


def read_workplans(files: Iterable[tuple[str, str]]) -> tuple[list[Workplan], list[str]]:
    """Return the workplans of files given as name and text, and all that is wrong with them."""
    found: list[Workplan] = []
    problems: list[str] = []
    for name, text in files:
        try:
            found.append(parse_workplan(name, text))
        except WrongFile as error:
            problems.append(str(error))
    return found, problems + _doubles(found)


def _doubles(workplans: Sequence[Workplan]) -> list[str]:
    """Say where an id stands twice: nobody could tell which of them is canon."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for workplan in workplans:
        for own_id, where in [(workplan.id, workplan.where), *((task.id, task.where) for task in workplan.tasks)]:
            if own_id in seen:
                problems.append(f"{where}: {own_id} stands at {seen[own_id]} already")
            seen.setdefault(own_id, where)
    return problems


def parse_workplan(name: str, text: str) -> Workplan:
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise WrongFile(f"{name}:1: a workplan begins with a line ---")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise WrongFile(f"{name}:1: the part that begins with --- has no second ---")
    fields = _fields(name, lines[1:end], 2)
    where = f"{name}:1"
    return Workplan(
        id=_id(name, fields, 1),
        title=_text(name, fields, "title", 1, TITLE_CHARS_MAX),
        status=_text(name, fields, "status", 1, STATUS_CHARS_MAX),
        hub_id=_optional(fields, WORKPLAN_HUB_ID),
        repo=_optional(fields, "repo"),
        where=where,
        tasks=tuple(_tasks(name, lines, end + 1)),
    )


def _tasks(name: str, lines: Sequence[str], begin: int) -> list[Task]:
    tasks: list[Task] = []
    heading, number = "", begin
    while number < len(lines):
        line = lines[number]
        number += 1
        if found := _HEADING.fullmatch(line):
            heading = _without_close(found["text"].strip())
        elif fence := _FENCE.fullmatch(line):
            end = _end_of(lines, number, fence["mark"])
            if end is None:
                raise WrongFile(f"{name}:{number}: the block that begins here has no end")
            if fence["kind"] == "task":
                tasks.append(_task(name, lines[number:end], number, heading))
            number = end + 1
    return tasks


def _without_close(heading: str) -> str:
    """Leave out the marks that may end a heading as they begin it; in `C#` it is part of the word."""
    bare = heading.rstrip("#")
    return bare.rstrip() if bare != heading and bare[-1:] in {"", " ", "\t"} else heading


def _end_of(lines: Sequence[str], begin: int, mark: str) -> int | None:
    for number in range(begin, len(lines)):
        line = lines[number].strip()
        if line.startswith(mark) and set(line) == {mark[0]}:
            return number
    return None


def _task(name: str, lines: Sequence[str], number: int, heading: str) -> Task:
    fields = _fields(name, lines, number + 1)
    title = _optional(fields, "title")
    return Task(
        id=_id(name, fields, number),
        heading=heading if title is None else title,
        status=_text(name, fields, "status", number, STATUS_CHARS_MAX),
        hub_id=_optional(fields, TASK_HUB_ID),
        where=f"{name}:{number}",
    )


# --- key: value --------------------------------------------------------------------------------------


def _fields(name: str, lines: Sequence[str], first: int) -> _Fields:
    fields: dict[str, _Value] = {}
    for number, line in enumerate(lines, first):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, colon, rest = line.partition(":")
        if not colon or not _KEY.fullmatch(key) or (rest and rest[0] not in " \t"):
            raise WrongFile(f"{name}:{number}: this is not `key: value`, and nothing more of YAML is read here")
        if key in fields:
            raise WrongFile(f"{name}:{number}: {key} stands in line {fields[key].line} already")
        fields[key] = _Value(_value(f"{name}:{number}", rest.strip()), number)
    return fields


def _value(where: str, text: str) -> str:
    if text[:1] in {'"', "'"}:
        return _unquoted(where, text)
    if text[:1] in _NOT_PLAIN:
        raise WrongFile(f"{where}: a list, a table or a text of several lines is not read here")
    plain = "" if text.startswith("#") else re.split(r"\s#", text, maxsplit=1)[0].strip()
    if ": " in plain or plain.endswith(":"):
        raise WrongFile(f"{where}: a value with a colon in it stands in quotes")
    return "" if plain in {"~", "null"} else plain


def _unquoted(where: str, text: str) -> str:
    quote = text[0]
    inner, closing, rest = _cut(text[1:], quote)
    if not closing or (rest.strip() and not rest.strip().startswith("#")):
        raise WrongFile(f"{where}: the quotes do not end where the value ends")
    if quote == "'":
        return inner.replace("''", "'")
    if not _ESCAPED.fullmatch(inner):
        raise WrongFile(f'{where}: in double quotes only \\" and \\\\ are read here')
    return re.sub(r"\\(.)", r"\1", inner)


def _cut(text: str, quote: str) -> tuple[str, bool, str]:
    """Return what stands before the closing quote, whether there is one, and what follows it."""
    at = 0
    while at < len(text):
        if text[at : at + 2] == "''" == quote * 2 or (quote == '"' and text[at] == "\\"):
            at += 2
        elif text[at] == quote:
            return text[:at], True, text[at + 1 :]
        else:
            at += 1
    return text, False, ""


def _optional(fields: _Fields, key: str) -> str | None:
    return (fields[key].text or None) if key in fields else None


def _text(name: str, fields: _Fields, key: str, line: int, chars_max: int) -> str:
    value = _optional(fields, key)
    if value is None:
        raise WrongFile(f"{name}:{fields[key].line if key in fields else line}: {key} is missing")
    if len(value) > chars_max or not value.isprintable():
        raise WrongFile(f"{name}:{fields[key].line}: {key} is 1 to {chars_max} printable characters")
    return value


def _id(name: str, fields: _Fields, line: int) -> str:
    value = _text(name, fields, "id", line, STATUS_CHARS_MAX * 2)
    if not _ID.fullmatch(value):
        raise WrongFile(f"{name}:{fields['id'].line}: an id is of letters, digits, dots and dashes")
    return value
