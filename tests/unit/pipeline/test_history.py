"""The log of a client, as it is read."""

from pathlib import Path

import msgspec
import pytest

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.pipeline.history import COLUMNS, read_history

LINE = {"t": 1.0, "asked": 1.0, "at": 1000, "process": "7", "ev": "invoke", "f": "send", "mesh": "M", "who": "W"}


def write(path: Path, *lines: object, rest: bytes = b"") -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + rest)
    return path


def column(name: str, *paths: Path, until_ms: int | None = None) -> list[object]:
    return [row[list(COLUMNS).index(name)] for row in read_history(paths, until_ms).rows]


@pytest.mark.req("S3")
def test_lines_keep_their_order_and_processes_of_different_logs_are_told_apart(tmp_path: Path) -> None:
    logs = [write(tmp_path / name, LINE | {"id": f"{name}1"}, LINE | {"id": f"{name}2"}) for name in ("a", "b")]
    assert column("id", *logs) == ["a1", "a2", "b1", "b2"]
    assert column("n", *logs) == [0, 1, 2, 3]
    assert len({*column("process", *logs)}) == 2


@pytest.mark.req("S3")
def test_a_process_is_another_one_after_its_machine_started_again(tmp_path: Path) -> None:
    log = write(tmp_path / "a", LINE | {"boot": "one"}, LINE | {"boot": "two"}, LINE | {"boot": "one"})
    first, second, third = column("process", log)
    assert first == third != second
    assert column("boot", log) == ["one", "two", "one"]


@pytest.mark.req("S3")
def test_half_a_line_at_the_end_is_left_out_and_counted(tmp_path: Path) -> None:
    found = read_history([write(tmp_path / "a", LINE, rest=b'{"t": 1.0, "as')])
    assert (len(found.rows), found.torn) == (1, 1)


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    "broken",
    [
        b'{"t": 1.0,\n',
        b"\n",
        b"\xff\n",
        *(
            msgspec.json.encode(LINE | more) + b"\n"
            for more in (
                {"ev": "eh"},
                {"version": 2**63 - 1},
                {"version": 10**19},
                {"version": -1},
                {"f": "swap", "id": "x"},
                {"f": "swap", "id": "1_000"},
                {"f": "swap", "id": "9" * 19},
                {"f": "swap"},
            )
        ),
    ],
)
def test_any_other_line_that_cannot_be_read_is_an_error_with_its_number(tmp_path: Path, broken: bytes) -> None:
    log = write(tmp_path / "a", LINE, rest=broken + msgspec.json.encode(LINE) + b"\n")
    with pytest.raises(InvalidRequest, match="line 2"):
        read_history([log])


@pytest.mark.req("S3")
def test_an_answer_that_came_after_the_copy_began_was_not_heard(tmp_path: Path) -> None:
    log = write(tmp_path / "a", *(LINE | {"ev": ev, "at": at} for ev, at in (("ok", 5), ("ok", 6), ("invoke", 6))))
    assert column("ev", log, until_ms=5) == ["ok", "invoke"]


@pytest.mark.req("S3")
def test_a_log_that_nothing_was_written_to_says_nothing(tmp_path: Path) -> None:
    assert read_history([write(tmp_path / "a")]).rows == []


@pytest.mark.req("S3")
def test_a_log_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    log = write(tmp_path / "a", LINE)
    (tmp_path / "b").symlink_to(log)
    assert column("n", log, log, tmp_path / "b") == [0]


@pytest.mark.req("S3")
def test_who_does_not_say_whose_clock_it_is_has_one_of_their_own(tmp_path: Path) -> None:
    logs = [write(tmp_path / name, LINE, LINE | {"process": "8"}) for name in ("a", "b")]
    assert len({*column("boot", *logs)}) == 4
