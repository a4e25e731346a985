"""A hash chain: each link is made of the one before it and of one row, so that no row changes without a trace."""

from hashlib import sha256
from typing import Final

from claudemesh.kernel.canonical import Json, canonicalize

GENESIS: Final = "0" * 64  # what the first link is made of, in the place of a link before it


def derive_link(previous: str, kind: str, row: dict[str, Json]) -> str:
    """Return the hash of the link for a row of some kind, after the link whose hash is given; both in hex."""
    return sha256(bytes.fromhex(previous) + canonicalize({"kind": kind, "row": dict(row)})).hexdigest()
