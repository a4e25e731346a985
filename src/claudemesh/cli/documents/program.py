"""What is printed about the programs themselves and about this host."""

from typing import Any, Literal

import msgspec

from claudemesh.cli.documents.printed import Printed, one


class Version(msgspec.Struct, frozen=True):
    version: str


class Completions(msgspec.Struct, frozen=True):
    shell: str
    programs: list[str]
    script: str


class Source(msgspec.Struct, frozen=True):
    """Where a value came from: `name` is a variable, an option or a file, `line` a line of that file."""

    kind: Literal["default", "file", "environment", "command line"]
    name: str | None
    line: int | None


class Held(msgspec.Struct, frozen=True):
    name: str
    value: Any
    source: Source


class SettingsShown(msgspec.Struct, frozen=True, kw_only=True):
    part: Literal["daemon", "broker", "hub", "relay"]
    mesh: str | None
    path: str
    exists: bool
    settings: list[Held]
    problems: list[str]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Every value in force; of a secret only that it is set."""

    surroundings: list[Held]
    meshes: list[str]
    files: list[SettingsShown]
    problems: list[str]


PRINTED: dict[str, Printed] = {
    "claudemesh --version": one(Version),
    "cortex --version": one(Version),
    "statehub --version": one(Version),
    "statehub-edge --version": one(Version),
    "claudemesh completions": one(Completions),
    "claudemesh config show": one(Configuration, exits={1: "A file has a mistake in it, which `problems` names."}),
}
