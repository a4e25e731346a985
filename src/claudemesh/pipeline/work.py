"""One command at a lake: it is brought up to date first, and Spark is there when there is something for it to do.

Nothing here loads Spark before that: an ingest without news starts no JVM.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError, DependencyError, InvalidRequest, NoSpark
from claudemesh.pipeline.catalogue import KINDS
from claudemesh.pipeline.jobs.params import RETENTION_DAYS, SENDS_PER_WINDOW, WINDOW_S, Params
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.progress import Progress
from claudemesh.runtime.extras import how_to_get

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claudemesh.pipeline.outputs import Run

SCRATCH: Final = "_scratch"
LITTLE_BYTES: Final = 64 << 20
_OF_THE_EXTRA: Final = ("adbc_driver", "numpy", "pandas", "py4j", "pyarrow", "pyspark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the commands are asked."""

    store: tuple[str, ...] = ()
    lake: Path | None = None
    master: str | None = None
    since: int | None = None
    bodies: bool | None = None
    full: bool = False
    cut: int | None = None
    retention_days: int = RETENTION_DAYS
    window_s: int = WINDOW_S
    sends_per_window: int = SENDS_PER_WINDOW


class Work:
    def __init__(self, home: Path, asked: Asked, clock: Clock, progress: Progress) -> None:
        self._home = home
        self._asked = asked
        self._spark: SparkSession | None = None
        self.lake = Lake(asked.lake or home / "lake")
        self.progress = progress
        self.now_ms = clock.wall_ms()

    def bring(self, *, verify: bool = True) -> Cut:
        """Return the cut that was asked for, or one of now; `verify` counts the stores even if nothing is new."""
        if self._asked.cut is not None:
            return self._older(self._asked.cut)
        from claudemesh.pipeline.ingest import Ingest, Wish  # noqa: PLC0415 - the drivers of the stores
        from claudemesh.pipeline.metrics import write_metrics  # noqa: PLC0415 - as above
        from claudemesh.pipeline.stores import find_stores, open_stores, readable  # noqa: PLC0415 - as above

        places = self._asked.store or find_stores(self._home)
        if not places:
            raise InvalidRequest(f"{self._home} holds no store: name one with --store")
        wish = Wish(full=self._asked.full, verify=verify, bodies=self._asked.bodies)
        self.progress.expect(1)
        with readable(), self.progress.stage("ingest"):
            cut = Ingest(self.lake, self.spark, wish, self.progress.step).run(open_stores(places), self.now_ms)
        write_metrics(self.lake, cut, {})
        return cut

    def _older(self, number: int) -> Cut:
        """Return a cut as it is: no store is read for it."""
        if self._asked.store or self._asked.full or self._asked.bodies is not None:
            raise InvalidRequest("--cut reads no store: leave out --store, --full, --bodies and --no-bodies")
        cut = self.lake.cut(number).of_now()
        for name, source in cut.sources.items():
            if source.kind not in KINDS or KINDS[source.kind].version != source.version:
                raise ConfigError(
                    f"cut {number} has other tables of {name} than this version reads: run it without --cut,"
                    " or with the version that wrote it"
                )
        return cut

    @contextmanager
    def run(self, cut: Cut) -> "Iterator[Run]":
        """Have the lake alone, with a cut of it for jobs."""
        from claudemesh.pipeline import session  # noqa: PLC0415 - all of Spark
        from claudemesh.pipeline.outputs import Run  # noqa: PLC0415 - as above
        from claudemesh.pipeline.place import check_whole  # noqa: PLC0415 - as above

        with self.lake.locked():
            check_whole(self.lake, cut)
            spark = self.spark()
            rows = sum(count for source in cut.sources.values() for count in source.rows.values())
            session.suit(spark, rows)
            yield Run(spark, self.lake, cut, replace(self.params(), cut_ms=self.until_ms(cut)), self.progress)

    def params(self) -> Params:
        asked = self._asked
        return Params(self.now_ms, asked.since, asked.retention_days, asked.window_s, asked.sends_per_window)

    def until_ms(self, cut: Cut) -> int:
        """Say when the stores were looked at: what was acknowledged after it need not be in the cut."""
        return self.now_ms if self._asked.cut is None else cut.at_ms

    def spark(self) -> "SparkSession":
        if self._spark is None:
            from claudemesh.pipeline import session  # noqa: PLC0415 - all of Spark

            self.progress.step("starting Spark")
            scratch, brief = self.lake.root / SCRATCH, self._is_little()
            self._spark = session.build(self._asked.master, scratch=scratch, name="claudemesh", brief=brief)
            self.progress.watch(self._spark)
        return self._spark

    def _is_little(self) -> bool:
        """Judge by the files of the stores; how much a server holds, nobody asks it for this."""
        from claudemesh.pipeline.stores import find_stores, measure  # noqa: PLC0415 - as above

        places = self._asked.store or find_stores(self._home)
        return self._asked.cut is None and sum(map(measure, places)) < LITTLE_BYTES

    def close(self) -> None:
        if self._spark is not None:
            from claudemesh.pipeline import session  # noqa: PLC0415 - as above

            session.stop(self._spark)


def _reason(error: Exception) -> str:
    """Say in a line what went wrong in Spark, by the first cause of it that says anything."""
    cause, lines = getattr(error, "java_exception", None) or getattr(error, "_origin", None), [str(error)]
    while cause is not None:
        lines.append(str(cause.toString()))
        cause = cause.getCause()
    return lines[-1].strip().partition("\n")[0]


@contextmanager
def working(home: Path, asked: Asked, clock: Clock, progress: Progress) -> Iterator[Work]:
    work = Work(home, asked, clock, progress)
    try:
        yield work
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(_OF_THE_EXTRA):
            raise
        raise NoSpark(f"{error.name} is not installed: {how_to_get('spark')}") from None
    except Exception as error:
        if not type(error).__module__.startswith(_OF_THE_EXTRA):
            raise
        raise DependencyError(_reason(error)) from error  # told while there is still a JVM to ask
    finally:
        work.close()
