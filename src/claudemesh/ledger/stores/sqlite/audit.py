"""What `verify` finds. It reads one moment, changes nothing, and goes on after a finding as far as it can.

Only the look for expired leases heeds a run: everything else is true of the whole file or of none of it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final

import apsw

from claudemesh.ledger.stores.sqlite import chain, law
from claudemesh.storage.sqlfile import Queries, load_queries

_HERE: Final = files(__package__)
_ALWAYS: Final = load_queries(_HERE / "audit.sql")
_OF: Final = {version: load_queries(_HERE / f"audit_v{version}.sql") for version in law.VERSIONS}
_EXPIRED: Final = load_queries(_HERE / "expired.sql")


def audit(connection: apsw.Connection, run_id: str | None, head: Mapping[str, Any] | None) -> list[str]:
    """Return every issue, in words; with a head that was signed earlier also whether the chain still has it."""
    version = law.read_version(connection)
    issues = law.differences(connection) + list(_careful(lambda: _pages(connection), "the file cannot be checked"))
    if version in _OF:
        issues += audit_rows(connection, version)
        if version >= law.CHAINED_SINCE:
            issues += _careful(lambda: chain.audit(connection), "the chain cannot be read")
    issues += _careful(lambda: _words(connection, _EXPIRED["expired"], run_id), "leases cannot be read")
    if head is not None:
        issues += _careful(lambda: _compare(connection, head), "the chain cannot be read")
    return issues


def audit_rows(connection: apsw.Connection, version: int) -> list[str]:
    """Return what is wrong with the rows alone."""
    return [issue for queries in (_ALWAYS, _OF[version]) for issue in _ask(connection, queries)]


def _compare(connection: apsw.Connection, head: Mapping[str, Any]) -> Iterator[str]:
    ledger_id = law.read_ledger_id(connection)
    if head["ledger_id"] != ledger_id:
        yield f"head: it is of ledger {head['ledger_id']}, and this is {ledger_id}"
    elif (link := chain.find_link(connection, head["seq"])) is None or head["hash"] != link:
        yield f"head: link {head['seq']} of the chain is not the one that was signed at {head['at']}"


def _ask(connection: apsw.Connection, queries: Queries) -> Iterator[str]:
    for name in queries.names():
        yield from _careful(partial(_words, connection, queries[name]), f"{name} cannot be checked")


def _careful(ask: Callable[[], Iterator[str]], otherwise: str) -> Iterator[str]:
    try:
        yield from ask()
    except (apsw.Error, UnicodeError) as error:  # a table is gone, a page is torn: that is a finding too
        yield f"{otherwise}: {error}"


def _words(connection: apsw.Connection, sql: str, *values: str | None) -> Iterator[str]:
    for (text,) in connection.execute(sql, values):
        yield str(text)


def _pages(connection: apsw.Connection) -> Iterator[str]:
    if connection.pragma("foreign_keys") != 1:
        yield "PRAGMA foreign_keys is OFF"
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"FOREIGN KEY: row {rowid} of {table} refers to nothing in {parent}"
    for (text,) in connection.execute("PRAGMA integrity_check"):
        if text != "ok":
            yield f"integrity: {text}"
