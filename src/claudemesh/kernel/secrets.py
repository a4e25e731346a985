"""What looks like a credential, in a JSON value or in a text: so that none is ever written to a disk.

Three things give one away: its shape (`secret_shapes.py`), the name beside it (`secret_names.py`), and how it is
written (`secret_texts.py`): `password=…`, `Authorization: …`, `user:password@host`, `Cookie: …`. All of it costs
time in proportion to the length of the text, whatever is in the text. What is reported is where and which kind,
never the value.

How much of what is found, and how often something harmless is taken for a secret, is measured: see
docs/explanation/secrets.md.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from claudemesh.kernel.canonical import Json
from claudemesh.kernel.secret_names import is_opaque, is_placeholder, may_name_secret, names_password, names_secret
from claudemesh.kernel.secret_shapes import SHORTEST, find_shape
from claudemesh.kernel.secret_texts import find_written


class Finding(NamedTuple):
    where: str  # "body.details.password", or "value" for a text; never what is there
    kind: str


# Most texts have no word as long as a credential. Drawn in two signs, one of them for whitespace, that is quickly
# seen. Whatever is beyond ASCII counts as no whitespace, and is looked at more closely then.
_SPACES: Final = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"
_DRAWN: Final = bytes(ord(" " if code in _SPACES else "x") for code in range(256))
_LONG: Final = b"x" * SHORTEST
# A ulid, a uuid, a number or a digest: whoever writes under a key mostly takes one of these.
_PLAIN_ID = re.compile(r"[0-9a-f-]{1,64}|[0-7][0-9A-HJKMNP-TV-Z]{25}")


def find_secret(value: Json) -> Finding | None:
    """Return the first thing in the value that looks like a credential, by its field's name or by itself."""
    names, texts = _collect(value)
    if may_name_secret("\n".join(names)):
        for leaf in _walk(value):
            if leaf.promised and _keeps_promise(leaf):
                return Finding(_render(leaf), "secret_field")
    # A look at all of them together is quick, and nearly always the last: no pattern goes beyond a line's end.
    if find_secret_text("\n".join((*names, *texts))) is None:
        return None
    found = ((leaf, find_secret_text(leaf.value)) for leaf in _walk(value) if isinstance(leaf.value, str))
    return next((Finding(_render(leaf), finding.kind) for leaf, finding in found if finding), None)


def _collect(root: Json) -> tuple[list[str], list[str]]:
    """Return all names of fields and all texts, in no order."""
    names: list[str] = []
    texts: list[str] = []
    stack = [root]
    while stack:
        at = stack.pop()
        if isinstance(at, str):
            texts.append(at)
        elif isinstance(at, dict):
            names += at
            stack += at.values()
        elif isinstance(at, list):
            stack += at
    return names, texts


def find_secret_text(text: str) -> Finding | None:
    """Return what in the text looks like a credential, or None."""
    if len(text) < _TEXT_SHORTEST or _PLAIN_ID.fullmatch(text):
        return None
    kind = find_written(text)
    if kind is None and _LONG in text.encode(errors="replace").translate(_DRAWN):
        kind = find_shape("\n".join(word for word in text.split() if len(word) >= SHORTEST))
    return Finding("value", kind) if kind else None


# --- fields ------------------------------------------------------------------------------------------


class _Leaf(NamedTuple):
    value: Json
    above: "_Leaf | None"
    step: str | int  # the name of the field, or its place in the list; "" at the root
    promised: str  # the name that says a secret is here, or ""
    is_direct: bool  # that name is the field's own, or of a list of such values


def _walk(root: Json) -> Iterator[_Leaf]:
    """Yield every value that holds no other, and every name of a field as if it were one; without recursion."""
    stack = [_Leaf(root, None, "", "", is_direct=False)]
    while stack:
        at = stack.pop()
        if isinstance(at.value, dict):
            for name, below in reversed(at.value.items()):
                own = name if names_secret(name) else ""
                stack.append(_Leaf(below, at, name, own or at.promised, bool(own)))
                stack.append(_Leaf(name, at, name, "", is_direct=False))
        elif isinstance(at.value, list):
            stack += [
                _Leaf(below, at, index, at.promised, at.is_direct)
                for index, below in reversed([*enumerate(at.value)])
            ]
        else:
            yield at


def _keeps_promise(leaf: _Leaf) -> bool:
    value = leaf.value
    if isinstance(value, str):
        if is_placeholder(value):
            return False
        return leaf.is_direct or (len(value) >= _OPAQUE_SHORTEST and is_opaque(value) and not _SPACE.search(value))
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    # A password may be a number; a token's number is how many of them there are.
    return leaf.is_direct and names_password(leaf.promised) and value >= _NUMBER_SMALLEST


def _render(leaf: _Leaf | None) -> str:
    steps = []
    while leaf is not None and leaf.above is not None:
        steps.append(_render_step(leaf.step))
        leaf = leaf.above
    return "body" + "".join(reversed(steps))


def _render_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_plain = _PLAIN_NAME.fullmatch(step) and find_secret_text(step) is None  # a secret may be a name, too
    return f".{step}" if is_plain else ".*"


_TEXT_SHORTEST: Final = 8
_OPAQUE_SHORTEST: Final = 8
_NUMBER_SMALLEST: Final = 1000
_SPACE = re.compile(r"\s")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
