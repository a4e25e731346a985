"""Same key, same answer: for tools whose effect is not idempotent by itself.

Keys and answers are in a private file of the home, for all MCP processes of its owner at once. A call puts its
mark under the key before it begins, renews it while it runs, and keeps its answer at the end. A second call meets
the mark (`key_in_progress`), the answer (`replayed`), or, with other arguments, a refusal. A process that dies in
between leaves a mark that is free in seconds: whoever asks again then runs the effect again, so an effect has to
find what it did before. How each does is said where it is. A call that was refused leaves its key free; if nobody
knows what became of it, the key is free at once for the same call, and for no other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from claudemesh.idempotency.model import Asked, Begun, Claim, Found, KeptResponse, Settlement
from claudemesh.idempotency.ports import KeyStore
from claudemesh.idempotency.stores.sqlite import SqliteKeyStore
from claudemesh.kernel.admission import Busy, Conflict, Replay, Standing
from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import IdempotencyConflict, MeshError
from claudemesh.kernel.fingerprint import Fingerprint, fingerprint_http_request, prefix
from claudemesh.kernel.idempotency import ADMISSION, BUSY_RETRY_MS, EXPIRY_DAYS_MIN, MarkState
from claudemesh.kernel.write_errors import KeyInProgress, MarkLost
from claudemesh.runtime import points
from claudemesh.runtime.world import World

LEASE_MS: Final = 10_000  # a mark whose process died is free after that

_OK: Final = 200

BEFORE_EFFECT = points.declare("mcp.before_effect")
AFTER_EFFECT = points.declare("mcp.after_effect")

FOREVER_MS: Final = 1 << 60
HOME: Final = "home"  # no scope of a call's: a mesh's is its id, and others have a colon

T = TypeVar("T", bound=msgspec.Struct)


class HomeId(msgspec.Struct, frozen=True):
    id: str


class Call(NamedTuple):
    """One call of a tool: `asked` is what it would do, without what only decides how much is shown."""

    tool: str
    scope: str  # the mesh, or what is no mesh's: keys of two meshes are not the same key
    key: str
    asked: dict[str, Any]

    @property
    def fingerprint(self) -> Fingerprint:
        return fingerprint_http_request("CALL", self.tool, "", canonicalize(self.asked))


class Keys:
    def __init__(self, path: Callable[[], Path], world: World, lease_ms: int = LEASE_MS) -> None:
        """Take where the file is to be; the folder is made when the first key is used."""
        self._path = path
        self._world = world
        self._lease_ms = lease_ms
        self._opening = asyncio.Lock()
        self._store: KeyStore | None = None

    async def once(
        self,
        call: Call,
        answer_type: type[T],
        effect: Callable[[], Awaitable[T]],
        keeps: Callable[[T], bool] = lambda _: True,
    ) -> tuple[T, bool]:
        """Return the answer, and whether it is the one that was kept of an earlier call.

        What `keeps` says no to is the answer of a call that did nothing: its key stays free.
        """
        fingerprint = call.fingerprint
        store = await self._opened()
        begun = await store.begin(self._ask(call, fingerprint))
        if isinstance(begun, Found):
            return _replay(begun, fingerprint, answer_type), True
        return await self._run(store, begun, effect, keeps), False

    async def home_id(self) -> str:
        """Return what no other home has, made when it is first asked for and kept from then on.

        Of several who make one at once, the last to begin is the one that may keep it: all read what stands.
        """
        call = Call(HOME, HOME, HOME, {})
        store = await self._opened()
        asked = self._ask(call, call.fingerprint)._replace(expires_at=FOREVER_MS, lease_ms=0)
        while isinstance(begun := await store.begin(asked), Begun):
            made = msgspec.json.encode(HomeId(self._world.ids.ulid()))
            await store.settle(begun.claim, Settlement(MarkState.SETTLED, KeptResponse(_OK, (), made)))
        return msgspec.json.decode(begun.response.body, type=HomeId).id

    async def _run(
        self, store: KeyStore, begun: Begun, effect: Callable[[], Awaitable[T]], keeps: Callable[[T], bool]
    ) -> T:
        renewing = asyncio.create_task(self._renew(store, begun.claim))
        try:
            points.reach(BEFORE_EFFECT)
            answer = await effect()
            points.reach(AFTER_EFFECT)
        except Exception as error:
            with suppress(MeshError):  # or its lease runs out
                await _let_go(store, begun.claim, error)
            raise
        finally:  # cancelled, it leaves the mark to its lease: nobody knows how far it came
            renewing.cancel()
        if not keeps(answer):
            with suppress(MeshError):  # or its lease runs out
                await store.release(begun.claim)
            return answer
        kept = Settlement(MarkState.SETTLED, KeptResponse(_OK, (), msgspec.json.encode(answer)))
        if not await store.settle(begun.claim, kept):
            raise MarkLost("this process stood still for so long that another took the call over: ask again")
        return answer

    async def _renew(self, store: KeyStore, claim: Claim) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3_000)
            with suppress(MeshError):
                await store.renew(claim, self._lease_ms)

    def _ask(self, call: Call, fingerprint: Fingerprint) -> Asked:
        latest_ms = max(self._world.steady_ms(), self._world.clock.wall_ms())
        return Asked(
            caller=call.scope,
            key=call.key,
            method="CALL",
            path=call.tool,
            fingerprint=fingerprint,
            now_ms=self._world.earliest_ms(),
            expires_at=latest_ms + EXPIRY_DAYS_MIN * DAY_MS,
            lease_ms=self._lease_ms,
        )

    async def _opened(self) -> KeyStore:
        async with self._opening:
            if self._store is None:
                store = await asyncio.to_thread(lambda: SqliteKeyStore.open(self._path(), self._world))
                self._store = store
                with suppress(MeshError):  # the next start, then
                    await store.sweep(self._world.earliest_ms())
            return self._store

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()


async def _let_go(store: KeyStore, claim: Claim, error: Exception) -> None:
    """Free the key of what was refused; of what may have happened, let only the same call have it."""
    if isinstance(error, MeshError) and error.retry == "no":
        await store.release(claim)
    else:
        await store.renew(claim, 0)


def _replay(found: Found, presented: Fingerprint, answer_type: type[T]) -> T:
    verdict = ADMISSION.judge(Standing(found.state, found.fingerprint), presented)
    if isinstance(verdict, Replay):
        return msgspec.json.decode(found.response.body, type=answer_type)
    if isinstance(verdict, Busy):
        raise KeyInProgress("a call with this key is under way", retry_after_ms=BUSY_RETRY_MS)
    word = verdict.word if isinstance(verdict, Conflict) else str(found.state)
    raise IdempotencyConflict(
        "this key stands for a call with other arguments: a new call needs a new key",
        conflict=word,
        fingerprint_prefix=prefix(presented),
    )
