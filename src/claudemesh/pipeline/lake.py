"""The lake: directories of Parquet, and the cuts that say which of them belong together.

    <lake>/
      _cuts/<n>.json                                      a cut: published by rename, never changed
      _checkpoints/<source>/g=<generation>/               Spark's own notes on how far a source was copied
      bronze/<source>/g=<generation>/<table>/batch=<id>/  append-only tables, one directory a batch
      bronze/<source>/g=<generation>/<table>/cut=<n>/     small tables, whole
      gold/<job>/cut=<n>/                                 what the jobs made of a cut
      heads/<source>.json                                 of the last audit that found nothing
      search/<source>/                                    the archive of an inbox, in a lake with bodies
      metrics.prom                                        what the last command saw, to be scraped
      lock, _plans/, _scratch/                            of the command that runs

A reader takes a cut and what it names: batches beyond it may be half written. A source is read anew into its next
generation when its copy cannot go on: other tables, another life of the store, or bodies that were not asked for.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from claudemesh.kernel.errors import ConfigError, InvalidRequest
from claudemesh.pipeline.catalogue import KINDS
from claudemesh.runtime.home import InstanceLock, sync_directory, write_private

CUTS_KEPT: Final = 20
_LOG = logging.getLogger(__name__)


class Earlier(msgspec.Struct, frozen=True):
    """A copy of a store that forgets, from before it was read anew: what it has and the newest has not, counts."""

    generation: int
    batches: int
    rows: dict[str, int]


class SourceCut(msgspec.Struct, frozen=True, kw_only=True):
    """One store at a cut."""

    kind: str
    store: str  # where it was read, without a password
    life: str  # of the store: another one after a backup was restored, or on another server
    generation: int
    version: int
    bodies: bool
    position: dict[str, Any]  # how far it was read, in the words of its source
    batches: int  # 0 to this, without it
    whole: int  # the cut that the small tables were copied for
    rows: dict[str, int]  # in the lake
    live: dict[str, int]  # of what the store counts: without what is gone, and with what may still change
    counts: dict[str, int]  # as the store itself counts at the cut
    lag: dict[str, float]  # what is still open there, and for how long
    digest: str  # of the small tables
    earlier: list[Earlier] = []

    @property
    def past(self) -> str:
        """Tell one past of the store from another: a backup that came back is one, another server is not."""
        return self.life.partition("/")[0]


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at_ms: int
    sources: dict[str, SourceCut]  # all that was ever copied
    read: list[str]  # the stores that were looked at for this cut: only these are as of now

    def of_now(self) -> "Cut":
        """Return the cut without what nobody looked at: no verdict may rest on a copy of a store that is gone."""
        return replace(self, sources={name: self.sources[name] for name in self.read})


class Lake:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    # --- cuts --------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of all cuts, the newest last."""
        return sorted(int(file.stem) for file in (self.root / "_cuts").glob("*.json") if file.stem.isdigit())

    def newest(self) -> int:
        """Return the number of the newest cut; 0 if there is none."""
        return max(self.numbers(), default=0)

    def latest(self) -> Cut | None:
        return self.cut(newest) if (newest := self.newest()) else None

    def cut(self, number: int) -> Cut:
        file = self._manifest(number)
        try:
            cut = msgspec.json.decode(file.read_bytes(), type=Cut)
        except FileNotFoundError as error:
            known = ", ".join(map(str, self.numbers())) or "none"
            raise InvalidRequest(f"the lake has no cut {number}; it has: {known}") from error
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{file} is not a cut of this version: move the lake away ({error})") from error
        if cut.number != number or not {*cut.read} <= {*cut.sources}:
            raise ConfigError(f"{file} was edited: move the lake away")
        return cut

    def publish(self, cut: Cut) -> None:
        """Make it the newest. What it names has to be durable before."""
        write_durably(self._manifest(cut.number), msgspec.json.format(msgspec.json.encode(cut)))

    def _manifest(self, number: int) -> Path:
        return self.root / "_cuts" / f"{number}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out; raises AlreadyRunning with the one that is in."""
        make_private(self.root)
        with InstanceLock(self.root / "lock"):
            for part in ("_checkpoints", "bronze", "gold"):  # Spark would make them open to others
                make_private(self.root / part)
            for plan in (self.root / "_plans").glob("*"):  # of a process that was killed: it may name a password
                plan.unlink()
            yield

    def vacuum(self) -> None:
        """Remove old cuts, and copies and results that no cut names any more."""
        for number in self.numbers()[:-CUTS_KEPT]:
            self._manifest(number).unlink()
        try:
            cuts = [self.cut(number) for number in self.numbers()]
        except ConfigError as error:  # who knows what it named
            _LOG.warning("nothing old is removed: %s", error)
            return
        copies = [(name, source) for cut in cuts for name, source in cut.sources.items()]
        generations = {(name, f"g={source.generation}") for name, source in copies}
        generations |= {(name, f"g={one.generation}") for name, source in copies for one in source.earlier}
        wholes = {(name, f"cut={source.whole}") for name, source in copies}
        numbers = {f"cut={cut.number}" for cut in cuts}
        with_bodies = {name for cut in cuts[-1:] for name, source in cut.sources.items() if source.bodies}
        is_named: dict[str, Callable[[Path], bool]] = {
            "bronze/*/g=*": lambda place: (place.parts[-2], place.name) in generations,
            "_checkpoints/*/g=*": lambda place: (place.parts[-2], place.name) in generations,
            "bronze/*/*/*/cut=*": lambda place: (place.parts[-4], place.name) in wholes,
            "gold/*/cut=*": lambda place: place.name in numbers,
            "search/*": lambda place: place.name in with_bodies,
        }
        for kind in KINDS.values():
            for table in kind.tables:
                if table.is_body:
                    is_named[f"bronze/{kind.name}-*/*/{table.name}"] = lambda place: place.parts[-3] in with_bodies
        for pattern, is_wanted in is_named.items():
            for place in self.root.glob(pattern):
                if not is_wanted(place):
                    shutil.rmtree(place)

    # --- places ------------------------------------------------------------------------------------

    def batch(self, source: str, generation: int, table: str, number: int) -> Path:
        return self._table(source, generation, table) / f"batch={number}"

    def batches(self, source: str, generation: int, table: str, upto: int) -> list[Path]:
        """Return the directories of the batches before that number; one in which the table has no rows has none."""
        found = (self.batch(source, generation, table, number) for number in range(upto))
        return [directory for directory in found if directory.is_dir()]

    def whole(self, source: str, generation: int, table: str, cut: int) -> Path:
        return self._table(source, generation, table) / f"cut={cut}"

    def checkpoint(self, source: str, generation: int) -> Path:
        return self.root / "_checkpoints" / source / f"g={generation}"

    def next_generation(self, source: str) -> int:
        """Return a number that no copy of the source was begun under."""
        begun = (
            directory
            for parent in ("bronze", "_checkpoints")
            for directory in (self.root / parent / source).glob("g=*")
        )
        numbers = (directory.name.removeprefix("g=") for directory in begun)
        return max((int(number) + 1 for number in numbers if number.isdigit()), default=0)

    def gold(self, job: str, cut: int) -> Path:
        return self.root / "gold" / job / f"cut={cut}"

    def _table(self, source: str, generation: int, table: str) -> Path:
        return self.root / "bronze" / source / f"g={generation}" / table


# --- durable files ---------------------------------------------------------------------------------


def make_private(directory: Path) -> None:
    """Make the directory for nobody but us: a lake may hold what people wrote."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_durably(file: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    make_private(file.parent)
    write_private(file, content)


def sync_tree(directory: Path) -> None:
    """Make all that is in a directory durable, and its name."""
    for place, _, names in os.walk(directory):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDONLY)  # noqa: PTH118 - a path per file would cost
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(place))
    sync_directory(directory.parent)
