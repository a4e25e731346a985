"""The server's own session: shown to the others for as long as it runs, and heard of what arrives.

It is a plan, as those of the SDK: listen first, so that nothing is missed, then register; when the stream is over
the daemon was away, so after it is back the session is registered anew, under the same token and key.

The tools ask whichever mesh is the home's when they are called, so the session goes there, too: what waits for an
event looks now and then whether it is still there.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.errors import CursorAhead, CursorExpired, MeshError
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.mcp.events import SessionFailed, SessionNotShown, SessionShown, place_of
from claudemesh.mcp.parts import Parts
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.tokens import fresh_token
from claudemesh.sdk import asks
from claudemesh.sdk.asks import Ask
from claudemesh.sdk.async_mesh import AsyncCaller
from claudemesh.sdk.plans import Emit, Hear, Heard, Listen, Pause, Plan, Plans
from claudemesh.sdk.values import reading
from claudemesh.sdk.waiting import AsyncStream

RETURN_PAUSE_MAX_MS: Final = 2_000
LOOK_MS: Final = 2_000  # whether the mesh is still the home's
NO_MESH_PAUSE_S: Final = 2.0
FAILED_PAUSE_S: Final = 10.0  # what failed once may fail each time, and each time is a line of the log
GOODBYE_S: Final = 2.0
CWD_CHARS_MAX: Final = 1_024
NAME_CHARS_MAX: Final = 64


class Registered(NamedTuple):
    session_pubkey: str


class Away(NamedTuple):
    """Not registered, and why."""

    error: MeshError


def attend(plans: Plans, register: Ask, is_here: Callable[[], bool]) -> Plan[None]:
    """Emit Registered, Away and every event, for as long as this is where the session is to be."""
    position, failures = "", 0
    while is_here():
        try:
            yield Listen(position, plans.clock.monotonic_ms() + plans.timeout_ms)
            yield Emit((yield from _register(plans, register)))
            failures = 0
            while True:
                heard: Heard | None = yield Hear(LOOK_MS)
                if heard is None:
                    break
                for event in heard.events:
                    yield Emit(event)
                position = heard.position or position
                if not is_here():
                    return
        except (CursorExpired, CursorAhead):  # another file, or one that was swept: from now on, then
            position = ""
        except MeshError as error:
            yield Emit(Away(error))
        failures += 1
        yield Pause(min(derive_backoff_ms(failures, plans.roll()), RETURN_PAUSE_MAX_MS))


def _register(plans: Plans, register: Ask) -> Plan[Registered | Away]:
    """Register; a daemon that refuses is still worth listening to."""
    try:
        answer: dict[str, Any] = yield from plans.ask(register)
        with reading("answer to a registration"):
            return Registered(answer["session_pubkey"])
    except MeshError as error:
        return Away(error)


def where_it_runs() -> str:
    """Return the working directory as it can be shown; nothing, if it was removed since."""
    try:
        folder = os.getcwdb()  # noqa: PTH109 - as bytes, which it may be
    except OSError:
        return ""
    return folder.decode(errors="replace")[:CWD_CHARS_MAX]


class Attending:
    """Runs beside the protocol until it is closed."""

    def __init__(self, parts: Parts, tell: Callable[[StreamEvent], Awaitable[None]], observer: Observer) -> None:
        self._parts = parts
        self._tell = tell
        self._observer = observer
        self._token = fresh_token()
        self._task: asyncio.Task[None] | None = None
        self._caller: AsyncCaller | None = None  # the way to where it is shown

    def begin(self, host: str) -> None:
        """Register in the name of the host that was met; once, however often it is said."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(host))

    async def _run(self, host: str) -> None:
        said = {
            "display_name": host[:NAME_CHARS_MAX],
            "role": "agent",
            "cwd": where_it_runs(),
            "mcp_servers": ["claudemesh"],
        }
        register = asks.register_session(self._token, os.getpid(), said)
        while True:
            try:
                await self._attend(self._parts.daemon.caller(), register)
            except MeshError:  # no mesh yet
                await asyncio.sleep(NO_MESH_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - the tools go on, and nobody else would tell of it
                self._observer.publish(SessionFailed(type(error).__name__, place_of(error)))
                await asyncio.sleep(FAILED_PAUSE_S)

    async def _attend(self, caller: AsyncCaller, register: Ask) -> None:
        """Be there until the home's mesh is another one, and then leave."""

        def is_here() -> bool:
            try:
                return self._parts.daemon.caller() is caller
            except MeshError:  # no mesh any more, or several
                return False

        self._caller = caller
        plan = attend(caller.plans, register, is_here)
        stream: AsyncStream[Any] = AsyncStream(caller.pool, plan, lambda what: what)
        async with stream:
            async for what in stream:
                await self._take(what)
        await self._leave()

    async def _take(self, what: Registered | Away | StreamEvent) -> None:
        standing = self._parts.standing
        match what:
            case Registered(pubkey):
                standing.session_pubkey = pubkey
                self._observer.publish(SessionShown(pubkey))
            case Away(error):
                if standing.session_pubkey is not None or not standing.is_told_away:
                    self._observer.publish(SessionNotShown(error.code))
                standing.session_pubkey, standing.is_told_away = None, True
            case StreamEvent():
                await self._tell(what)

    async def _leave(self) -> None:
        """Say goodbye where it is shown; the others see it at once, if the daemon is there."""
        standing = self._parts.standing
        if self._caller is None or standing.session_pubkey is None:
            return
        standing.session_pubkey = None
        with suppress(MeshError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._caller.ask(asks.end_session(self._token))

    async def aclose(self) -> None:
        """End, and leave."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._leave()
