"""An outbox as whoever looks at its file sees it, whether a daemon runs or not: only read."""

from importlib.resources import files
from typing import Any, Final, NamedTuple

import apsw

from claudemesh.daemon import terms
from claudemesh.outbox.stores.sqlite.rows import ROWS_SQL
from claudemesh.storage.sqlfile import load_queries

_SQL: Final = load_queries(ROWS_SQL, files("claudemesh.daemon.stores.sqlite") / "outbox.sql")


class Unsettled(NamedTuple):
    """What an outbox holds that is not done."""

    dead: int
    open: int
    oldest_ms: int  # how long the oldest has waited
    overdue: int  # how many are older than may be sent


def read_terms(connection: apsw.Connection) -> terms.Terms:
    """Return what was last agreed with a broker, or what counts until then."""
    found: list[Any] = connection.execute(_SQL["recall"], (terms.REMEMBERED_AS,)).fetchall()
    return terms.parse(found[0][0] if found else None)


def count_unsettled(connection: apsw.Connection, now_ms: int, max_age_ms: int) -> Unsettled:
    row: tuple[Any, ...] = connection.execute(_SQL["unsettled"], (now_ms - max_age_ms,)).fetchall()[0]
    dead, still_open, oldest, overdue = row
    return Unsettled(dead, still_open, 0 if oldest is None else max(now_ms - oldest, 0), overdue)
