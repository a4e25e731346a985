"""Fresh bearer tokens from real entropy."""

import secrets
from typing import Final

TOKEN_BYTES: Final = 32


def fresh_token() -> str:
    """Return 256 bits that nobody can guess, as 43 characters that need no quoting anywhere."""
    return secrets.token_urlsafe(TOKEN_BYTES)
