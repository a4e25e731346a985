"""A ledger's file: how it is opened, and what holds in every transaction on it.

Many processes write to one ledger, each through a connection of its own; SQLite's lock puts them in a row. Opening
changes nothing of a ledger that is there; its journal becomes a WAL. A write begins with a look at the schema: by
then it is this transaction's alone, and if it is not the law's nothing is written. The look is skipped while no
other connection has committed anything, since this one changes the schema in an upgrade only. SQLite runs the
triggers that it parsed, which are those that stand there unless somebody forged the schema's cookie; so whenever
that has changed they are parsed once more.
"""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

import apsw

from claudemesh.kernel.errors import (
    CassetteAltered,
    CassetteUnavailable,
    DependencyError,
    MeshError,
    MessageCassetteError,
    StoreCorrupt,
    StoreFull,
)
from claudemesh.ledger.stores.sqlite import law
from claudemesh.runtime import points
from claudemesh.storage.sqlite import errors as engine
from claudemesh.storage.sqlite import sync_guard
from claudemesh.storage.sqlite.connection import configure, connect
from claudemesh.storage.sqlite.file import one_at_a_time, provide
from claudemesh.storage.sqlite.transactions import Transactions

T = TypeVar("T")
Mode = Literal["IMMEDIATE", "EXCLUSIVE"]

_COOKIE: Final = "PRAGMA schema_version"
_COMMITS: Final = "PRAGMA data_version"  # it changes with commits of others

_FAILURES: Final = (apsw.Error, MeshError, OSError, UnicodeError)

BEFORE_COMMIT: Final = points.declare("ledger.before_commit")
AFTER_COMMIT: Final = points.declare("ledger.after_commit")

APPLICATION_ID: Final = 0x6C656467  # "ledg"
BUSY_TIMEOUT_MS: Final = 30_000  # others commit in between, each in well under a millisecond
CHECKPOINT_PAGES: Final = 1_000

_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
# Is it empty, and has it anything of a ledger? One that lost its marks and its tables is not told from a new file.
_CONTENT: Final = "SELECT count(*) = 0, coalesce(sum(lower(tbl_name) GLOB 'cassette_*'), 0) > 0 FROM sqlite_schema"


class LedgerFile:
    """One connection; calls of several threads take turns."""

    def __init__(self, connection: apsw.Connection, transactions: Transactions) -> None:
        self._connection = connection
        self._transactions = transactions
        self._turn = threading.RLock()
        self._is_busy = False
        self._pid = os.getpid()
        self._cookie: object = None  # PRAGMA schema_version of the last transaction
        self._is_parsed = False  # as it was read: what SQLite made of the schema is what stands there
        self._seen: object = None  # PRAGMA data_version when the schema was last looked at
        self._version = 0
        self._lawful: list[tuple[object, ...]] = []  # the schema that was found to be the law's

    @classmethod
    def open(cls, path: Path, *, create: bool = True, version: int = law.NEWEST) -> Self:
        """Open a ledger as it is, or make a new one of the version in a file that is empty or not there."""
        try:
            path = path.parent.resolve() / path.name  # SQLite follows no link, not even to a folder
            _check_plain(path, may_be_missing=create)
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_guard.install()
            with one_at_a_time(path.parent):
                if not _has_content(path):  # who may read one that is there was decided by whoever made it
                    provide(path)
                connection = connect(path, read_only=False)
                try:
                    return cls(connection, _prepare(connection, path, version if create else None))
                except BaseException:
                    connection.close()
                    raise
        except MessageCassetteError:
            raise
        except RuntimeError as error:  # a link that leads to itself
            raise MessageCassetteError(str(error)) from error
        except _FAILURES as error:
            meaning = translate(error)
            raise type(meaning)(f"{path}: {meaning.detail}") from error

    def write(self, work: Callable[[apsw.Connection, int], T], mode: Mode = "IMMEDIATE") -> T:
        """Do work in one transaction, given the connection and the ledger's version; return after its commit."""
        transactions = self._transactions

        def change() -> T:
            try:
                transactions.begin(mode)
                self._note_cookie()
                outcome = work(self._connection, self._check_law())
                points.reach(BEFORE_COMMIT)
                transactions.commit()
            except BaseException:
                transactions.roll_back()
                raise
            return outcome

        outcome = self._alone(change)
        points.reach(AFTER_COMMIT)
        return outcome

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Ask questions that are all answered from one moment."""

        def ask() -> T:
            try:
                self._connection.execute("BEGIN")
                self._note_cookie()
                return work(self._connection)
            finally:
                self._transactions.roll_back()

        return self._alone(ask)

    def close(self) -> None:
        """May be called twice; in a child it does nothing, since the connection is the parent's."""
        if os.getpid() != self._pid:
            return
        with self._turn:
            self._connection.close()

    def _alone(self, call: Callable[[], T]) -> T:
        """Make a call while no other is under way, and say what goes wrong as the ledger's one exception."""
        if os.getpid() != self._pid:
            raise MessageCassetteError("the ledger was opened before a fork: the child opens one of its own")
        with self._turn:
            if self._is_busy:  # a signal handler, say: to wait for oneself is for ever
                raise MessageCassetteError("the ledger is in use by this very thread")
            self._is_busy = True
            try:
                self._transactions.roll_back()  # what an exception out of a signal handler left open
                return call()
            except MessageCassetteError:
                raise
            except _FAILURES as error:
                raise translate(error) from error
            finally:
                self._is_busy = False

    def _note_cookie(self) -> None:
        """Notice that SQLite has parsed the schema anew; under another cookie it may have been another one."""
        cookie = self._read(_COOKIE)
        if cookie != self._cookie:
            self._cookie, self._is_parsed = cookie, False

    def _check_law(self) -> int:
        seen = self._read(_COMMITS)
        if seen == self._seen and self._is_parsed:
            return self._version
        if not self._is_parsed:  # else triggers that stand there again may not be heard
            self._connection.pragma("writable_schema", "RESET")
        version, schema = law.read_version(self._connection), self._connection.execute(_SCHEMA).fetchall()
        if (version, schema) != (self._version, self._lawful):  # to compare with the law takes thrice as long
            wrong = law.differences(self._connection)
            if wrong:
                raise CassetteAltered(f"{'; '.join(wrong)}. `verify` says all that is wrong")
            self._version, self._lawful = version or 0, schema
        self._seen, self._is_parsed = seen, True
        return self._version

    def _read(self, pragma: str) -> object:
        """Read a number as any other statement does, which is prepared once; `Connection.pragma` prepares anew."""
        return self._connection.execute(pragma).fetchall()[0][0]


def _check_plain(path: Path, *, may_be_missing: bool) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if may_be_missing:
            return
        raise MessageCassetteError(f"there is no ledger at {path}") from None
    if not stat.S_ISREG(mode):
        raise MessageCassetteError(f"{path} is not a plain file")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _prepare(connection: apsw.Connection, path: Path, version: int | None) -> Transactions:
    """Make a connection ready; make a ledger of the version in a file that is empty, if there is to be one."""
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    is_marked = connection.pragma("application_id") == APPLICATION_ID
    is_empty, is_ledger = (bool(value) for value in connection.execute(_CONTENT).fetchall()[0])
    if not is_marked and not is_empty and not is_ledger:
        raise StoreCorrupt(f"{path} holds other things and no ledger")
    if is_empty and not is_marked and version is None:
        raise MessageCassetteError(f"there is no ledger at {path}")
    configure(connection)
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)  # by whoever commits: no process is the only one
    # A plan for a statement, and not for its values: else SQLite plans some of them anew with every call.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    transactions = Transactions(connection)
    if is_empty and not is_marked and version is not None:
        transactions.begin()
        with transactions.committing():
            law.enact(connection, after=0, upto=version)
            connection.execute("INSERT INTO cassette_meta VALUES ('ledger_id', lower(hex(randomblob(8))))")
            connection.pragma("application_id", APPLICATION_ID)
        sync_guard.sync_directory(path.parent)
    return transactions


def translate(error: BaseException) -> MessageCassetteError:
    """Say what went wrong as the ledger's one exception; a rule of the law speaks in its own words."""
    match error:
        case apsw.ConstraintError():
            return MessageCassetteError(str(error))
        case apsw.ConnectionClosedError():
            return MessageCassetteError("the ledger is closed")
        case apsw.SQLError():  # a table or a column is not there
            return CassetteAltered(str(error))
        case UnicodeError():
            return MessageCassetteError(f"a text is not UTF-8: {error}")
        case OSError():
            return MessageCassetteError(f"{error.filename}: {error.strerror}")
        case _:
            meaning = engine.translate(error)
            is_known = isinstance(meaning, StoreFull)  # what found no room was not written
            kind = (
                CassetteUnavailable
                if isinstance(meaning, DependencyError) and not is_known
                else MessageCassetteError
            )
            return kind(str(meaning))
