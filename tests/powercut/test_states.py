"""Which disks a power cut can leave behind, on logs that are written by hand."""

from pathlib import Path

import pytest

from tests.powercut.recorder import (
    Created,
    Deleted,
    DirectorySynced,
    Events,
    Found,
    Log,
    Mark,
    SyncBegun,
    SyncEnded,
    Truncated,
    Written,
)
from tests.powercut.states import State, cuts, last_state, state_of, states, with_lie

SEED = 7
MANY = 400
A, B = 0, 1
NAME = "a"


def synced(number: int, file: int = A) -> Log:
    return [SyncBegun(number, file, NAME, 2), SyncEnded(number)]


def contents(*events: Events, since: int = 0) -> set[bytes | None]:
    """Return what the file may hold after a cut, None if it is not there."""
    found = states([Found(A, NAME, b""), *events], SEED, MANY, since=since)
    return {bytes(state.files[NAME]) if NAME in state.files else None for state in found}


def at_the_end(*events: Events) -> set[bytes | None]:
    return contents(*events, since=len(events) + 1)


def test_what_was_synced_is_always_there() -> None:
    assert at_the_end(Written(A, 0, b"xyz"), *synced(1)) == {b"xyz"}


def test_what_was_not_synced_is_there_or_not_or_torn_after_any_byte_or_only_its_room_is() -> None:
    assert at_the_end(Written(A, 0, b"xyz")) == {b"", b"x", b"xy", b"xyz", b"\0\0\0"}


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    found = at_the_end(Written(A, 0, b"x"), Written(A, 1, b"y"))
    assert {b"", b"x", b"xy", b"\0y"} <= found <= {b"", b"x", b"xy", b"\0y", b"\0", b"x\0", b"\0\0"}


def test_an_overwrite_may_leave_the_old_bytes() -> None:
    found = at_the_end(Written(A, 0, b"abc"), *synced(1), Written(A, 0, b"xyz"))
    assert found == {b"abc", b"xbc", b"xyc", b"xyz"}


def test_a_torn_write_may_leave_any_of_its_sectors_as_the_disk_counts_them() -> None:
    old, new = b"." * 1_536, b"x" * 1_100
    found = at_the_end(Written(A, 0, old), *synced(1), Written(A, 200, new))
    first, second, third = (slice(200, 512), slice(512, 1_024), slice(1_024, 1_300))
    for kept in ([first], [second], [third], [first, third], [second, third], [first, second, third], []):
        disk = bytearray(old)
        for sector in kept:
            disk[sector] = b"x" * (sector.stop - sector.start)
        assert bytes(disk) in found


def test_a_truncation_may_be_lost_and_a_write_after_it_be_there() -> None:
    found = at_the_end(Written(A, 0, b"long"), *synced(1), Truncated(A, 1), Written(A, 1, b"!"))
    assert found == {b"long", b"l", b"l!", b"l!ng", b"l\0"}


def test_a_truncation_can_make_a_file_longer() -> None:
    assert at_the_end(Truncated(A, 2), *synced(1)) == {b"\0\0"}


def test_a_sync_is_not_for_what_is_written_while_it_lasts() -> None:
    found = at_the_end(Written(A, 0, b"x"), SyncBegun(1, A, NAME, 2), Written(A, 1, b"y"), SyncEnded(1))
    assert found == {b"x", b"xy", b"x\0"}


def test_two_syncs_at_once_may_end_in_any_order() -> None:
    first, second = SyncBegun(1, A, NAME, 2), SyncBegun(2, A, NAME, 2)
    writes = Written(A, 0, b"x"), first, Written(A, 1, b"y"), second
    assert at_the_end(*writes, SyncEnded(2), SyncEnded(1)) == {b"xy"}
    assert at_the_end(*writes, SyncEnded(1), SyncEnded(2)) == {b"xy"}
    assert at_the_end(*writes, SyncEnded(1)) == {b"x", b"xy", b"x\0"}


def test_a_sync_that_is_a_lie_is_none() -> None:
    log = [Found(A, NAME, b""), Written(A, 0, b"x"), *synced(1), Mark("ack", 1)]
    assert all(state.files[NAME] == b"x" for state in states(log, SEED, MANY, since=4))
    assert any(state.files[NAME] == b"" for state in states(with_lie(log, 1), SEED, MANY, since=4))


def test_a_new_file_is_surely_found_only_after_its_directory_was_synced() -> None:
    made: Log = [Created(B, "new"), Written(B, 0, b"x"), *synced(1, B)]
    found = {tuple(state.files) for state in states(made, SEED, MANY, since=4)}
    assert found == {(), ("new",)}
    found = {tuple(state.files) for state in states([*made, DirectorySynced(".")], SEED, MANY, since=5)}
    assert found == {("new",)}
    found = {tuple(state.files) for state in states([*made, DirectorySynced("other")], SEED, MANY, since=5)}
    assert found == {(), ("new",)}


def test_a_deleted_file_may_come_back_with_its_bytes_until_the_directory_was_synced() -> None:
    gone = [Written(A, 0, b"x"), *synced(1), Deleted(NAME)]
    assert at_the_end(*gone) == {b"x", None}
    assert at_the_end(*gone, DirectorySynced(".")) == {None}


def test_a_file_that_is_made_anew_has_nothing_of_the_old_one() -> None:
    old = [Written(A, 0, b"old"), *synced(1), Deleted(NAME)]
    new = [Created(B, NAME), Written(B, 0, b"n"), *synced(2, B)]
    assert at_the_end(*old, *new) == {None, b"old", b"n"}
    assert at_the_end(*old, *new, DirectorySynced(".")) == {b"n"}


# --- where it is cut, and how a state is found again -------------------------------------------------------

LOG: Log = [
    Found(A, NAME, b""),
    Mark("put", 1),
    *(Written(A, n * 600, bytes([n + 1]) * 600) for n in range(5)),
    *synced(1),
    Mark("ack", 1),
    *(Written(A, n * 600, bytes([n + 9]) * 600) for n in range(5)),
]


def test_it_is_cut_around_every_sync_at_every_mark_and_at_the_end() -> None:
    assert [(cut.position, cut.moment, cut.freedom > 1) for cut in cuts(LOG)] == [
        (2, "at the mark put 1", False),
        (7, "before sync 1 of a", True),
        (9, "after sync 1 of a", False),
        (10, "at the mark ack 1", False),
        (15, "at the end", True),
    ]


def test_a_state_knows_what_clients_had_been_told() -> None:
    told = {(state.number.partition(".")[0], *sorted(state.marks.of("ack"))) for state in states(LOG, SEED, MANY)}
    assert told == {("2",), ("7",), ("9",), ("10", 1), ("15", 1)}


def test_as_many_states_as_are_asked_for_and_no_two_are_the_same() -> None:
    found = [(state.marks.of("ack"), *state.files.values()) for state in states(LOG, SEED, 200) if state.is_torn]
    assert len(list(states(LOG, SEED, 200))) == 200
    assert all(found.count(state) == 1 for state in found)


def test_the_seed_and_the_number_give_the_same_state_again() -> None:
    def key(state: State) -> tuple[object, ...]:
        return state.number, state.how, {name: bytes(data) for name, data in state.files.items()}

    found = [key(state) for state in states(LOG, SEED, MANY)]
    assert found == [key(state) for state in states(LOG, SEED, MANY)]
    assert found != [key(state) for state in states(LOG, SEED + 1, MANY)]
    assert found[::7] == [key(state_of(LOG, SEED, number)) for number, *_ in found[::7]]


def test_without_a_cut_all_is_there() -> None:
    assert last_state(LOG).files[NAME] == b"".join(bytes([n + 9]) * 600 for n in range(5))


@pytest.mark.parametrize("name", ["a", "below/b"])
def test_a_state_is_laid_out_over_whatever_there_was(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    for old in ("a", "below/b", "c-shm"):
        (tmp_path / old).write_bytes(b"something longer")
    last_state([Found(A, name, b"x")]).lay_out(tmp_path)
    left = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {name: b"x"}
