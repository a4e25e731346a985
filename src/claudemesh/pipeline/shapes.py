"""What a kind of store is declared with: tables, their columns, how they grow and what goes from them. Values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias
from zlib import crc32

Type: TypeAlias = Literal["bigint", "string", "binary"]

TOMBSTONE: Final = "tombstone"  # the table of a kind that deletes; its column `what` says from where


class Growth(StrEnum):
    APPEND = "append"  # rows are written once and never change; whatever retention takes leaves a tombstone
    WHOLE = "whole"  # few rows, which may change: all of them, as they are at the cut


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers that one writer gives to rows in the order of commits: up to a mark, none is ever added."""

    name: str
    number: str  # the column
    within: str | None = None  # a column, each value of which has numbers of its own
    is_journal: bool = False  # of what happens to rows of others: read after these, in the moment of the cut


@dataclass(frozen=True, slots=True)
class Grave:
    """Which tombstones say that a row is gone: those of a word, by columns of both."""

    what: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    columns: Mapping[str, Type]
    growth: Growth = Growth.APPEND
    series: Series | None = None  # of an append-only table
    key: tuple[str, ...] = ()  # of an append-only table: no two rows have the same
    grave: Grave | None = None
    is_body: bool = False  # what people wrote: only in a lake that was asked to hold it
    open_of: str | None = None  # rows of that table that may still change, and are not in it yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of store."""

    name: str
    marker: str  # a table that no other kind has,
    unless: str | None = None  # but for one that has this table too
    files: str  # where a home has such stores
    tables: tuple[Table, ...]
    forgets: bool = False  # rows go without a tombstone: what was copied of them once is all there is

    @property
    def version(self) -> int:
        """Tell one form of the tables from another: a copy in another one is read anew.

        Statements in `sources/` that give other rows for the same columns are not told apart: `ingest --full`.
        """
        return crc32(repr(self.tables).encode())

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(dict.fromkeys(table.series for table in self.tables if table.series))

    def table(self, name: str) -> Table:
        return {table.name: table for table in self.tables}[name]

    def wanted(self, growth: Growth, *, bodies: bool) -> tuple[Table, ...]:
        return tuple(one for one in self.tables if one.growth is growth and (bodies or not one.is_body))

    def open_rows(self, name: str) -> Table | None:
        """Return the table that holds those rows of the named one that may still change, if there is any."""
        return next((table for table in self.tables if table.open_of == name), None)


def typed(**types: Type) -> dict[str, Type]:
    """Return columns by their names."""
    return types


def whole(name: str, /, **types: Type) -> Table:
    """Return a small table that changes."""
    return Table(name=name, columns=types, growth=Growth.WHOLE)
