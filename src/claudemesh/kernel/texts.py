"""Texts of other people, made so that they can do nothing but be read.

Every character is escaped that could move a cursor, hide or reorder what stands around it: in a terminal, in a
page, and in what an agent is given to read.
"""

from typing import Final

# Spaces of other scripts. All else that Python does not call printable is shown by its number: controls, marks of
# direction, joiners without width, private and unassigned characters, halves of surrogate pairs.
_SPACES: Final = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)

# Letters, marks and symbols that show nothing, and yet are printable to Python. A reader sees a text without them,
# and a model reads one with them: a run of variation selectors can spell out a whole sentence.
UNSEEN: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2800, 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


# It asks for the emoji of a sign. One, behind a sign that shows, is what people type: nothing hides in it.
_AS_EMOJI: Final = "\ufe0f"


def escape(text: object, *, lines: bool = False) -> str:
    """Return a text that can do nothing but be read; with `lines` its line breaks stay."""
    whole = str(text)
    return "".join(
        character if _shows(character, before) or (lines and character == "\n") else _number(character)
        for before, character in zip(f" {whole}", whole, strict=False)
    )


def _shows(character: str, before: str) -> bool:
    if character in UNSEEN:
        return character == _AS_EMOJI and before.isprintable() and not before.isspace() and before not in UNSEEN
    return character.isprintable() or character in _SPACES


# What could end quotes, or a tag around them; a backslash too, so that nobody writes an escape of ours.
_MARKS: Final = {'"': '\\"', "\\": "\\\\", "<": "\\u003c", ">": "\\u003e"}


def confine(text: str, chars_max: int) -> str:
    """Return the beginning of a text, such that it can end neither the quotes nor the tag that it is put into."""
    shown = ""
    for character in text:
        more = _MARKS.get(character) or escape(character)
        if len(shown) + len(more) > chars_max:
            return f"{shown}…"
        shown += more
    return shown


def _number(character: str) -> str:
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004
