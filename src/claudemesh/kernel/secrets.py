"""What looks like a credential. A stand-in until the real one is merged."""

import re
from typing import Final, NamedTuple

from claudemesh.kernel.canonical import Json

_NAMES: Final = frozenset(
    {"password", "passwd", "secret", "token", "api_key", "authorization", "cookie", "private_key"}
)
_SHAPES: Final = re.compile(r"AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bgh[pousr]_[A-Za-z0-9]{36}\b")
_PLACEHOLDER_MAX: Final = 3


class Finding(NamedTuple):
    where: str
    kind: str


def find_secret(value: Json, where: str = "body") -> Finding | None:
    if isinstance(value, str):
        found = find_secret_text(value)
        return found and Finding(where, found.kind)
    if isinstance(value, dict):
        for name, below in value.items():
            if name.lower() in _NAMES and isinstance(below, str) and len(below) > _PLACEHOLDER_MAX:
                return Finding(f"{where}.{name}", "secret_field")
            if found := find_secret(below, f"{where}.{name}"):
                return found
    if isinstance(value, list):
        for below in value:
            if found := find_secret(below, where):
                return found
    return None


def find_secret_text(text: str) -> Finding | None:
    return Finding("value", "shape") if _SHAPES.search(text) else None
