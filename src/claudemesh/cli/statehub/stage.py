"""Where an outage is rehearsed: a hub and a relay as processes, in a folder of their own, on ports that are free.

Nothing of the user's is used: neither their home, nor their settings, nor their credentials.
"""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claudemesh.edge.asking import Answered, Api, NobodyThere
from claudemesh.kernel.errors import DependencyError
from claudemesh.runtime.dice import roll
from claudemesh.runtime.environment import read_environment
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.processes import read_line, run_heard, start_heard

if TYPE_CHECKING:
    from subprocess import Popen

START_S: Final = 20.0
STOP_S: Final = 10.0
COMMAND_S: Final = 40.0

# Below what the kernel lends to clients: the hub's port has to be free again when it comes back.
PORTS: Final = (10_000, 15_000)

# -P: without it Python looks for modules in the working directory first, which may be anybody's.
STATEHUB: Final = (sys.executable, "-P", "-m", "claudemesh.cli.statehub.main")
EDGE: Final = (sys.executable, "-P", "-m", "claudemesh.cli.statehub.edge")

_FOREIGN: Final = ("CLAUDEMESH_", "STATEHUB_")


class Stage:
    """`secret` is shown to the relay with every request, and has to be forgotten there."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        inherited = {name: text for name, text in read_environment().items() if not name.startswith(_FOREIGN)}
        self._environment = {**inherited, "CLAUDEMESH_HOME": str(self.home), "NO_COLOR": "1"}
        self.hub = Api.at_url(f"http://127.0.0.1:{free_port()}")
        self.relay = Api.at_url(f"http://127.0.0.1:{free_port()}", secret)
        self._running: dict[str, Popen[str]] = {}

    @property
    def edge_dir(self) -> Path:
        return self.home / "edge"

    def start_hub(self) -> None:
        self._start("hub", [*STATEHUB, "serve", "--listen", _listen(self.hub), "--json"])

    def start_relay(self) -> None:
        self._start("relay", [*EDGE, "--listen", _listen(self.relay), "--upstream", self.hub.where, "--json"])

    def _start(self, name: str, argv: list[str]) -> None:
        log = self.folder / f"{name}.log"
        self._running[name] = process = start_heard(argv, self._environment, log)
        if "http://" not in read_line(process, START_S):
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise DependencyError(f"the {name} does not start: {said[-1] if said else 'it said nothing'}")

    def kill(self, name: str) -> int:
        """End a process without a word, as a crash would; return its number."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        self._await(process)
        return process.pid

    def stop(self, name: str) -> int:
        """Have a process stop by itself; return how it ended."""
        process = self._running.pop(name)
        process.terminate()
        return self._await(process)

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    @staticmethod
    def _await(process: "Popen[str]") -> int:
        with process:  # which also closes what it was heard by
            if not wait_until(lambda: process.poll() is not None, STOP_S):
                process.kill()
            return process.wait()

    def command(self, *words: str) -> tuple[int, Any]:
        """Run `statehub` as an operator would; return how it ended, and what it said as JSON."""
        code, out, err = run_heard([*STATEHUB, *words, "--json"], self._environment, COMMAND_S)
        with suppress(ValueError):
            return code, json.loads(out)
        raise DependencyError(f"`statehub {' '.join(words)}` ended with {code}: {err.strip() or 'it said nothing'}")

    def ask(self, api: Api, method: str, path: str, body: object = None, key: str | None = None) -> Answered:
        headers = {"x-source-agent": "drill", **({} if key is None else {"idempotency-key": key})}
        try:
            return api.ask(method, path, body, headers)
        except NobodyThere as error:
            raise DependencyError(str(error)) from error


@contextmanager
def opened(folder: Path, secret: str) -> Iterator[Stage]:
    stage = Stage(folder, secret)
    try:
        yield stage
    finally:
        stage.close()


def _listen(api: Api) -> str:
    return api.where.removeprefix("http://")


def free_port() -> int:
    first, last = PORTS
    while True:
        port = first + int(roll() * (last - first))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
