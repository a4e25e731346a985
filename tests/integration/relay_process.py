"""A relay as a process of its own, started by its command, and an operator at a terminal beside it."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw

from claudemesh.cli.statehub.main import main
from tests.fake_upstream import Reply as Answer
from tests.integration.hub_process import WITHIN_S, Hub
from tests.ports import own_address
from tests.printed import check_output


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  any document
        return json.loads(self.out)


@dataclass
class Relay:
    """A home of its own, with a relay in it while `serving`."""

    home: Path
    upstream: str
    listen: str = field(default_factory=own_address)

    def __post_init__(self) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)

    @property
    def outbox(self) -> Path:
        return self.home / "edge" / "outbox.db"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("CLAUDEMESH_", "STATEHUB_"))
        }
        return {**kept, "CLAUDEMESH_HOME": str(self.home), "NO_COLOR": "1"}

    @contextmanager
    def serving(self, *words: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
        """Run it until the block ends, or until it ends by itself."""
        said = ["--listen", self.listen, "--upstream", self.upstream, "--json", *words]
        with (
            (self.home / "log").open("a") as log,
            subprocess.Popen(
                [sys.executable, "-m", "claudemesh.cli.statehub.edge", *said],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**self.environment, **environment},
            ) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, (self.home / "log").read_text()
                assert json.loads(line) == {"url": f"http://{self.listen}", "upstream": self.upstream}
                check_output("statehub-edge", said, 0, line)
                yield process
                process.terminate()
                assert process.wait(WITHIN_S) in {0, -signal.SIGKILL}
            finally:
                process.kill()

    def run(self, *words: str, stdin: bytes = b"", **environment: str) -> Ran:
        """Run `statehub` in this home; in this process, since a test runs many."""
        out, err, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin))
        with (
            patch.dict(os.environ, {**self.environment, **environment}, clear=True),
            patch.object(sys, "stdin", given),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(words)
        return Ran(code, out.getvalue(), err.getvalue())

    def run_alone(self, *words: str) -> Ran:
        """Run `statehub` as a process of its own."""
        return self._run(["claudemesh.cli.statehub.main", *words])

    def told(self, *words: str, code: int = 0, stdin: bytes = b"") -> Any:  # noqa: ANN401  any document
        """Return what a command says as JSON, if it ends as it should."""
        ran = self.run(*words, "--json", stdin=stdin)
        assert ran.code == code, (words, ran)
        return ran.json

    def edge(self, *words: str, **environment: str) -> Ran:
        """Run `statehub-edge` where it should end by itself."""
        ran = self._run(["claudemesh.cli.statehub.edge", *words], **environment)
        if "--json" in words:
            check_output("statehub-edge", words, ran.code, ran.out)
        return ran

    def _run(self, words: list[str], **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**self.environment, **environment},
            timeout=WITHIN_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        return Hub(self.home, "", self.listen).ask(method, path, body, **headers)

    def queue(self, method: str, path: str, body: object, **headers: str) -> Any:  # noqa: ANN401  the receipt
        answer = self.ask(method, path, body, **headers)
        assert answer.status == 202, answer.body
        return answer.json

    def damage(self) -> None:
        """Spoil an index of its file: nobody can rely on it any more, and the rows can be read one by one."""
        connection = apsw.Connection(str(self.outbox))
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'envelope_event_of'"
        found: Any = connection.execute(sql).fetchall()
        size: Any = connection.execute("PRAGMA page_size").fetchall()
        connection.close()
        with self.outbox.open("r+b") as file:
            file.seek((found[0][0] - 1) * size[0][0])
            file.write(b"\xff" * size[0][0])
