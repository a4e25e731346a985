"""A Spark session: on a Java that was found, with workers of our own Python, and with an end that is certain.

Every setting here gives way to `spark-defaults.conf` of SPARK_CONF_DIR, and that to the caller's. Each JVM has a
directory of its own, for what it spills and what it logs, and holds a lock on it as long as it lives; what killed
drivers left behind is removed at the next start.
"""

import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from claudemesh.kernel.errors import NoSpark
from claudemesh.pipeline.java import find_java, make_java_home
from claudemesh.runtime.environment import lent_environment, read_environment

END_S: Final = 30.0
GIB: Final = 1 << 30
HEAP_MIN_GIB: Final = 1
HEAP_MAX_GIB: Final = 8
ROWS_A_PARTITION: Final = 250_000

_PACKAGE: Final = Path(__file__).parents[1]
_LOG: Final = "jvm.log"
_PREFIX: Final = "spark-"
_BESIDE: Final = re.compile(r"\s|$|Using Spark's|.* WARN ")  # lines of a log that are no reason


def build(
    master: str | None, *, scratch: Path, name: str, brief: bool = False, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a JVM and a session in it; `scratch` is a directory of this machine. A process has room for one.

    With `brief` it is set up for what will soon be over.
    """
    environment = read_environment()
    java = find_java(environment)
    place, lock = _claim(scratch)
    defaults = _read_defaults(environment)
    master = master or defaults.get("spark.master", "local[*]")
    settings = {
        **derive_settings(master, os.cpu_count() or 1, _memory_bytes(), brief=brief),
        **defaults,
        "spark.master": master,
        "spark.app.name": name,
        "spark.local.dir": str(place),
        "spark.sql.session.timeZone": "UTC",  # a day is the same everywhere
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        **(conf or {}),
    }
    variables = {
        "JAVA_HOME": str(make_java_home(place / "java", java)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable),
        # A stream is planned by a worker beside the driver, which does not get what is shipped to the others.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_PACKAGE.parent), environment.get("PYTHONPATH")])),
    }
    try:
        with lent_environment(variables):
            return _start(settings, place, lock)
    except BaseException as error:
        reason = _reason(error, place / _LOG)
        _end_jvm()
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, Exception):
            raise NoSpark(reason) from error
        raise
    finally:
        os.close(lock)  # the JVM has its own hold on it


def stop(session: SparkSession) -> None:
    """Wait until the JVM is gone: pyspark leaves it running, and only lets it notice that Python ended."""

    def ask() -> None:
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it may be gone already, or not answer any more
            session.stop()

    # A thread has its own connection to the JVM: on this one an interrupted call may still wait for its answer.
    stopping = threading.Thread(target=ask, daemon=True)
    stopping.start()
    stopping.join(END_S)
    _end_jvm()


# For what is over before a JVM's second compiler has helped, or plans that are changed as they run: the one takes
# two fifths of the processor's time there, the other a seventh.
BRIEF: Final = {
    "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
}


def suit(session: SparkSession, rows: int) -> None:
    """Let shuffles have as many parts as so many rows need: one costs the same if it is empty."""
    most = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    session.conf.set("spark.sql.shuffle.partitions", str(max(1, min(most, rows // ROWS_A_PARTITION))))


# --- settings ----------------------------------------------------------------------------------------


def derive_settings(master: str, cores: int, memory_bytes: int, *, brief: bool = False) -> dict[str, str]:
    """Return what suits a master and the machine of the driver; all of it can be overruled."""
    settings = {
        "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.memory": f"{min(max(memory_bytes // 2 // GIB, HEAP_MIN_GIB), HEAP_MAX_GIB)}g",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(8 * cores),  # the default, 200, is for data of another size
            **(BRIEF if brief else {}),
        }
    return settings


def is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def parse_defaults(text: str) -> dict[str, str]:
    """Read Spark's own file of settings: a name and a value in each line."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}  # noqa: PLR2004 - a name and a value


def _read_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    folder = environment.get("SPARK_CONF_DIR")
    try:
        return parse_defaults(Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")) if folder else {}
    except FileNotFoundError:
        return {}


def _memory_bytes() -> int:
    """Return the machine's memory, or what a container has of it."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(there, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such limit, or the word `max`
        return there


# --- the JVM -----------------------------------------------------------------------------------------


def _start(settings: Mapping[str, str], place: Path, lock: int) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    interrupt = signal.getsignal(signal.SIGINT)
    hush_py4j()
    with (place / _LOG).open("wb") as log:
        gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]
            conf, {"stdout": log, "stderr": log, "pass_fds": (lock,), "start_new_session": True}
        )
    gateway.place = place
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    # pyspark's would ask the JVM to cancel, on the connection that the interrupted call waits on.
    signal.signal(signal.SIGINT, interrupt)
    if not is_local(settings["spark.master"]):
        session.sparkContext.addPyFile(str(_pack(place)))
    return session


def hush_py4j() -> None:
    """Keep quiet what py4j says of a Ctrl-C, in tracebacks: by loggers of its own, and without one."""
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _pack(place: Path) -> Path:
    """Pack this package, so that workers run the version of their driver."""
    archive = place / "claudemesh.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(_PACKAGE.rglob("*")):
            if path.suffix in {".py", ".sql"}:
                packed.write(path, path.relative_to(_PACKAGE.parent))
    return archive


def _end_jvm() -> None:
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no other way to it
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - whoever wants a session now starts a JVM anew
    with suppress(Exception):  # as above
        gateway.shutdown()
    gateway.proc.stdin.close()  # the sign to end
    try:
        gateway.proc.wait(END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    shutil.rmtree(gateway.place, ignore_errors=True)


def _reason(error: BaseException, log: Path) -> str:
    """Say in one line why there is no session: what Spark raised, or else how the log of its JVM begins."""
    if raised := getattr(error, "java_exception", None):
        return str(raised).partition("\n")[0]
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "; ".join([line for line in lines if not _BESIDE.match(line)][:2]) or repr(error)


# --- a directory for it --------------------------------------------------------------------------------


def _claim(scratch: Path) -> tuple[Path, int]:
    """Make a directory and lock it; those that nobody holds are left over, and removed."""
    scratch.mkdir(parents=True, exist_ok=True)
    gate = os.open(scratch, os.O_RDONLY)  # so that nobody removes what another has made and not locked yet
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for left in scratch.glob(f"{_PREFIX}*"):
            _remove_unless_held(left)
        place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=scratch))
        lock = os.open(place, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return place, lock
    finally:
        os.close(gate)


def _remove_unless_held(place: Path) -> None:
    with suppress(FileNotFoundError):
        lock = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
