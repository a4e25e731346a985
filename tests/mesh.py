"""A daemon of one's own for a test: in this process, on a real socket, with or without a broker."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claudemesh.daemon import identity
from claudemesh.daemon.app import serve
from claudemesh.daemon.identity import Joined
from claudemesh.daemon.settings import Config, DaemonSettings
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World, real_world

WITHIN_S = 30


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class LocalDaemon:
    state_dir: Path
    keys: KeyPair
    world: World
    task: "asyncio.Task[int] | None" = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        reader, writer = await asyncio.open_unix_connection(str(self.state_dir / "sock"))
        try:
            raw = b"" if body is None else json.dumps(body).encode()
            lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            if body is not None:
                lines += ["content-type: application/json", f"content-length: {len(raw)}"]
            writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
            async with asyncio.timeout(WITHIN_S):
                answer = await reader.read()
        finally:
            writer.close()
        head, _, payload = answer.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        is_json = "json" in fields.get("content-type", "")
        return Answer(int(first.split()[1]), fields, json.loads(payload) if is_json else payload.decode())

    async def get(self, path: str) -> Any:  # noqa: ANN401  JSON
        return (await self.request("GET", path)).body

    async def post(self, path: str, body: object, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("POST", path, body, named)

    async def send(self, to: str, message: str, **more: object) -> Answer:
        return await self.post("/v1/send", {"to": to, "message": message, **more})


@asynccontextmanager
async def local_daemon(
    state_dir: Path,
    *,
    keys: KeyPair,
    joined: Joined | None = None,
    config: Config | None = None,
    tcp: bool = False,
) -> AsyncIterator[LocalDaemon]:
    """Start a daemon and stop it again; the same directory may be started again."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (state_dir / identity.MEMBERSHIP).exists():
        identity.store(state_dir, keys, joined or a_membership(state_dir.name))
    daemon = LocalDaemon(state_dir, keys, real_world())
    settings = DaemonSettings(state_dir=state_dir, config=config or Config(), tcp=tcp)
    started = asyncio.Event()
    daemon.task = asyncio.create_task(serve(settings, daemon.world, daemon.stopping, lambda _: started.set()))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({daemon.task, waiting}, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    if not started.is_set():
        waiting.cancel()
        await daemon.task  # raises what kept it from starting
    try:
        yield daemon
    finally:
        daemon.stopping.set()
        await daemon.task


def a_membership(slug: str, broker_url: str = "http://127.0.0.1:9") -> Joined:
    """A membership of a mesh whose broker is not there: port 9 is nobody's."""
    return Joined(
        mesh_id="01" + "A" * 24,
        slug=slug,
        member_id="01" + "B" * 24,
        name="alice",
        role="owner",
        broker_key="0" * 64,
        broker_url=broker_url,
    )
