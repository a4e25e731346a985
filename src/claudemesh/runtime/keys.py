"""Ed25519 keys: made, used, and never printed.

Public keys and signatures travel as lower-case hex. Verification is libsodium's: it refuses signatures and keys
that are not in their one canonical form, and keys of small order.
"""

import hmac
import re
from typing import Self

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

SIGNATURE_HEX_LENGTH = 128

_PUBKEY = re.compile(r"[0-9a-f]{64}", re.ASCII)


class KeyPair:
    """A private key that can sign and say its public half; its `repr` shows nothing of the private one."""

    def __init__(self, seed: bytes) -> None:
        self._key = SigningKey(seed)
        self.pubkey = self._key.verify_key.encode().hex()

    @classmethod
    def generate(cls) -> Self:
        return cls(SigningKey.generate().encode())

    def derive(self, purpose: bytes) -> Self:
        """Return the pair that belongs to a purpose: always the same, and nobody without this one can tell it."""
        return type(self)(hmac.digest(self.seed, purpose, "sha256"))

    @property
    def seed(self) -> bytes:
        return self._key.encode()

    @property
    def x25519_pubkey(self) -> str:
        return self._key.to_curve25519_private_key().public_key.encode().hex()

    def sign(self, message: bytes) -> str:
        return self._key.sign(message).signature.hex()

    def __repr__(self) -> str:
        return f"KeyPair({self.pubkey})"


def is_pubkey(text: str) -> bool:
    return _PUBKEY.fullmatch(text) is not None


def verify(pubkey: str, message: bytes, signature: str) -> bool:
    """Say whether the signature is this key's over this message; anything malformed is a plain no."""
    if not is_pubkey(pubkey) or len(signature) != SIGNATURE_HEX_LENGTH:
        return False
    try:
        VerifyKey(bytes.fromhex(pubkey)).verify(message, bytes.fromhex(signature))
    except (CryptoError, ValueError):
        return False
    return True
