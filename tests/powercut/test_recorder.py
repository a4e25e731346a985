"""The recorder misses nothing: what its log says is on the disk is what is on the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from claudemesh.storage.sqlite import sync_guard
from tests.powercut.recorder import (
    Created,
    Deleted,
    DirectorySynced,
    Found,
    Mark,
    Recorder,
    RecordingVfs,
    SyncBegun,
    listen_to_directory_syncs,
    load,
    save,
)
from tests.powercut.states import last_state


@contextmanager
def recording(folder: Path) -> Iterator[tuple[Recorder, str]]:
    """Give a recorder and the name of its VFS, which is not the default one: other tests run in this process."""
    recorder = Recorder(folder)
    vfs = RecordingVfs(recorder, f"recording {folder}", is_default=False)
    try:
        yield recorder, f"recording {folder}"
    finally:
        vfs.unregister()


def on_disk(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def in_log(recorder: Recorder) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in last_state(recorder.log).files.items()}


def fill(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
    for _ in range(20):
        connection.execute("INSERT INTO t VALUES (randomblob(3000))")


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_the_log_holds_what_the_files_hold(tmp_path: Path, mode: str) -> None:
    with recording(tmp_path) as (recorder, vfs):
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        connection.pragma("journal_mode", mode)
        fill(connection)
        assert in_log(recorder) == on_disk(tmp_path)
        connection.wal_checkpoint()
        connection.execute("DELETE FROM t")
        connection.execute("VACUUM")
        fill(connection)
        assert in_log(recorder) == on_disk(tmp_path)
        connection.close()
        assert in_log(recorder) == on_disk(tmp_path)
        assert on_disk(tmp_path)


def test_what_was_there_before_is_on_the_disk(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "f.db"))
    fill(connection)
    connection.close()
    with recording(tmp_path) as (recorder, vfs):
        assert recorder.log == [Found(0, "f.db", (tmp_path / "f.db").read_bytes())]
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        fill(connection)
        connection.close()
        assert in_log(recorder) == on_disk(tmp_path)


def test_journals_come_and_go_in_the_log_with_the_sync_of_their_directory(tmp_path: Path) -> None:
    with recording(tmp_path) as (recorder, vfs):
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        connection.pragma("synchronous", "extra")
        connection.execute("CREATE TABLE t (x)")
        connection.close()
    kinds = (Created, Deleted, DirectorySynced)
    assert [event for event in recorder.log if isinstance(event, kinds)] == [
        Created(0, "f.db"),
        Created(1, "f.db-journal"),
        DirectorySynced("."),
        Deleted("f.db-journal"),
        DirectorySynced("."),
    ]


def test_marks_stand_where_they_were_made(tmp_path: Path) -> None:
    with recording(tmp_path) as (recorder, vfs):
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        connection.execute("CREATE TABLE t (x)")
        recorder.mark("ack", "first")
        connection.execute("INSERT INTO t VALUES (1)")
        recorder.mark("ack", "second")
        connection.close()
    after = [type(event) for event in recorder.log[recorder.log.index(Mark("ack", "first")) + 1 :]]
    assert SyncBegun in after[: after.index(Mark)]
    assert SyncBegun not in after[after.index(Mark) :]


def test_files_elsewhere_and_temporary_ones_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with recording(tmp_path / "here") as (recorder, vfs):
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        fill(connection)
        connection.execute("CREATE TEMP TABLE t2 AS SELECT * FROM t")
        connection.close()
    assert recorder.log == []


def test_the_engines_sync_of_its_directory_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", os.fsync)  # put back at the end
    (tmp_path / "here" / "below").mkdir(parents=True)
    recorder = Recorder(tmp_path / "here")
    listen_to_directory_syncs(recorder)
    for folder in (tmp_path, tmp_path / "here", tmp_path / "here" / "below"):
        sync_guard.sync_directory(folder)
    assert recorder.log == [DirectorySynced("."), DirectorySynced("below")]


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    with recording(tmp_path) as (recorder, vfs):
        connection = apsw.Connection(str(tmp_path / "f.db"), vfs=vfs)
        fill(connection)
        recorder.mark("ack", "x")
        recorder.mark("ack", 1)
        connection.close()
    save(recorder.log, tmp_path / "log")
    assert load(tmp_path / "log") == recorder.log
