"""Settings out of a TOML file and the environment, into frozen structs: read once, checked once, passed down.

A table of the file is a nested struct, and each field says what it is for:

    class Outbox(msgspec.Struct, frozen=True):
        max_age_hours_cap: Annotated[int, Meta(ge=1, description="No row is older when it is sent.")] = 720

    class Daemon(msgspec.Struct, frozen=True):
        outbox: Outbox = Outbox()

A variable of the environment overrules the file: `CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAP`, and before it one that the
field names itself, with `Meta(extra={"variable": "LEASE_TTL_MS"})`. Lists are set in the file only. A field with
`extra={"secret": True}` is never shown.

This file decides how settings are found and refused: all that is wrong is said at once, and an unknown name is an
error that names the nearest known one. It knows where each value came from. Which settings there are is for the
struct; `describe` prints it as data.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec.structs import fields

from claudemesh.kernel.errors import ConfigError

PREFIX: Final = "CLAUDEMESH_"
LEVEL: Final = "__"  # between a table and its key in a variable's name

BYTES_MAX: Final = 1 << 20

_HEAD: Final = re.compile(r"\s*\[([\w.-]+)\]")
_KEY: Final = re.compile(r"\s*([\w.-]+)\s*=")

Kind: TypeAlias = Literal["default", "file", "environment", "command line"]
S = TypeVar("S", bound=msgspec.Struct)


class Setting(NamedTuple):
    name: str  # with its tables: outbox.max_age_hours_cap
    type: str
    default: str  # as it would be written in the file; "required" where there is none
    help: str
    variable: str | None = None  # of the environment, if it has one of its own
    is_secret: bool = False


class Source(NamedTuple):
    """Where a value came from."""

    kind: Kind
    name: str | None = None  # the file, or the variable
    line: int | None = None  # of the file


class Found(NamedTuple):
    value: object
    source: Source


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """All that was found: each value that is right, where it came from, and what is wrong with the others."""

    settings: S | None  # None if there are problems
    found: Mapping[str, Found]  # by name, in the order of declaration
    problems: list[str]
    file: Path | None = None  # where one was read

    def checked(self) -> S:
        """Return the settings, or raise one ConfigError with every problem."""
        if self.settings is None:
            where = f" (settings are in {self.file})" if self.file else ""
            raise ConfigError("; ".join(self.problems) + where, problems=self.problems)
        return self.settings


def load(
    struct_type: type[S], path: Path | None = None, environ: Mapping[str, str] = os.environ, prefix: str = PREFIX
) -> S:
    """Return the settings, or raise one ConfigError with every problem. A file that is not there sets nothing.

    A server that shares its machine with others has a prefix of its own, as CLAUDEMESH_EDGE__.
    """
    return load_with_sources(struct_type, path, environ, prefix).checked()


def load_with_sources(
    struct_type: type[S], path: Path | None = None, environ: Mapping[str, str] = os.environ, prefix: str = PREFIX
) -> Loaded[S]:
    """Return the settings with where each came from; with problems, what there is beside them."""
    problems: list[str] = []
    text = _read(path, problems)
    inputs = _Inputs(path, _places(text), _Environment(environ, prefix), {})
    settings = _build(_Part(struct_type), _parse(path, text, problems), inputs, problems)
    problems.extend(inputs.said.unknown(struct_type))
    return Loaded(None if problems else settings, inputs.found, problems, path if text else None)


def describe(struct_type: type[msgspec.Struct]) -> list[Setting]:
    """Return every setting, in the order of declaration; TypeError for one that does not say what it is for."""
    return list(_describe(_Part(struct_type)))


class _Part(Generic[S]):
    """One table: its struct, the name of the table with a dot behind it, and the struct of its defaults, if any."""

    def __init__(self, struct_type: type[S], prefix: str = "", standing: msgspec.Struct | None = None) -> None:
        self.struct_type = struct_type
        self.prefix = prefix
        self.standing = standing
        self.fields = {field.encode_name: field for field in fields(struct_type)}

    def below(self, key: str) -> "_Part[msgspec.Struct] | None":
        """Return the table under this key, or None if it is a plain setting."""
        bare = _bare(self.fields[key].type)
        if not (isinstance(bare, type) and issubclass(bare, msgspec.Struct)):
            return None
        standing = self.default(key)
        return _Part(bare, f"{self.prefix}{key}.", standing if isinstance(standing, msgspec.Struct) else None)

    def default(self, key: str) -> object:
        """Return what holds if nothing is set, or NODEFAULT."""
        field = self.fields[key]
        if self.standing is not None:
            return getattr(self.standing, field.name)
        if field.default_factory is not msgspec.NODEFAULT:
            return field.default_factory()
        return field.default

    def leaves(self) -> "Iterator[tuple[_Part[Any], str]]":
        for key in self.fields:
            below = self.below(key)
            yield from below.leaves() if below else [(self, key)]


# --- reading ---------------------------------------------------------------------------------------


def _read(path: Path | None, problems: list[str]) -> str:
    try:
        return "" if path is None else _read_plain(path).decode("utf-8")
    except FileNotFoundError:
        pass
    except _WrongSetting as error:
        problems.append(f"{path} {error}")
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        problems.append(f"{path} is not TOML: {error}")
    return ""


def _read_plain(path: Path) -> bytes:
    """Read a file; a pipe or a device in its place has no end, and is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor, which Path cannot open
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _WrongSetting("is not a plain file: move it away")
        if status.st_size > BYTES_MAX:
            raise _WrongSetting("is larger than any settings: move it away")
        return file.read()


def _parse(path: Path | None, text: str, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number of more digits than are read
        problems.append(f"{path} is not TOML: {error}")
    except RecursionError:
        problems.append(f"{path} is nested too deeply to be read")
    return {}


def _places(text: str) -> dict[str, int]:
    """Return the line that sets each name. TOML's reader does not tell; what is written unusually has none."""
    places: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if head := _HEAD.match(line):
            table = f"{head[1]}."
        elif key := _KEY.match(line):
            places.setdefault(table + key[1], number)
    return places


class _Inputs(NamedTuple):
    """What values are taken from, and what was found so far."""

    path: Path | None
    places: Mapping[str, int]
    said: "_Environment"
    found: dict[str, Found]


def _build(part: _Part[S], table: dict[str, Any], inputs: _Inputs, problems: list[str]) -> S | None:
    """Build one table's struct, adding to the problems; None if there were any in it."""
    found = [f"{part.prefix}{key} is unknown{hint(key, part.fields)}" for key in table if key not in part.fields]
    values: dict[str, Any] = {}
    for key, field in part.fields.items():
        name = part.prefix + key
        try:
            if below := part.below(key):
                values[field.name] = _build(below, _table(table.get(key, {}), name), inputs, found)
            else:
                inputs.found[name] = _value(part, key, table, inputs)
                values[field.name] = inputs.found[name].value
        except (msgspec.ValidationError, _WrongSetting) as error:
            found.append(f"{name}: {error}")
    problems.extend(found)
    try:
        return None if found else part.struct_type(**values)
    except (ValueError, TypeError) as error:  # its own __post_init__, on values that do not go together
        problems.append(f"{part.prefix.rstrip('.') or 'settings'}: {error}")
        return None


class _WrongSetting(Exception):
    pass


def _table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongSetting(f"expected a table, [{name}]")
    return value


def _value(part: _Part[Any], key: str, table: dict[str, Any], inputs: _Inputs) -> Found:
    wanted, name = part.fields[key].type, part.prefix + key
    if (set_by := inputs.said.heard(name, wanted)) is not None:
        variable, text = set_by
        try:
            value = msgspec.convert(text, wanted, strict=False, dec_hook=_decode)
        except msgspec.ValidationError as error:
            raise _WrongSetting(f"{error} (in the environment, {variable})") from error
        return Found(value, Source("environment", variable))
    if key in table:
        value = msgspec.convert(table[key], wanted, dec_hook=_decode)
        return Found(value, Source("file", str(inputs.path), inputs.places.get(name)))
    default = part.default(key)
    if default is msgspec.NODEFAULT:
        raise _WrongSetting("has no default and must be set")
    return Found(default, Source("default"))


def _decode(wanted: type, value: object) -> object:
    if wanted is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"no setting can be of type {wanted.__name__}")


class _Environment(NamedTuple):
    values: Mapping[str, str]
    prefix: str

    def variable(self, name: str) -> str:
        return variable_of(name, self.prefix)

    def heard(self, name: str, annotation: object) -> tuple[str, str] | None:
        """Return the variable that sets this, with what it says. An empty one of the field's own says nothing."""
        own, common = _extra(annotation, "variable"), self.variable(name)
        if isinstance(own, str) and self.values.get(own):
            return own, self.values[own]
        return (common, self.values[common]) if common in self.values else None

    def unknown(self, struct_type: type[msgspec.Struct]) -> Iterator[str]:
        """Yield what can only have been meant for this struct: one of its tables, or all of its own prefix."""
        known = {self.variable(part.prefix + key) for part, key in _Part(struct_type).leaves()}
        beyond = len(self.prefix)
        tables = {name[beyond:].partition(LEVEL)[0] for name in known if LEVEL in name[beyond:]}
        for name in sorted(self.values):
            table, is_nested, _ = name[beyond:].partition(LEVEL)
            is_ours = self.prefix != PREFIX or (is_nested and table in tables)
            if name.startswith(self.prefix) and is_ours and name not in known:
                yield f"{name} is unknown{hint(name, known)}"


def variable_of(name: str, prefix: str = PREFIX) -> str:
    """Return the variable that is made of a setting's name."""
    return prefix + name.upper().replace(".", LEVEL)


def hint(key: str, known: Mapping[str, object] | set[str]) -> str:
    nearest = get_close_matches(key, sorted(known), 1)
    return f", did you mean {nearest[0]}?" if nearest else ""


# --- describing ------------------------------------------------------------------------------------


def _describe(whole: _Part[Any]) -> Iterator[Setting]:
    for part, key in whole.leaves():
        annotation = part.fields[key].type
        meaning = _meaning(annotation)
        if not meaning:
            raise TypeError(f"the setting {part.prefix}{key} needs Annotated[…, Meta(description=…)]")
        variable, is_secret = _extra(annotation, "variable"), bool(_extra(annotation, "secret"))
        default = _written(part.default(key))
        yield Setting(
            part.prefix + key,
            _type_name(annotation),
            default,
            meaning,
            variable if isinstance(variable, str) else None,
            is_secret,
        )


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _notes(annotation: object) -> list[msgspec.Meta]:
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return [note for note in notes if isinstance(note, msgspec.Meta)]


def _meaning(annotation: object) -> str:
    return next((note.description for note in _notes(annotation) if note.description), "")


def _extra(annotation: object, name: str) -> object:
    return next((note.extra[name] for note in _notes(annotation) if note.extra and name in note.extra), None)


def _type_name(annotation: Any) -> str:  # noqa: ANN401 - as above
    bare = _bare(annotation)
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is Literal:
        return " | ".join(msgspec.json.encode(argument).decode() for argument in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_type_name(argument) for argument in arguments if argument is not NoneType)
    if arguments:
        listed = ", ".join(_type_name(argument) for argument in arguments if argument is not Ellipsis)
        return f"{origin.__name__} of {listed}"
    return str(getattr(bare, "__name__", bare))


def _written(default: object) -> str:
    if default is msgspec.NODEFAULT:
        return "required"
    return "unset" if default is None else msgspec.json.encode(default, enc_hook=str).decode()
