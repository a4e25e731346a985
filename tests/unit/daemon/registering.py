"""Sessions for a test: over a daemon's surface, or one by itself."""

import asyncio
import os
from typing import Any

from claudemesh.daemon.handshake import LinkSettings, socket_url
from claudemesh.daemon.processes import look_up
from claudemesh.daemon.session import Registration, Session
from claudemesh.daemon.settings import Config, SessionLimits
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import real_world
from claudemesh.wire.frames import SessionInfo
from tests.mesh import BROKER_KEYS, WITHIN_S, Answer, LocalDaemon
from tests.unit.daemon.fake_broker import FakeBroker

QUICK = Config(sessions=SessionLimits(reap_every_s=0.05))


async def register(daemon: LocalDaemon, token: str = "t1", **more: object) -> Answer:  # noqa: S107  an example
    return await daemon.post("/v1/sessions/register", {"token": token, "pid": os.getpid(), **more})


async def end(daemon: LocalDaemon, token: str = "t1") -> Answer:  # noqa: S107  an example
    return await daemon.request("DELETE", f"/v1/sessions/{token}")


async def listed(daemon: LocalDaemon) -> list[dict[str, Any]]:
    return (await daemon.get("/v1/sessions"))["sessions"]


def a_session(broker: FakeBroker) -> Session:
    """Make one by itself, whose life a test begins."""
    process = look_up(os.getpid())
    assert process is not None
    link = LinkSettings(
        broker_url=broker.url,
        socket_url=socket_url(broker.url),
        broker_key=BROKER_KEYS.pubkey,
        mesh_id="M",
        instance_id="I",
    )

    async def returned(_: str) -> None: ...

    said = Registration(process=process, info=SessionInfo())
    return Session(KeyPair.generate(), KeyPair.generate(), link, real_world(), said, returned=returned)


async def ends_or_is_back(living: "asyncio.Task[None]", broker: FakeBroker, visits: int) -> bool:
    """Wait until a session's life has ended, or until it is seen again; say whether it ended."""
    back = asyncio.create_task(broker.visit(visits, is_session=True))
    await asyncio.wait({living, back}, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    back.cancel()
    return living.done()
