"""Copy what is new in the stores into the lake, and publish a cut.

Whether anything is new is plain SQL; only then a session is asked for. A store is copied by a stream of steps, from
one position to the next, and what a step reads overwrites `batch=<id>` of each table: a step that was cut off is
made again by Spark's own log, and nothing is there twice. The small tables and the store's own counts are read in
the moment of the cut, and the cut is published when all that it names is durable.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import structs

from claudemesh.kernel.errors import ConfigError, IntegrityError
from claudemesh.pipeline.lake import Cut, Earlier, Lake, SourceCut, sync_tree
from claudemesh.pipeline.place import BrokenCheckpointError, Place, check_source, count_rows, write_rows
from claudemesh.pipeline.shapes import Growth, Kind
from claudemesh.pipeline.sources.model import Identity, Moment, Store
from claudemesh.runtime import points

if TYPE_CHECKING:  # loading Spark is for ingests that have something to copy
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

CUT_COMPLETE: Final = points.declare("pipeline.cut_complete")
CUT_PUBLISHED: Final = points.declare("pipeline.cut_published")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller wants of an ingest."""

    full: bool = False  # read everything anew
    verify: bool = False  # compare the store's own counts with the lake even if nothing is new
    bodies: bool | None = None  # None: as the lake has them

    def wants_bodies(self, last: SourceCut | None) -> bool:
        if self.bodies is not None:
            return self.bodies
        return last.bodies if last else False


class Ingest:
    def __init__(
        self, lake: Lake, session: "Callable[[], SparkSession]", wish: Wish, tell: Callable[[str], None]
    ) -> None:
        """Ask for a session only if there is something to copy."""
        self._lake = lake
        self._session = session
        self._wish = wish
        self._tell = tell

    def run(self, stores: Iterable[Store], now_ms: int) -> Cut:
        """Bring the lake up to date and return its newest cut, of these stores: a new one, if any has news."""
        with self._lake.locked():
            standing = self._lake.latest()
            number = standing.number + 1 if standing else 1
            sources = dict(standing.sources) if standing else {}
            has_news = False
            read: dict[str, str] = {}
            for store in stores:
                self._tell(f"reading {store.shown}")
                identity = _checked(store, read)
                last = sources.get(identity.name)
                sources[identity.name] = copied = self._bring(store, identity, last, number)
                has_news |= last is None or structs.replace(copied, lag=last.lag) != last
            if standing is not None and not has_news and standing.read == sorted(read):
                return structs.replace(standing, sources=sources).of_now()
            cut = Cut(number=number, at_ms=now_ms, sources=sources, read=sorted(read))
            points.reach(CUT_COMPLETE)
            self._lake.publish(cut)
            points.reach(CUT_PUBLISHED)
            self._lake.vacuum()
            return cut.of_now()

    def _bring(self, store: Store, identity: Identity, last: SourceCut | None, number: int) -> SourceCut:
        """Return the store at its new cut; if nothing is new, at its last one, with how it lags now."""
        bodies = self._wish.wants_bodies(last)
        if last is not None and not self._wish.full and _may_go_on(last, store, identity, bodies=bodies):
            place = Place(self._lake, identity.name, last.generation, store.kind, bodies)
            try:
                return self._copy(_Copy(store, identity, place, last, last.earlier), number)
            except (_NotTheSameError, BrokenCheckpointError) as error:
                _LOG.warning("%s is read anew: %s", store.shown, error)
        # A generation that was begun and never published is left alone: it may have been begun for something else.
        place = Place(self._lake, identity.name, self._lake.next_generation(identity.name), store.kind, bodies)
        earlier: list[Earlier] = []
        if last and store.kind.forgets:
            earlier = [*last.earlier, Earlier(last.generation, last.batches, last.rows)]
        return self._copy(_Copy(store, identity, place, None, earlier), number)

    def _copy(self, copy: "_Copy", number: int) -> SourceCut:
        place = copy.place
        if copy.last is not None and place.done() < copy.last.batches:
            raise _NotTheSameError("its checkpoint is gone")
        for moment in copy.store.moments():
            reached = place.reached()
            if reached is not None and moment.went_back(reached):
                raise _NotTheSameError("it is not what was copied of it, or not as far")
            if reached is None or place.is_cut_off() or moment.has_news(reached):
                from claudemesh.pipeline.copying import copy_upto  # noqa: PLC0415 - Spark

                self._tell(f"copying {copy.store.shown}")
                copy_upto(self._session(), place, moment)
            if moment.is_cut:
                return self._close(copy, moment, number)
        raise AssertionError("a store has a moment for the cut")

    # --- at the cut --------------------------------------------------------------------------------

    def _close(self, copy: "_Copy", moment: Moment, number: int) -> SourceCut:
        """Say what the store is at the cut."""
        place, last = copy.place, copy.last
        has_rows = last is None or place.done() > last.batches
        wholes = {table.name: moment.whole(table) for table in place.kind.wanted(Growth.WHOLE, bodies=place.bodies)}
        digest = _digest(wholes)
        lag = dict(moment.lag())
        unchanged = structs.replace(last, lag=lag) if last and not has_rows and last.digest == digest else None
        if unchanged is not None and not self._wish.verify:
            return unchanged
        counts = moment.count(last.position if last else None, last.counts if last else {})
        tally = self._tally(last, place, counts) if has_rows else _Tally.of(last)
        tally.add_whole(place.kind, wholes)
        differing = tally.compare(counts, forgets=place.kind.forgets)
        if differing:
            raise _NotTheSameError(differing) if last else IntegrityError(f"{copy.store.shown}: {differing}")
        if unchanged is not None:
            return unchanged
        for name, table in wholes.items():
            write_rows(table, self._lake.whole(place.source, place.generation, name, number))
        if has_rows:
            sync_tree(place.checkpoint)
        return SourceCut(
            kind=place.kind.name,
            store=copy.store.shown,
            life=copy.identity.life,
            generation=place.generation,
            version=place.kind.version,
            bodies=place.bodies,
            position=place.reached() or {},
            batches=tally.batches,
            whole=number,
            rows=tally.rows,
            live=tally.live,
            counts=dict(counts),
            lag=lag,
            digest=digest,
            earlier=copy.earlier,
        )

    def _tally(self, last: SourceCut | None, place: Place, counts: Mapping[str, int]) -> "_Tally":
        from claudemesh.pipeline.copying import count_gone  # noqa: PLC0415 - Spark

        if last is not None:
            try:
                check_source(self._lake, place.source, last, is_old=False)
            except IntegrityError as error:
                raise error if place.kind.forgets else _NotTheSameError(str(error)) from error
        tally = _Tally.of(last)
        new = range(tally.batches, place.done())
        gone = count_gone(self._session, place, new, counts)
        for table in place.appended:
            came = sum(count_rows(place.batch(table, batch)) for batch in new)
            tally.rows[table.name] = tally.rows.get(table.name, 0) + came
            tally.live[table.name] = tally.live.get(table.name, 0) + came - gone.get(table.name, 0)
        return replace(tally, batches=new.stop)


class _NotTheSameError(Exception):
    """The store is not one that the copy of it could go on with."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A source on its way to its next cut."""

    store: Store
    identity: Identity
    place: Place
    last: SourceCut | None  # what it goes on from; without it a generation begins
    earlier: list[Earlier]


_NAME: Final = re.compile(r"[a-z_]+-[0-9a-f]{16}")  # it becomes a directory


def _checked(store: Store, read: dict[str, str]) -> Identity:
    """Return who the store is, and note it; no other of the same run may be the same."""
    identity = store.identify()
    if not _NAME.fullmatch(identity.name):
        raise ConfigError(f"{store.shown} does not say which store it is, in words that a store of ours would use")
    other = read.setdefault(identity.name, store.shown)
    if other != store.shown:
        raise ConfigError(f"{store.shown} is a copy of {other}: name one of them")
    return identity


def _may_go_on(last: SourceCut, store: Store, identity: Identity, *, bodies: bool) -> bool:
    return (last.life, last.version, last.bodies) == (identity.life, store.kind.version, bodies)


@dataclass(frozen=True, slots=True)
class _Tally:
    """What the lake has of a source: rows by table, those that the store should have, and batches."""

    rows: dict[str, int]
    live: dict[str, int]
    batches: int

    @classmethod
    def of(cls, last: SourceCut | None) -> "_Tally":
        return cls(dict(last.rows), dict(last.live), last.batches) if last else cls({}, {}, 0)

    def add_whole(self, kind: Kind, wholes: Mapping[str, pa.Table]) -> None:
        """Take the small tables in place of what they were; rows that may still change count for another table."""
        for name, rows in wholes.items():
            if settled := kind.table(name).open_of:
                self.live[settled] = self.live.get(settled, 0) + rows.num_rows - self.rows.get(name, 0)
            self.rows[name] = rows.num_rows

    def compare(self, counts: Mapping[str, int], *, forgets: bool) -> str:
        """Say where the lake has not what the store counts; nothing, if they agree.

        Of one that forgets, some may have gone between the reading and the counting.
        """
        found = {name: rows for name, rows in {**self.rows, **self.live}.items() if name in counts}
        differ = [n for n, rows in found.items() if rows != counts[n] and not (forgets and rows > counts[n])]
        return ", ".join(
            f"{found[name]} rows of {name} in the lake, {counts[name]} in the store" for name in differ
        )


def _digest(tables: Mapping[str, pa.Table]) -> str:
    """Tell one state of the small tables from another."""
    state = hashlib.sha256()
    for table in tables.values():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        state.update(sink.getvalue())
    return state.hexdigest()
