"""A hub as a process of its own, started by its command, and what is asked of it over a real socket."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import canaries
from tests.fake_upstream import Reply as Answer
from tests.ports import own_address
from tests.printed import check_output

WITHIN_S = 30

# Ends without a word at a point, when it is reached for the n-th time after a file appeared.
VICTIM = """
import os, signal, sys
from pathlib import Path
from claudemesh.cli.statehub.main import main
from claudemesh.runtime import points

point, after, trigger = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
import claudemesh.hub.stores.sqlite
if point.startswith("postgres"):
    import claudemesh.hub.stores.postgres
left = after

def reached():
    global left
    if trigger.exists():
        left -= 1
        if left == 0:
            trigger.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

points.arm(point, reached)
sys.exit(main(sys.argv[4:]))
"""


@dataclass
class Hub:
    """Where a hub is to be had, and how it is asked."""

    home: Path
    store: str
    listen: str = field(default_factory=own_address)
    token: str | None = None

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "claudemesh.cli.statehub.main", *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CLAUDEMESH_HOME": str(self.home)}

    @contextmanager
    def serving(self, *words: str, victim: tuple[str, int, Path] | None = None) -> Iterator[subprocess.Popen[str]]:
        """Run it until the block ends, or until it ends by itself."""
        said = ["serve", "--listen", self.listen, "--store", self.store, "--json", *words]
        command = self.command(*said)
        if victim is not None:
            command = [sys.executable, "-c", VICTIM, *map(str, victim), *said]
        with (
            (self.home / "log").open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment
            ) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, (self.home / "log").read_text()
                assert json.loads(line) == {"url": f"http://{self.listen}"}
                check_output("statehub", said, 0, line)
                yield process
                process.terminate()
                process.wait(WITHIN_S)
            finally:
                process.kill()

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        ran = subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=WITHIN_S,
        )
        if "--json" in words:
            check_output("statehub", words, ran.returncode, ran.stdout)
        return ran

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request, with canaries; a header's name is written with _ for -, bytes are sent as they are."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"cookie": canaries.CALLERS_HEADERS["cookie"], "x-api-key": canaries.API_KEY}
        if data is not None:
            sent["content-type"] = "application/json"
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        connection = http.client.HTTPConnection(self.listen, timeout=WITHIN_S)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def make(self, path: str, body: object, **headers: str) -> Any:  # noqa: ANN401  the row
        made = self.ask("POST", path, body, **headers)
        assert made.status == 201, made.body
        return made.json

    def listed(self, path: str, limit: int = 3) -> list[Any]:
        """Return all rows of a list, page by page."""
        rows: list[Any] = []
        cursor = ""
        while True:
            page = self.ask("GET", f"{path}?limit={limit}{cursor}").json
            rows += page["items"]
            if page["next_cursor"] is None:
                return rows
            cursor = f"&cursor={page['next_cursor']}"
