"""A page of the dashboard as its server sees one: it comes by TCP, with a code, and then with a bearer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from claudemesh.daemon.settings import Config
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World
from tests.integration.local_ipc import Answer, Client
from tests.mesh import LocalDaemon, local_daemon

WITHIN_S = 30
KEYS = KeyPair.generate()


class Page:
    def __init__(self, daemon: LocalDaemon) -> None:
        self.daemon = daemon
        self.port = int((daemon.state_dir / "http.port").read_text())
        self.bearer = ""

    @property
    def home(self) -> Path:
        return self.daemon.state_dir.parent.parent

    @property
    def token(self) -> str:
        """Return the daemon's local token, which no page has."""
        return (self.daemon.state_dir / "local_token").read_text().strip()

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return Client(reader, writer, f"127.0.0.1:{self.port}")

    async def ask(self, method: str, path: str, value: object = None, **headers: str) -> Answer:
        """Ask with the bearer, if there is one; a header's name is written with _ for -."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        if self.bearer and "authorization" not in named:
            named["authorization"] = f"Bearer {self.bearer}"
        async with asyncio.timeout(WITHIN_S), await self.connect() as client:
            return await client.ask(method, path, value, named)

    async def get(self, path: str) -> Any:  # noqa: ANN401  any document
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    async def post(self, path: str, **body: object) -> Any:  # noqa: ANN401  any document
        answer = await self.ask("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    async def code(self) -> str:
        """Return a fresh one, as `claudemesh dashboard` gets it."""
        return str((await self.daemon.post("/v1/dashboard/code", {})).body["code"])

    async def login(self) -> None:
        self.bearer = ""
        self.bearer = (await self.post("/v1/dashboard/login", code=await self.code()))["bearer"]


@asynccontextmanager
async def opened(home: Path, *, world: World | None = None, config: Config | None = None) -> AsyncIterator[Page]:
    """Start a daemon of this home, whose broker is away, and log in."""
    state_dir = home / "daemon" / "demo"
    async with local_daemon(state_dir, keys=KEYS, tcp=True, world=world, config=config) as daemon:
        page = Page(daemon)
        await page.login()
        yield page
