"""The command line in this process, beside the daemons that it asks: what it prints, and how it ends."""

import asyncio
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from claudemesh.cli.main import main
from tests.mesh import LocalDaemon


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  JSON
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def claudemesh(who: LocalDaemon, *words: str, stdin: str = "") -> Ended:
    """Run a command in a member's home, with `--json`."""
    home = str(who.state_dir.parent.parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDEMESH_")}
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {**kept, "CLAUDEMESH_HOME": home}, clear=True),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = await asyncio.to_thread(main, [*words, "--json"])
    return Ended(code, out.getvalue(), err.getvalue())
