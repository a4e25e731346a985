"""A server's parts in a home of their own, where nothing runs: no mesh, no daemon, no relay."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from claudemesh.mcp.parts import Parts, open_parts
from claudemesh.mcp.tools import TOOLS, Answer, call
from claudemesh.runtime.home import Home
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import real_world

Use = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Parts]:
    monkeypatch.delenv("CLAUDEMESH_MESH", raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    opened = open_parts(Home(tmp_path / "home"), None, real_world())
    yield opened
    await opened.keys.aclose()
    opened.daemon.close()


@pytest.fixture
def use(parts: Parts) -> Use:
    """Call a tool as a client does, with what the protocol carries."""

    async def run(tool: str, **given: Any) -> Answer:  # noqa: ANN401  JSON
        return await call(parts, TOOLS[tool], given, Observer())

    return run
