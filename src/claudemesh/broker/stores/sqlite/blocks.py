"""History ids as bits: a block of them is one row of `delivery_open`."""

from collections.abc import Iterable, Iterator
from typing import Final

BLOCK: Final = 60  # bits that fit into an integer of the store, with room for its sign


def to_blocks(history_ids: Iterable[int]) -> dict[int, int]:
    """Return the bits of each block."""
    blocks: dict[int, int] = {}
    for history_id in history_ids:
        block, place = divmod(history_id, BLOCK)
        blocks[block] = blocks.get(block, 0) | 1 << place
    return blocks


def from_block(block: int, bits: int) -> Iterator[int]:
    """Yield the history ids of a block, in order."""
    first = block * BLOCK
    while bits:
        lowest = bits & -bits
        yield first + lowest.bit_length() - 1
        bits ^= lowest
