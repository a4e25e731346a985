"""What a send may hold beside its body, the same at the daemon's door and at the broker's.

Checked before a fingerprint is made: the canonical form of a large meta costs time, and nobody should be able to
spend another's. What passes here passes at every hop, so a daemon never acknowledges what the broker must refuse.
"""

from typing import Final

import orjson

from claudemesh.kernel.canonical import Json
from claudemesh.kernel.errors import InvalidRequest, PayloadTooLarge
from claudemesh.kernel.fingerprint import MENTIONS

META_BYTES_MAX: Final = 64 * 1024
MENTIONS_MAX: Final = 256
MENTION_LENGTH_MAX: Final = 128  # a store may not be able to look up longer ones
REPLY_TO_LENGTH_MAX: Final = 128


def check_contents(meta: dict[str, Json] | None, reply_to: str) -> tuple[str, ...]:
    """Return the mentions, each once, or refuse what is too large or not of its kind."""
    if len(reply_to) > REPLY_TO_LENGTH_MAX:
        raise InvalidRequest(f"reply_to is longer than {REPLY_TO_LENGTH_MAX} characters")
    if not meta:
        return ()
    try:
        size = len(orjson.dumps(meta))
    except (TypeError, ValueError) as error:  # an integer beyond 64 bits, a lone surrogate, nested too deeply
        raise InvalidRequest("meta holds something that has no stored form") from error
    if size > META_BYTES_MAX:
        raise PayloadTooLarge(f"meta has {size} bytes, and at most {META_BYTES_MAX} are taken")
    return _mentions(meta.get(MENTIONS))


def _mentions(mentions: Json) -> tuple[str, ...]:
    if mentions is None:
        return ()
    if not isinstance(mentions, list) or not all(isinstance(mention, str) for mention in mentions):
        raise InvalidRequest(f"meta.{MENTIONS} is a list of texts")
    if len(mentions) > MENTIONS_MAX:
        raise InvalidRequest(f"more than {MENTIONS_MAX} mentions")
    if any(len(str(mention)) > MENTION_LENGTH_MAX for mention in mentions):
        raise InvalidRequest(f"a mention is longer than {MENTION_LENGTH_MAX} characters")
    return tuple(dict.fromkeys(str(mention) for mention in mentions))
