"""Texts of ours in files for agents: a whole file that says whether it was touched, and a block in somebody's file.

The skill file ends with the digest of all before it. So a later version may replace an older one, and what its
owner has changed is theirs. The block in AGENTS.md stands between two marks; `drop_block` of what `put_block` put
in gives back the very text that was there before.
"""

import hashlib
import re
from importlib.resources import files
from typing import Final

BEGIN: Final = "<!-- claudemesh:begin (written by `claudemesh install`; `claudemesh uninstall` takes it out) -->"
END: Final = "<!-- claudemesh:end -->"

_SEAL: Final = "<!-- claudemesh install wrote this file; sha256 of what stands above: {} -->\n"
_SEALED: Final = re.compile(r"<!-- claudemesh install wrote this file;[^\n:]*: ([0-9a-f]{64}) -->\n")
_SEAL_BEGIN: Final = "<!-- claudemesh install wrote this file;"


class DamagedBlockError(ValueError):
    """The marks of our block are not there once each, in their order."""


def read_skill() -> str:
    """Return the skill file as it is to be, sealed."""
    body = _template("SKILL.md")
    return body + _SEAL.format(_digest(body))


def is_untouched(text: str) -> bool:
    """Say whether a skill file is just as some version of ours wrote it."""
    start = text.rfind(_SEAL_BEGIN)  # the last, so that a text of many such marks costs no more than one of few
    found = None if start < 0 else _SEALED.fullmatch(text, start)
    return found is not None and found[1] == _digest(text[:start])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_block() -> str:
    """Return the block for AGENTS.md, marks and all, without an end of line."""
    return f"{BEGIN}\n{_template('AGENTS.md').rstrip()}\n{END}"


def find_block(text: str) -> str | None:
    """Return the block that stands in a text, None if there is none; DamagedBlockError if it cannot be told."""
    if BEGIN not in text and END not in text:
        return None
    start, end = text.find(BEGIN), text.find(END)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or end < start:
        raise DamagedBlockError("the marks of its claudemesh block do not stand there once each, in their order")
    return text[start : end + len(END)]


def put_block(text: str, block: str) -> str:
    """Put the block in place of the one that stands there, or at the end."""
    standing = find_block(text)
    newline = _newline(text if standing is None else standing)
    wanted = block.replace("\n", newline)
    if standing is not None:
        return text.replace(standing, wanted)
    if not text:
        return wanted + newline
    return text + newline + wanted + newline if text.endswith("\n") else text + newline * 2 + wanted


def drop_block(text: str) -> str:
    """Take the block out, and the empty line before it."""
    standing = find_block(text)
    if standing is None:
        return text
    before, after = text.split(standing)
    newline = _newline(standing)
    if after.startswith(newline):
        return before.removesuffix(newline) + after.removeprefix(newline)
    return before.removesuffix(newline * 2) + after


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _template(name: str) -> str:
    return (files("claudemesh.cli.host") / "texts" / name).read_text(encoding="utf-8")
