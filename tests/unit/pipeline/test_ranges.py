"""Ranges are sets of numbers: what is made of them is what sets would say."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.pipeline.sources.ranges import is_behind, rise, split, subtract, to_ranges

few_examples = settings(max_examples=50, deadline=None)
some_runs = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=5)
some_numbers = some_runs.map(lambda runs: {start + i for start, length in runs for i in range(1, length + 1)})
some_marks = st.dictionaries(st.integers(1, 3), st.integers(0, 9))  # of owners
some_shares = st.dictionaries(st.integers(1, 3), some_numbers)


def numbers_in(ranges: Iterable[tuple[int, ...]]) -> list[int]:
    return [number for after, upto in ranges for number in range(after + 1, upto + 1)]


def owned(ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    return [(owner, number) for owner, after, upto in ranges for number in range(after + 1, upto + 1)]


def listed(marks: dict[int, int]) -> list[list[int]]:
    return [[owner, number] for owner, number in marks.items()]


# --- marks -----------------------------------------------------------------------------------------------


def test_a_series_rises_from_its_mark_and_a_new_one_from_its_first_number() -> None:
    assert rise([[3]], [[5]]) == [(3, 5)]
    assert rise([], [[5]]) == [(0, 5)]
    assert rise([[1, 3], [2, 4]], [[1, 3], [2, 6], [7, 1]]) == [(2, 4, 6), (7, 0, 1)]


@few_examples
@given(since=some_marks, upto=some_marks)
def test_what_rises_is_what_is_below_the_later_marks_and_not_below_the_earlier(
    since: dict[int, int], upto: dict[int, int]
) -> None:
    def below(marks: dict[int, int]) -> set[tuple[int, int]]:
        return {(owner, number) for owner, mark in marks.items() for number in range(1, mark + 1)}

    risen = rise(listed(since), listed(upto))
    assert sorted(owned(risen)) == sorted(below(upto) - below(since))
    assert all(after < end for _, after, end in risen), "no range is empty"


def test_marks_are_behind_if_one_is_less_or_gone() -> None:
    before = [[1, 3], [2, 4]]
    assert not is_behind([[1, 3], [2, 4]], before)
    assert not is_behind([[1, 9], [2, 4], [3, 1]], before)
    assert is_behind([[1, 9], [2, 3]], before)
    assert is_behind([[1, 9]], before)


# --- ranges ----------------------------------------------------------------------------------------------


def test_numbers_that_follow_each_other_are_one_range() -> None:
    assert to_ranges([1, 2, 3, 7, 9, 10]) == [(0, 3), (6, 7), (8, 10)]
    assert to_ranges([]) == []


@few_examples
@given(numbers=some_numbers)
def test_ranges_hold_the_numbers_that_they_were_made_of_and_do_not_touch(numbers: set[int]) -> None:
    ranges = to_ranges(sorted(numbers))
    assert numbers_in(ranges) == sorted(numbers)
    assert all(upto < after for (_, upto), (after, _) in pairwise(ranges))


def test_what_is_subtracted_may_cut_a_range_in_two_or_end_it() -> None:
    assert subtract([(0, 10)], [(3, 5)]) == [(0, 3), (5, 10)]
    assert subtract([(0, 10), (20, 30)], [(0, 4), (8, 22), (29, 40)]) == [(4, 8), (22, 29)]
    assert subtract([(0, 10)], [(0, 10)]) == []
    assert subtract([(0, 10)], [(10, 20)]) == [(0, 10)]


@few_examples
@given(numbers=some_numbers, without=some_numbers)
def test_what_is_left_is_in_the_ranges_and_in_none_of_the_others(numbers: set[int], without: set[int]) -> None:
    left = subtract(to_ranges(sorted(numbers)), to_ranges(sorted(without)))
    assert numbers_in(left) == sorted(numbers - without)
    assert all(after < upto for after, upto in left), "no range is empty"


# --- shares ----------------------------------------------------------------------------------------------


def test_ranges_are_shared_out_about_equally_and_each_piece_keeps_its_owner() -> None:
    ranges = [(1, 0, 5), (2, 10, 13)]
    assert split(ranges, 2, 1) == [[(1, 0, 4)], [(1, 4, 5), (2, 10, 13)]]
    assert split(ranges, 4, 3) == [[(1, 0, 3)], [(1, 3, 5), (2, 10, 11)], [(2, 11, 13)]]
    assert split(ranges, 4, 100) == [ranges], "a share is not worth it"
    assert split([(0, 4)], 2, 1) == [[(0, 2)], [(2, 4)]], "or has none"
    assert split([], 4, 1) == []


@few_examples
@given(shares=some_shares, parts=st.integers(1, 6), rows_min=st.integers(1, 20))
def test_shares_hold_every_number_once_are_so_many_at_most_and_none_but_the_last_is_small(
    shares: dict[int, set[int]], parts: int, rows_min: int
) -> None:
    ranges = [(owner, *one) for owner, numbers in shares.items() for one in to_ranges(sorted(numbers))]
    pieces = split(ranges, parts, rows_min)
    assert [one for piece in pieces for one in owned(piece)] == owned(ranges)
    assert len(pieces) <= parts
    sizes = [len(owned(piece)) for piece in pieces]
    assert all(size >= rows_min for size in sizes[:-1])
    assert len({*sizes[:-1]}) <= 1, "about equally"
    assert sizes[-1:] <= sizes[:1]
