"""What a SQLite file must be before it is trusted: its settings, its owner, its version."""

import os
import stat
import threading
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import ConfigError, IntegrityError, SchemaTooNew, StoreCorrupt, StoreUnavailable
from claudemesh.storage.migrate import Migration
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.storage.sqlite import connection as connection_module
from claudemesh.storage.sqlite.connection import check_library_version, open_reader, open_writer

FIRST = Migration(1, "first", "CREATE TABLE t (a TEXT PRIMARY KEY) STRICT; CREATE INDEX i ON t (a)")
SECOND = Migration(2, "second", "ALTER TABLE t ADD COLUMN b INTEGER NOT NULL DEFAULT 7")
BROKEN = Migration(2, "broken", "CREATE TABLE half (a TEXT) STRICT; CREATE TABLE half (a TEXT)")
ONE, TWO = Schema(77, (FIRST,)), Schema(77, (FIRST, SECOND))


def version_of(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


def test_every_connection_syncs_fully_and_none_but_the_writer_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    writer = open_writer(path)
    reader = open_reader(path)
    for connection in (writer, reader):
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("wal_autocheckpoint") == 0
        assert connection.pragma("foreign_keys") == 1
        connection.close()


def test_a_setting_that_did_not_take_refuses_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection_module._SETTINGS, "synchronous", ("normal", 2))
    with pytest.raises(ConfigError, match="synchronous is 1 and must be 2"):
        Database.open(tmp_path / "f.db", ONE)


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.7.0", "2.99.99"])
def test_a_sqlite_with_the_wal_reset_bug_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=version):
        check_library_version(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0"])
def test_a_sqlite_without_the_bug_is_taken(version: str) -> None:
    check_library_version(version)


def test_the_file_and_its_companions_are_for_their_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        with Database.open(tmp_path / "f.db", ONE) as database:
            database.write_blocking(lambda connection, items: [connection.execute("SELECT 1") for _ in items], 1)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(previous)
    assert modes == {"f.db": 0o600, "f.db-wal": 0o600, "f.db-shm": 0o600}


@pytest.mark.req("D12")
def test_a_file_moves_forward_and_is_refused_by_an_older_program(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, ONE).close()
    assert version_of(path) == 1
    Database.open(path, TWO).close()
    assert version_of(path) == 2
    with pytest.raises(SchemaTooNew):
        Database.open(path, ONE)
    assert version_of(path) == 2


@pytest.mark.req("D12")
def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, ONE).close()
    with pytest.raises(apsw.SQLError, match="half"):
        Database.open(path, Schema(77, (FIRST, BROKEN)))
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    connection.close()
    Database.open(path, TWO).close()
    assert version_of(path) == 2


@pytest.mark.req("D12")
def test_programs_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    barrier = threading.Barrier(6)
    errors: list[BaseException] = []

    def start() -> None:
        barrier.wait(30)
        try:
            Database.open(path, TWO).close()
        except BaseException as error:  # noqa: BLE001  collected and asserted below
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert version_of(path) == 2


def test_a_file_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, ONE).close()
    with pytest.raises(StoreCorrupt):
        Database.open(path, Schema(78, (FIRST,)))
    foreign = tmp_path / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreCorrupt):
        Database.open(foreign, ONE)


def test_garbage_a_folder_and_a_missing_folder_are_clear_errors(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is no database" * 1000)
    before = garbage.read_bytes()
    with pytest.raises(StoreCorrupt):
        Database.open(garbage, ONE)
    assert garbage.read_bytes() == before
    with pytest.raises(StoreUnavailable):
        Database.open(tmp_path, ONE)
    with pytest.raises(StoreUnavailable):
        Database.open(tmp_path / "no" / "f.db", ONE)


def test_a_broken_constraint_is_an_integrity_error_for_its_caller_alone(tmp_path: Path) -> None:
    def insert(connection: apsw.Connection, items: list[str]) -> list[None]:
        return [connection.execute("INSERT INTO t (a) VALUES (?)", (item,)) and None for item in items]

    with Database.open(tmp_path / "f.db", ONE) as database:
        database.write_blocking(insert, "x")
        with pytest.raises(IntegrityError):
            database.write_blocking(insert, "x")
        database.write_blocking(insert, "y")
        assert database.read_blocking(lambda c: c.execute("SELECT count(*) FROM t").fetchone()) == (2,)


def test_a_group_holds_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Database.open(tmp_path / "f.db", ONE, group_max=0)


def test_migrations_with_a_gap_make_no_schema() -> None:
    with pytest.raises(ValueError, match="gap"):
        Schema(1, (SECOND,))
