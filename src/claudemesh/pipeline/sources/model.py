"""What ingest needs of a store: who it is, moments of it, and how a table is read between two positions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from claudemesh.pipeline.shapes import Kind, Table
from claudemesh.pipeline.sources.connection import Reading, to_schema

Position: TypeAlias = dict[str, Any]  # JSON; every source has its own words for how far it was read


@dataclass(frozen=True, slots=True)
class Identity:
    """A store. Its name is for ever; of another life of it, nothing that was copied before can be gone on with."""

    name: str
    life: str


class Moment(Protocol):
    """A moment of a store, held open: what is read in it agrees."""

    @property
    def position(self) -> Position: ...

    @property
    def is_cut(self) -> bool:
        """Say whether this is the one that the cut is of; before it there may be another, to come closer."""

    def has_news(self, since: Position) -> bool:
        """Say whether any append-only table has rows that are not in a copy up to there."""

    def went_back(self, since: Position) -> bool:
        """Say whether the store is before that position: then it is not the store that was copied."""

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        """Say how to read the rows of a table after one position up to the other; None if there are none."""

    def whole(self, table: Table) -> pa.Table: ...

    def lag(self) -> Mapping[str, float]:
        """Say what is open and cannot be read yet, and for how long."""

    def count(self, since: Position | None, before: Mapping[str, int]) -> Mapping[str, int]:
        """Count the store's own rows; of a store that forgets, those since then, added to the counts before."""


class Store(Protocol):
    @property
    def kind(self) -> Kind: ...

    @property
    def shown(self) -> str:
        """Where it is, without a password."""

    def identify(self) -> Identity: ...

    def moments(self) -> Iterator[Moment]:
        """Give one moment after another, each to be copied up to. A moment ends when the next is asked for."""


def fields(table: Table) -> pa.Schema:
    return to_schema(table.columns)
