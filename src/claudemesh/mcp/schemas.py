"""Arguments and results as JSON Schema, in the one form that every version of the protocol takes: an object."""

from functools import cache
from typing import Any

import msgspec

Json = dict[str, Any]


@cache
def describe(struct: type[msgspec.Struct]) -> Json:
    """Return the schema of a struct, with what it refers to below `$defs`."""
    (root,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    name = root["$ref"].removeprefix("#/$defs/")
    own: Json = dict(parts[name])
    own.pop("title", None)
    others = {each: part for each, part in parts.items() if each != name}
    return own | ({"$defs": others} if others else {})
