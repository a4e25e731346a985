"""A signed head: the end of a ledger's chain at a moment, to be kept where the ledger is not.

Whoever rewrites a whole file can compute a chain that fits. A head from before then names a link that the new chain
does not have.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.errors import CassetteInvalid, ConfigError, InvalidRequest
from claudemesh.runtime.home import read_private, write_private
from claudemesh.runtime.keys import KeyPair, verify

KIND: Final = "claudemesh-ledger-head-1"

Head = dict[str, Any]

_SEED_BYTES: Final = 32
_SIGNED: Final = ("kind", "ledger_id", "seq", "hash", "at", "pubkey")


def sign(keys: KeyPair, ledger_id: str, seq: int, hash_: str, at: str) -> Head:
    head: Head = {"kind": KIND, "ledger_id": ledger_id, "seq": seq, "hash": hash_, "at": at, "pubkey": keys.pubkey}
    return head | {"signature": keys.sign(canonicalize(head))}


def signing_key(path: Path) -> KeyPair:
    """Return the key that heads are signed with here; it is made with the first of them."""
    with suppress(FileExistsError):
        write_private(path, KeyPair.generate().seed.hex().encode(), replace=False)
    try:
        seed = bytes.fromhex(read_private(path).decode())
    except ValueError:
        seed = b""
    if len(seed) != _SEED_BYTES:
        raise ConfigError(f"{path} does not hold a key: move it away, and a new one is made")
    return KeyPair(seed)


def parse(text: str | bytes, pubkey: str | None = None) -> Head:
    """Return a head as it was printed, or refuse what is none or was not signed by the key that it names.

    Whoever can swap the head that was kept can name a key of their own in it: then say whose it must be.
    """
    try:
        head: Head = json.loads(text)
        body = {name: head[name] for name in _SIGNED}
        is_signed = verify(str(head["pubkey"]), canonicalize(body), str(head["signature"]))
    except KeyError as error:
        raise CassetteInvalid(f"this is no head of a ledger: it has no {error}") from error
    except (ValueError, TypeError, RecursionError, InvalidRequest) as error:
        raise CassetteInvalid(f"this is no head of a ledger: {error}") from error
    if head["kind"] != KIND or type(head["seq"]) is not int or head["seq"] < 0 or not is_signed:
        raise CassetteInvalid("the head's signature is not that of its content")
    if pubkey is not None and head["pubkey"] != pubkey:
        raise CassetteInvalid(f"the head is signed by {head['pubkey']}, and not by {pubkey}")
    return head
