"""A Spark session: on a Java that was found, with workers of our own Python, and with an end that is certain.

Every setting here gives way to `spark-defaults.conf` of SPARK_CONF_DIR, and that to the caller's. Each JVM has a
directory of its own, for what it spills and what it logs, and holds a lock on it as long as it lives; what killed
drivers left behind is removed at the next start.
"""

import fcntl
import logging
import os
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
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
_TOLD: Final = "gateway"  # where the JVM listens: it writes this when it is ready
_LOOK_S: Final = 0.1
_PREFIX: Final = "spark-"
_BESIDE: Final = re.compile(r"\s|$|Picked up |Using Spark's|.* WARN ")  # lines of a log that are no reason


def build(
    master: str | None, *, scratch: Path, name: str, brief: bool = False, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a JVM and a session in it; `scratch` is a directory of this machine. A process has room for one.

    With `brief` it is set up for what will soon be over.
    """
    environment = read_environment()
    java = find_java(environment)
    with _Start() as start:
        with start.uninterrupted():
            place, start.lock = _claim(scratch)
            start.place = place
        settings = _settle(master, place, _read_defaults(environment), brief=brief)
        settings |= {"spark.app.name": name, **(conf or {})}
        with lent_environment(_variables(environment, place, java)):
            try:
                return _start(settings, place, start)
            except Exception as error:
                raise NoSpark(_reason(error, place / _LOG)) from error


def stop(session: SparkSession) -> None:
    """Wait until the JVM is gone: pyspark leaves it running, and only lets it notice that Python ended."""

    def ask() -> None:
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it may be gone already, or not answer any more
            session.stop()

    # A thread has its own connection to the JVM: on this one an interrupted call may still wait for its answer.
    stopping = threading.Thread(target=ask, daemon=True)
    stopping.start()
    try:
        stopping.join(END_S)
    finally:
        _end_jvm()


# For what is over before a JVM's second compiler has helped, or plans that are changed as they run: the one takes
# two fifths of the processor's time there, the other a seventh. The first compiler alone is given so little room
# for its code that Spark's does not fit, and the same things are compiled again and again. Spark's pages follow the
# size of the heap, so that a join of ten rows takes, and clears, 64 MB. Both together were another three tenths.
BRIEF: Final = {
    "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
    " -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.buffer.pageSize": "1m",
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


def _settle(master: str | None, place: Path, defaults: Mapping[str, str], *, brief: bool) -> dict[str, str]:
    master = master or defaults.get("spark.master", "local[*]")
    return {
        **derive_settings(master, os.cpu_count() or 1, _memory_bytes(), brief=brief),
        **defaults,
        "spark.master": master,
        "spark.local.dir": str(place),
        "spark.sql.session.timeZone": "UTC",  # a day is the same everywhere
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }


def _variables(environment: Mapping[str, str], place: Path, java: Path) -> dict[str, str]:
    return {
        "JAVA_HOME": str(make_java_home(place / "java", java)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable),
        # A stream is planned by a worker beside the driver, which does not get what is shipped to the others.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_PACKAGE.parent), environment.get("PYTHONPATH")])),
    }


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


class _Start:
    """What a start has made so far, which is ended if the start is; and what becomes of a Ctrl-C meanwhile.

    It waits while something is made that nobody has a handle on yet. While all is ended, it ends the JVM at once.
    """

    def __init__(self) -> None:
        self.place: Path | None = None
        self.lock: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._is_held = self._is_noted = self._is_ending = False
        self._before = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        try:
            if raised is not None:
                self._undo()
        finally:
            self._handle(self._before)
            if self.lock is not None:
                os.close(self.lock)  # the JVM has its own hold on it

    def listen(self) -> None:
        """Hear a Ctrl-C from now on, unless nobody is to."""
        self._handle(self._hear if callable(self._before) else self._before)

    def _handle(self, handler: Any) -> None:  # noqa: ANN401 - what `signal.signal` takes
        if threading.current_thread() is threading.main_thread():  # no other is ever interrupted
            signal.signal(signal.SIGINT, handler)

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_noted:
            signal.raise_signal(signal.SIGINT)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._is_ending:
            if self.process is not None and self.process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
        elif self._is_held:
            self._is_noted = True
        elif callable(self._before):
            self._is_ending = True  # nothing is to come between what this raises and the end
            self._before(number, frame)
            self._is_ending = False

    def _undo(self) -> None:
        self._is_ending = True
        if self.process is not None:
            _end(self.process)
        _forget()
        if self.place is not None:
            shutil.rmtree(self.place, ignore_errors=True)


def _start(settings: Mapping[str, str], place: Path, start: _Start) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    hush_py4j()
    gateway = _launch(conf, place, start)
    context = SparkContext(conf=conf, gateway=gateway)
    # pyspark's would ask the JVM to cancel, on the connection that the interrupted call waits on.
    start.listen()
    session = SparkSession(context)
    if not is_local(settings["spark.master"]):
        session.sparkContext.addPyFile(str(_pack(place)))
    return session


def _launch(conf: SparkConf, place: Path, start: _Start) -> Any:  # noqa: ANN401 - pyspark has no type for it
    """Start a JVM as pyspark does, which would keep its handle to itself until the JVM answers, if it ever does."""
    environment = read_environment()
    words = [word for name, value in conf.getAll() for word in ("--conf", f"{name}={value}")]
    words += shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with (place / _LOG).open("wb") as log, start.uninterrupted():
        start.process = process = subprocess.Popen(  # noqa: S603 - pyspark's own program, as a list of words
            [str(Path(_find_spark_home(), "bin", "spark-submit")), *words],
            stdin=subprocess.PIPE,  # it ends when this is closed
            stdout=log,
            stderr=log,
            env={
                **environment,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place / _TOLD),
            },
            pass_fds=() if start.lock is None else (start.lock,),
            start_new_session=True,  # a Ctrl-C is for this process, which then ends the other
        )
    while not (place / _TOLD).exists():
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_LOOK_S)
            raise RuntimeError(f"the JVM ended with {code}")
    told = (place / _TOLD).read_bytes()
    port, size = struct.unpack_from(">ii", told)
    secret = told[-size:].decode()
    with lent_environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    gateway.proc, gateway.place = process, place
    return gateway


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
    _end(gateway.proc)
    _forget()
    shutil.rmtree(gateway.place, ignore_errors=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a JVM, or what was to become one, and all that it has started: also if this is interrupted."""
    if process.returncode is not None:
        return
    handle = os.pidfd_open(process.pid)
    try:
        if process.stdin is not None:
            process.stdin.close()  # the sign to end, once it looks
        os.killpg(process.pid, signal.SIGTERM)
        select.select([handle], [], [], END_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # whoever ended keeps its group's number until it is waited for
        process.wait()
        os.close(handle)


def _forget() -> None:
    """Let whoever wants a session now start a JVM anew."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - as above
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
    with suppress(Exception):  # there is nobody to answer
        gateway.shutdown()


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
