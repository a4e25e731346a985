"""The SDK's own client at a server of ours: in this process, or as a process of its own, in either era."""

import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import Implementation

from claudemesh.mcp.parts import open_parts
from claudemesh.mcp.server import hosting
from claudemesh.runtime.home import Home
from claudemesh.runtime.world import real_world

WITHIN_S = 60
ERAS = ["legacy", "auto"]  # the handshake; and the newest that both know, where a request brings all with it


class Agent:
    """What an agent does with a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
        """Call a tool that should succeed; the client checks the answer against its schema."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def fail(self, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
        """Call a tool that should not; return the problem, which is a text beside the sentence that says it."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content
        assert result.structured_content is None  # some clients would hold it against the schema of a success
        sentence, document = (block.text for block in result.content)  # type: ignore[union-attr]  texts
        problem: dict[str, Any] = json.loads(document)
        assert f"[code={problem['code']}, retry={problem['retry']}" in sentence
        return problem

    async def read(self, uri: str) -> str:
        found = (await self.client.read_resource(uri)).contents[0]
        return str(found.text)  # type: ignore[union-attr]  ours are all texts

    async def prompt(self, name: str, **arguments: str) -> str:
        found = (await self.client.get_prompt(name, arguments)).messages[0].content
        return str(found.text)  # type: ignore[union-attr]  as above


@asynccontextmanager
async def inside(home: Path, era: str) -> AsyncIterator[Agent]:
    """Serve in this process: faster, and with all but the pipe."""
    world = real_world()
    parts = open_parts(Home(home), None, world)
    parts.daemon.unread_within_s = WITHIN_S  # its count is what tests are about, however busy the machine

    async def notify(_: str, __: dict[str, Any]) -> None: ...

    async with (
        hosting(parts, world.observer, notify) as server,
        Client(server, mode=era, client_info=Implementation(name="tester", version="1")) as client,
    ):
        yield Agent(client)


@asynccontextmanager
async def process(
    home: Path, era: str, program: Sequence[str] = ("claudemesh.cli.main", "mcp"), **environment: str
) -> AsyncIterator[Agent]:
    """Serve as hosts do: `claudemesh mcp`, over its pipes."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CLAUDEMESH_", "STATEHUB_"))}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", *program],
        env={**kept, "CLAUDEMESH_HOME": str(home), **environment},
    )
    info = Implementation(name="tester", version="1")
    async with Client(server, mode=era, client_info=info, read_timeout_seconds=WITHIN_S) as client:
        yield Agent(client)
