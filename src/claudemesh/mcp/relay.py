"""The relay of this home: what it has queued, and the writes that go through it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from claudemesh.kernel.errors import DependencyError
from claudemesh.kernel.idempotency import render_key
from claudemesh.runtime.home import Home, read_private

if TYPE_CHECKING:  # a relay is loaded when one is asked: a server should start fast
    from claudemesh.edge.asking import Answered
    from claudemesh.edge.desk import Desk

TIMEOUT_S: Final = 25.0
AGENT: Final = "claudemesh-mcp"

T = TypeVar("T")
Json = dict[str, Any]


class Relay:
    def __init__(self, home: Home) -> None:
        self._home = home

    async def at_desk(self, ask: "Callable[[Desk], T]") -> T:
        """Ask the relay that runs, or else its file; DependencyError if its place cannot even be looked into."""

        def run() -> T:
            from claudemesh.edge.desk import find_desk  # noqa: PLC0415 - as above

            try:
                return ask(find_desk(self._home.edge_dir))
            except OSError as error:  # what is there is no folder, say
                raise DependencyError(f"the relay cannot be asked: {error.strerror}") from error

        return await asyncio.to_thread(run)

    async def status(self) -> Json:
        return await self.at_desk(lambda desk: desk.status())

    async def write(self, method: str, path: str, body: object, key: str, if_match: str | None) -> "Answered":
        """Send a write through the relay, under its key; DependencyError if nobody listens: nothing was sent."""
        return await asyncio.to_thread(self._write, method, path, body, key, if_match)

    def _write(self, method: str, path: str, body: object, key: str, if_match: str | None) -> "Answered":
        from claudemesh.edge.asking import Api, NobodyThere  # noqa: PLC0415 - as above

        local_token = self._home.edge_dir / "local_token"  # there if the relay ever asked for one
        token = read_private(local_token).decode().strip() if local_token.exists() else None
        headers = {"idempotency-key": render_key(key), "x-source-agent": AGENT}
        headers |= {} if if_match is None else {"if-match": if_match}
        try:
            # Anybody's process could listen where the settings say: the relay that runs tells where it does, on its
            # socket, which is its owner's alone.
            own = Api.at_socket(self._home.edge_dir / "sock")
            listen = own.ask("GET", "/status", timeout_s=TIMEOUT_S).checked().get("listen")
            if not listen:  # it is of an older version
                raise DependencyError("the relay does not tell where it listens, and nothing was sent: restart it")
            return Api.at_url(f"http://{listen}", token).ask(method, path, body, headers, TIMEOUT_S)
        except NobodyThere as error:
            raise DependencyError(
                f"no relay runs here, and nothing was sent: start `statehub-edge` ({error})"
            ) from error
