"""The daemon, looked for whenever it is asked: without a mesh or a daemon the server runs all the same."""

from collections.abc import Callable
from typing import Any, TypeVar

from claudemesh.kernel.errors import ConfigError, MeshError, NoDaemon
from claudemesh.sdk import asks
from claudemesh.sdk.asks import Again, Ask
from claudemesh.sdk.async_mesh import AsyncCaller
from claudemesh.sdk.find import Place
from claudemesh.sdk.plans import Plan, Plans
from claudemesh.sdk.waiting import AsyncPool

T = TypeVar("T")
Json = dict[str, Any]

TIMEOUT_S = 30.0
UNREAD_S = 1.0  # every answer waits for the count, and a host may give up first and lose the answer


class Daemon:
    def __init__(self, find: Callable[[], Place], timeout_s: float = TIMEOUT_S) -> None:
        self._find = find
        self._timeout_s = timeout_s
        self.unread_within_s = UNREAD_S
        self._caller: AsyncCaller | None = None
        self._place: Place | None = None

    def caller(self) -> AsyncCaller:
        """Return the way to the daemon; NoDaemon, naming what to do, while there is no mesh."""
        place = self._look()
        if self._caller is None or place != self._place:
            self.close()
            self._place = place
            self._caller = AsyncCaller(AsyncPool(place.sock), Plans.real(self._timeout_s, place))
        return self._caller

    def _look(self) -> Place:
        try:
            return self._find()
        except ConfigError as error:
            if error.extras.get("meshes") != []:
                raise  # it is there, and has to be named
            raise NoDaemon(f"{error.detail}, then `claudemesh daemon up`") from error
        except OSError as error:  # a name that no file system takes, say
            raise ConfigError(f"the home cannot be looked into: {error.strerror}: see CLAUDEMESH_HOME") from error

    @property
    def mesh_id(self) -> str:
        """Return which mesh this is, as its broker named it: a slug may have been another mesh's before."""
        from claudemesh.daemon.identity import load_membership  # noqa: PLC0415 - with the keys; a server starts fast

        place = self._look()
        try:
            return load_membership(place.sock.parent).mesh_id
        except FileNotFoundError as error:  # left just now
            raise NoDaemon(f"{place.slug} was left: join it again, then `claudemesh daemon up`") from error

    async def ask(self, ask: Ask) -> Any:  # noqa: ANN401 - JSON is anything
        return await self.caller().ask(ask)

    async def get(self, path: str, **query: str | int | bool | None) -> Json:
        answer: Json = await self.ask(asks.get(path, query))
        return answer

    async def say(self, path: str, body: Json) -> Json:
        """Ask for what changes nothing when it is repeated."""
        answer: Json = await self.ask(Ask(method="POST", path=path, body=body, again=Again.IF_LOST))
        return answer

    async def run(self, make: Callable[[Plans], Plan[T]]) -> T:
        caller = self.caller()
        return await caller.run(make(caller.plans))

    async def unread(self) -> int | None:
        """Return how much nobody marked as read; None while the daemon cannot be asked, or hangs."""
        try:
            caller = self.caller()
            by_ms = caller.plans.clock.monotonic_ms() + int(self.unread_within_s * 1000)
            health = await caller.run(caller.plans.ask(asks.get("/v1/health"), by_ms))
        except MeshError:
            return None
        count: int = health["unread"]
        return count

    def close(self) -> None:
        if self._caller is not None:
            self._caller.pool.close()
            self._caller = None
