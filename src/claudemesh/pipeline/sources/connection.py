"""Connections to stores through ADBC: rows come as Arrow, and no Python object is made of any.

Imported by Spark's workers too, so it needs nothing of this package.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_BATCH_ROWS: Final = 65_536
_TYPES: Final = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_SAMPLES: Final = {pa.int64(): "0", pa.string(): "''", pa.binary(): "x''"}


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How somebody with a connection of their own reads a part of a table: all they have to know."""

    driver: str  # `sqlite` or `postgresql`
    uri: str
    statements: tuple[Statement, ...]  # one for each partition
    before: tuple[str, ...] = ()  # said first, on the same connection

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> "Reading":
        """Take it from JSON."""
        statements = (Statement(one["sql"], tuple(one["values"])) for one in said["statements"])
        return cls(said["driver"], said["uri"], tuple(statements), tuple(said["before"]))


def to_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the columns of the catalogue in Arrow's types."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])


@contextmanager
def connected(driver: str, uri: str) -> Iterator[Any]:
    """Give a cursor in autocommit mode: what is one transaction says so itself."""
    if driver == "sqlite":
        from adbc_driver_sqlite import dbapi  # noqa: PLC0415 - a worker loads the one it needs

        options: Mapping[str, str] = {"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)}
        connection = dbapi.connect(uri, autocommit=True)
    else:
        from adbc_driver_postgresql import dbapi as postgres  # noqa: PLC0415 - as above

        options = {}
        connection = postgres.connect(uri, autocommit=True)
    with connection, connection.cursor(adbc_stmt_kwargs=dict(options)) as cursor:
        yield cursor


def fetch(
    cursor: Any,  # noqa: ANN401 - ADBC has no type for both
    driver: str,
    sql: str,
    values: tuple[str, ...],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, in columns of the names and types of the schema."""
    asked = f"SELECT {', '.join(schema.names)} FROM ({sql}) AS rows"  # noqa: S608 - of the catalogue
    if driver == "sqlite":
        # SQLite's columns have no types of their own, and ADBC guesses them from what comes first: so that is a row
        # of samples, which is left out again.
        samples = ", ".join(_SAMPLES[field.type] for field in schema)
        asked = f"SELECT {samples} UNION ALL {asked}"
    cursor.execute(asked, values or None)
    skipped = 0 if driver != "sqlite" else 1
    for batch in cursor.fetch_record_batch():
        rows = batch.slice(skipped)
        skipped = 0
        if rows.num_rows:
            columns = [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def read_share(reading: Reading, number: int, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of one of its statements, through a connection of its own."""
    statement = reading.statements[number]
    with connected(reading.driver, reading.uri) as cursor:
        for said in reading.before:
            cursor.execute(said)
        yield from fetch(cursor, reading.driver, statement.sql, statement.values, schema)


def fetch_table(cursor: Any, driver: str, sql: str, values: tuple[str, ...], schema: pa.Schema) -> pa.Table:  # noqa: ANN401 - as above
    return pa.Table.from_batches(fetch(cursor, driver, sql, values, schema), schema=schema)


def fetch_row(cursor: Any, sql: str, values: tuple[str, ...] = ()) -> tuple[Any, ...]:  # noqa: ANN401 - as above
    cursor.execute(sql, values or None)
    return tuple(cursor.fetchone())


def fetch_named(cursor: Any, sql: str) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the one row that there is, by the names of its columns."""
    cursor.execute(sql)
    names = [column[0] for column in cursor.description]
    return dict(zip(names, cursor.fetchone(), strict=True))


def fetch_rows(cursor: Any, sql: str, values: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401 - as above
    cursor.execute(sql, values or None)
    return [tuple(row) for row in cursor.fetchall()]
