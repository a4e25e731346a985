"""What a SQLite file must be before it is trusted: its settings, its owner, its version."""

import fcntl
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import (
    ConfigError,
    IntegrityError,
    SchemaTooNew,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)
from claudemesh.storage.migrate import Migration
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.storage.sqlite import connection as connection_module
from claudemesh.storage.sqlite import file as file_module
from claudemesh.storage.sqlite.connection import check_library_version
from claudemesh.storage.sqlite.errors import translate

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


# What must be read back on every connection that is ever used.
SETTINGS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "mmap_size": 0,
    "wal_autocheckpoint": 0,
    "journal_size_limit": 64 * 1024 * 1024,
}


def read_settings(connection: apsw.Connection) -> dict[str, object]:
    return {pragma: connection.pragma(pragma) for pragma in SETTINGS}


def test_every_connection_syncs_fully_and_none_but_the_writer_checkpoints(tmp_path: Path) -> None:
    with Database.open(tmp_path / "f.db", ONE) as database:
        writers = database.write_blocking(lambda connection, items: [read_settings(connection) for _ in items], 1)
        assert writers == database.read_blocking(read_settings) == SETTINGS


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
def test_a_migration_runs_to_its_end_also_behind_a_statement_that_returns_rows(tmp_path: Path) -> None:
    talks = Migration(1, "talks", "CREATE TABLE a (x); INSERT INTO a VALUES (1) RETURNING x; CREATE TABLE b (x)")
    with Database.open(tmp_path / "f.db", Schema(77, (talks,))) as database:
        assert database.read_blocking(lambda c: c.execute("SELECT name FROM sqlite_schema").fetchall()) == [
            ("a",),
            ("b",),
        ]


@pytest.mark.req("D12")
@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"])
def test_a_migration_that_ends_its_transaction_is_refused_whole(tmp_path: Path, word: str) -> None:
    path = tmp_path / "f.db"
    Database.open(path, ONE).close()
    sly = Migration(2, "sly", f"CREATE TABLE half (a TEXT); {word}; CREATE TABLE other (a TEXT)")
    with pytest.raises((IntegrityError, apsw.Error)):
        Database.open(path, Schema(77, (FIRST, sly)))
    assert version_of(path) == 1
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT name FROM sqlite_schema WHERE name IN ('half', 'other')").fetchall() == []
    connection.close()


FAMILY = Migration(
    1,
    "family",
    """
    CREATE TABLE parent (id INTEGER PRIMARY KEY);
    CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent ON DELETE CASCADE);
    INSERT INTO parent VALUES (1);
    INSERT INTO child VALUES (1, 1);
    """,
)
REBUILT = Migration(
    2,
    "rebuilt",
    """
    CREATE TABLE parent_new (id INTEGER PRIMARY KEY, name TEXT);
    INSERT INTO parent_new (id) SELECT id FROM parent;
    DROP TABLE parent;
    ALTER TABLE parent_new RENAME TO parent;
    """,
)
ORPHANED = Migration(2, "orphaned", "DELETE FROM parent")


@pytest.mark.req("D12")
def test_rebuilding_a_table_keeps_the_rows_that_refer_to_it(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, Schema(77, (FAMILY,))).close()
    with Database.open(path, Schema(77, (FAMILY, REBUILT))) as database:
        assert database.read_blocking(lambda c: c.execute("SELECT count(*) FROM child").fetchone()) == (1,)
        settings = database.write_blocking(lambda connection, items: [read_settings(connection) for _ in items], 1)
        assert settings["foreign_keys"] == 1


@pytest.mark.req("D12")
def test_a_migration_that_leaves_rows_without_their_parent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, Schema(77, (FAMILY,))).close()
    with pytest.raises(IntegrityError):
        Database.open(path, Schema(77, (FAMILY, ORPHANED)))
    assert version_of(path) == 1


@pytest.mark.req("D12")
def test_programs_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(6)

    def start(path: Path) -> None:
        barrier.wait(30)
        Database.open(path, TWO).close()

    with ThreadPoolExecutor(6) as pool:
        for round_ in range(25):  # without the lock on the directory about one round in ten fails
            path = tmp_path / f"{round_}.db"
            for started in [pool.submit(start, path) for _ in range(6)]:
                started.result(60)
            assert version_of(path) == 2


@pytest.mark.parametrize(
    "sql", ["CREATE TABLE theirs (a)", "PRAGMA application_id = 78", "PRAGMA user_version = 1"]
)
def test_a_file_of_another_program_is_refused_and_not_touched(tmp_path: Path, sql: str) -> None:
    foreign = tmp_path / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute(sql)
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(StoreCorrupt):
        Database.open(foreign, ONE)
    assert foreign.read_bytes() == before


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_a_file_that_is_gone_from_beside_its_wal_is_refused_and_the_wal_is_kept(
    tmp_path: Path, *, is_there: bool
) -> None:
    path, wal = tmp_path / "f.db", tmp_path / "f.db-wal"
    wal.write_bytes(b"writes that somebody was told are safe")
    if is_there:
        path.touch()
    with pytest.raises(StoreCorrupt, match="still holds writes"):
        Database.open(path, ONE)
    assert wal.read_bytes() == b"writes that somebody was told are safe"
    assert path.exists() == is_there


def test_a_wal_that_holds_nothing_but_its_header_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "f.db-wal").write_bytes(b"\0" * 32)
    Database.open(tmp_path / "f.db", ONE).close()


def test_a_directory_that_somebody_keeps_locked_is_named_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "LOCK_WAIT_S", 0.02)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with pytest.raises(StoreUnavailable, match="is locked"):
        Database.open(tmp_path / "f.db", ONE)
    os.close(descriptor)
    Database.open(tmp_path / "f.db", ONE).close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target.db").touch()
    (tmp_path / "f.db").symlink_to(tmp_path / "target.db")
    with pytest.raises(StoreUnavailable):
        Database.open(tmp_path / "f.db", ONE)
    assert (tmp_path / "target.db").stat().st_size == 0


def test_a_link_on_the_way_to_the_file_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    Database.open(tmp_path / "way" / "f.db", ONE).close()
    assert (tmp_path / "real" / "f.db").exists()


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "f.db"
    Database.open(path, ONE).close()
    path.chmod(0o644)
    Database.open(path, ONE).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


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


@pytest.mark.parametrize("sizes", [{"group_max": 0}, {"readers": 0}], ids=str)
def test_a_database_without_a_group_or_a_reader_is_refused_and_left_closed(
    tmp_path: Path, sizes: dict[str, int]
) -> None:
    threads = threading.active_count()
    with pytest.raises(ValueError, match=r"at least one|greater than 0"):
        Database.open(tmp_path / "f.db", ONE, **sizes)
    assert threading.active_count() == threads
    Database.open(tmp_path / "f.db", ONE).close()


def test_migrations_with_a_gap_make_no_schema() -> None:
    with pytest.raises(ValueError, match="gap"):
        Schema(1, (SECOND,))


@pytest.mark.parametrize("application_id", [0, -1, 2**31, 2**32 + 5])
def test_an_application_id_that_sqlite_cannot_keep_makes_no_schema(application_id: int) -> None:
    with pytest.raises(ValueError, match="application_id"):
        Schema(application_id, (FIRST,))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (apsw.FullError, StoreFull),
        (apsw.CorruptError, StoreCorrupt),
        (apsw.NotADBError, StoreCorrupt),
        (apsw.ConstraintError, IntegrityError),
        (apsw.BusyError, StoreUnavailable),
        (apsw.LockedError, StoreUnavailable),
        (apsw.IOError, StoreUnavailable),
        (apsw.CantOpenError, StoreUnavailable),
        (apsw.ReadOnlyError, StoreUnavailable),
        (apsw.NoMemError, StoreUnavailable),
        (apsw.ProtocolError, StoreUnavailable),
        (apsw.SQLError, apsw.SQLError),
        (KeyError, KeyError),
    ],
)
def test_a_drivers_error_becomes_ours_and_a_mistake_of_ours_stays_one(theirs: type, ours: type) -> None:
    error = theirs("x")
    meaning = translate(error)
    assert type(meaning) is ours
    assert meaning is error or meaning.__cause__ is error


def test_a_file_that_cannot_even_be_looked_at_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> int:
        raise PermissionError(13, "Permission denied")  # as a folder that may be listed but not entered gives

    monkeypatch.setattr(file_module, "_size", refuse)
    with pytest.raises(StoreUnavailable, match="Permission denied"):
        Database.open(tmp_path / "f.db", ONE)
