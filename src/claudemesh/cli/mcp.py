"""`mcp`: the server for agent hosts, on standard input and output."""

import asyncio
import signal

import click

from claudemesh.cli.command import Command, Session
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.extras import can_serve_mcp, how_to_get


@click.command(cls=Command)
@click.pass_obj
def mcp(session: Session) -> None:
    """Serve MCP to an agent host on standard input and output; the host starts it.

    It runs without a daemon and without a mesh, too: then its tools say what to start.
    """
    if not can_serve_mcp():
        raise ConfigError(f"the MCP server needs another package: {how_to_get('mcp')}")
    from claudemesh.mcp.parts import open_parts  # noqa: PLC0415 - as below
    from claudemesh.mcp.server import serve  # noqa: PLC0415 - the SDK takes its time, and not all have it
    from claudemesh.runtime.logs import JsonLog  # noqa: PLC0415 - as above
    from claudemesh.runtime.world import real_world  # noqa: PLC0415 - as above

    # A thread waits for the host's next line, and nothing wakes it: to end at once loses nothing, as SIGTERM shows.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    world = real_world()
    JsonLog(world.clock, stderr=True).attach(world.observer)
    asyncio.run(serve(open_parts(session.home, session.mesh or session.surroundings.mesh, world), world.observer))
