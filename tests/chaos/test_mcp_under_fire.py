"""An MCP server that is killed in the middle of a call: whoever asks again under the key finds one effect."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.disks import fill, small_disk
from tests.integration.mcp_client import ERAS, Agent, inside, process
from tests.mesh import LocalDaemon, local_mesh

WITHIN_S = 60
NODE = "tests.chaos.mcp_node"


@asynccontextmanager
async def one_dead(folder: Path) -> AsyncIterator[tuple[LocalDaemon, LocalDaemon, dict[str, str]]]:
    """Have two daemons, the first with a row that died, and what `requeue` is asked to do with it."""
    async with local_mesh(folder, "alice", "bob") as (_, alice, bob):
        await alice.send("#nowhere", "once", client_message_id="m1")
        await alice.until(lambda health: health["dead"] == 1)
        (dead,) = (await alice.get("/v1/outbox?status=dead"))["rows"]
        yield alice, bob, {"id": dead["id"], "to": "bob", "idempotency_key": "r1"}


async def until_free(agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Ask again, as the answer says, until the mark of the call that died is free."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            result = await agent.client.call_tool(tool, arguments)
            if not result.is_error:
                assert isinstance(result.structured_content, dict)
                return result.structured_content
            assert "code=key_in_progress" in str(result.content), result.content
            await asyncio.sleep(0.05)


@pytest.mark.req("C3")
@pytest.mark.parametrize(("point", "is_done"), [("mcp.before_effect", False), ("mcp.after_effect", True)])
async def test_a_call_whose_server_was_killed_is_done_once_when_it_is_asked_again(
    tmp_path: Path, point: str, *, is_done: bool
) -> None:
    home = tmp_path / "homes" / "alice"
    async with one_dead(tmp_path) as (alice, bob, asked):
        with pytest.raises(ExceptionGroup) as ended:
            async with process(home, ERAS[0], (NODE, f"{point}:1")) as agent:
                await agent.use("requeue", **asked)
        assert "Connection closed" in repr(ended.value)
        async with process(home, ERAS[0], (NODE,)) as agent:
            told = await until_free(agent, "requeue", **asked)
            assert told["replayed"] is is_done
            again = await agent.use("requeue", **asked)
        assert (again["replayed"], again["successor"]) == (True, told["successor"])
        await bob.receives(1)
        await alice.send("bob", "and then", client_message_id="m2")
        assert [message["body"] for message in await bob.receives(2)] == ["once", "and then"]


@pytest.mark.req("C3")
async def test_without_room_for_a_key_nothing_is_done_and_it_is_said_so(tmp_path: Path) -> None:
    home = tmp_path / "homes" / "alice"
    async with one_dead(tmp_path) as (_, bob, asked):
        with small_disk(home / "mcp", "1m") as disk:
            fill(disk / "filler")
            async with inside(home, ERAS[0]) as agent:
                problem = await agent.fail("requeue", **asked)
                assert (problem["code"], problem["idempotency_key"]) == ("insufficient_storage", "r1")
                assert (await agent.use("status"))["dead_letters"], "what changes nothing needs no room"
                (disk / "filler").unlink()
                assert not (await agent.use("requeue", **asked))["replayed"]
                assert (await agent.use("requeue", **asked))["replayed"]
        assert [message["body"] for message in await bob.receives(1)] == ["once"]
