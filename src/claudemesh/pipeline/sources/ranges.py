"""Ranges of numbers: which rows of a store are in a copy, and which of them a partition reads. Pure.

A range is `(after, upto)`: without its first number, with its last. A mark is how far a series has come; where each
of some owners has a series of their own, an owner stands before the mark, and before a range.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
Marks: TypeAlias = Iterable[Sequence[int]]  # each with its owner, or alone


def rise(since: Marks, upto: Marks) -> list[tuple[int, ...]]:
    """Return the ranges between marks; an owner that had none begins with the first number."""
    begun = {tuple(owner): number for *owner, number in since}
    ends = {tuple(owner): number for *owner, number in upto}
    return [(*owner, begun.get(owner, 0), end) for owner, end in ends.items() if end > begun.get(owner, 0)]


def is_behind(marks: Marks, since: Marks) -> bool:
    """Say whether any mark is before what it was."""
    return bool(rise(marks, since))


def to_ranges(numbers: Iterable[int]) -> list[Range]:
    """Join numbers that follow each other; they come in their order."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number - 1, number))
    return ranges


def subtract(ranges: Iterable[tuple[int, ...]], without: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return what of the ranges is in none of the others; both are in order and do not overlap in themselves."""
    left: list[tuple[int, ...]] = []
    first = 0  # of the others, that may still matter: there may be many thousands of either
    for after, upto in ranges:
        while first < len(without) and without[first][1] <= after:
            first += 1
        start, other = after, first
        while other < len(without) and without[other][0] < upto:
            if without[other][0] > start:
                left.append((start, without[other][0]))
            start = max(start, without[other][1])
            other += 1
        if start < upto:
            left.append((start, upto))
    return left


def split(ranges: Sequence[tuple[int, ...]], parts: int, rows_min: int) -> list[list[tuple[int, ...]]]:
    """Share the ranges out to so many partitions, about equally, but not in pieces smaller than `rows_min`.

    The last two numbers of an entry are its range; what stands before them stays with every piece.
    """
    total = sum(entry[-1] - entry[-2] for entry in ranges)
    size = max(rows_min, -(-total // parts), 1)
    shares: list[list[tuple[int, ...]]] = [[]]
    room = size
    for *key, after, upto in ranges:
        start = after
        while start < upto:
            if room == 0:
                shares.append([])
                room = size
            end = min(upto, start + room)
            shares[-1].append((*key, start, end))
            room -= end - start
            start = end
    return [share for share in shares if share]
