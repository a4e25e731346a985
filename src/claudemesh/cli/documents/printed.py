"""What a command prints, as a type: one document, or one on each line; which of several; and its JSON Schema.

The words that lead to a document are those of the command, and then of whatever makes it print another one:
`claudemesh inbox --follow`, `claudemesh pipeline run orphans`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Printed:
    """`exits` says of further exit codes when a command ends with them although it printed its document."""

    types: tuple[Any, ...]
    is_stream: bool = False
    exits: Mapping[int, str] | None = None
    instead: str = ""  # what it has standard output for, of a command without a document

    def schema(self, title: str) -> Json:
        """Return the schema of the document, or of each line."""
        parts, components = msgspec.json.schema_components(self.types, ref_template="#/$defs/{name}")
        said = parts[0] if len(parts) == 1 else {"anyOf": list(parts)}
        return {"$schema": DIALECT, "title": title, **said, **({"$defs": components} if components else {})}


def one(*types: Any, exits: Mapping[int, str] | None = None) -> Printed:  # noqa: ANN401 - a type, or a union
    """Say that it is one document, of this type or one of these; `None` among them is JSON's null."""
    return Printed(types, exits=exits)


def lines(*types: Any) -> Printed:  # noqa: ANN401 - as above
    """Say that it is one object on each line, for as long as it runs."""
    return Printed(types, is_stream=True)


def silent(instead: str) -> Printed:
    """Say that it prints no document, unless it fails, and what is on standard output in its place."""
    return Printed((), instead=instead)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What every command prints instead if it fails (RFC 9457). More members tell more, by the code's own names.

    `code` is one of `docs/reference/errors.md`. `retry` says what a second try may look like.
    """

    type: str
    title: str
    status: int
    code: str
    retry: Literal["no", "same_id", "after"]
    detail: str | msgspec.UnsetType = msgspec.UNSET
    instance: str | msgspec.UnsetType = msgspec.UNSET


def choose(known: Iterable[str], command: str, said: Collection[str]) -> str | None:
    """Return which of a command's documents it prints, given its words and what else was said to it."""
    longer = [key for key in known if key.startswith(f"{command} ") and key.removeprefix(f"{command} ") in said]
    return longer[0] if longer else command if command in known else None
