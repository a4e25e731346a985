"""A signed head: the end of a ledger's chain at a moment, to be kept where the ledger is not.

Whoever rewrites a whole file can compute a chain that fits. A head from before then names a link that the new chain
does not have.
"""

import json
from typing import Any, Final

from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.errors import CassetteInvalid, InvalidRequest
from claudemesh.runtime.keys import KeyPair, verify

KIND: Final = "claudemesh-ledger-head-1"

Head = dict[str, Any]

_SIGNED: Final = ("kind", "ledger_id", "seq", "hash", "at", "pubkey")


def sign(keys: KeyPair, ledger_id: str, seq: int, hash_: str, at: str) -> Head:
    head: Head = {"kind": KIND, "ledger_id": ledger_id, "seq": seq, "hash": hash_, "at": at, "pubkey": keys.pubkey}
    return head | {"signature": keys.sign(canonicalize(head))}


def parse(text: str | bytes) -> Head:
    """Return a head as it was printed, or refuse what is none or was not signed by the key that it names."""
    try:
        head: Head = json.loads(text)
        body = {name: head[name] for name in _SIGNED}
        is_signed = verify(str(head["pubkey"]), canonicalize(body), str(head["signature"]))
    except (ValueError, TypeError, KeyError, InvalidRequest) as error:
        raise CassetteInvalid(f"this is no head of a ledger: {error}") from error
    if head["kind"] != KIND or not isinstance(head["seq"], int) or not is_signed:
        raise CassetteInvalid("the head's signature is not that of its content")
    return head
