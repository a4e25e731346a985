"""What things of a mesh may be called, the same on both sides of the wire.

A slug names a mesh in paths and commands; a topic or a queue is named in messages. Members are people's and agents'
names: any letters, told apart after folding case and Unicode form, so that two that look alike are one.
"""

import re
import unicodedata
from typing import Final, Literal, get_args

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.texts import UNSEEN

MEMBER_NAME_LENGTH_MAX: Final = 64
ABOUT_LENGTH_MAX: Final = 280

Policy = Literal["prefer_newest", "prefer_oldest", "allow_concurrent"]  # what a second daemon of one member means
POLICIES: Final[tuple[str, ...]] = get_args(Policy)
SENDS_PER_WINDOW_MAX: Final = 1_000_000  # what a limiter has to remember of a member

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
TOPIC_PATTERN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?"
_TOPIC = re.compile(TOPIC_PATTERN)


def parse_slug(text: str) -> str:
    if not _SLUG.fullmatch(text):
        raise InvalidRequest("a mesh's slug is 1 to 63 of a-z, 0-9 and -, and begins and ends without a -")
    return text


def parse_topic(text: str) -> str:
    """Accept the name of a topic or a queue."""
    if not _TOPIC.fullmatch(text):
        raise InvalidRequest("a topic's or queue's name is 1 to 128 of A-Z, a-z, 0-9, '.', '_', '-' and '/'")
    return text


def parse_member_name(text: str) -> str:
    """Accept what a person could type and a terminal could show: no control characters, no space at the ends.

    Nothing unseen either: a name with such a character looks like the name without it.
    """
    name = unicodedata.normalize("NFC", text)
    is_shown = all(
        (unicodedata.category(character)[0] in "LMNPS" and character not in UNSEEN) or character == " "
        for character in name
    )
    if not 1 <= len(name) <= MEMBER_NAME_LENGTH_MAX or name != name.strip() or not is_shown:
        raise InvalidRequest(f"a member's name is 1 to {MEMBER_NAME_LENGTH_MAX} printable characters")
    if _KEY.fullmatch(name):
        raise InvalidRequest("a member's name does not look like a public key")
    if name.startswith(("#", "queue:")):
        raise InvalidRequest("a member's name does not begin with '#' or 'queue:': they mark topics and queues")
    return name


def fold_member_name(name: str) -> str:
    """Return the form that must be unique within a mesh: without case, width and ways of writing one letter."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
