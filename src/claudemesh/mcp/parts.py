"""What the tools work with, and how a text of others is shown."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.texts import escape
from claudemesh.mcp.arguments import Keyed
from claudemesh.mcp.keys import Call, Keys
from claudemesh.mcp.mesh import Daemon
from claudemesh.mcp.relay import Relay
from claudemesh.mcp.results import Changed
from claudemesh.runtime.home import Home
from claudemesh.runtime.world import World
from claudemesh.sdk.find import find

# What decides only how much is shown, and so is no part of what a key stands for.
VIEW: Final = frozenset({"idempotency_key", "body_from", "body_chars", "limit", "cursor"})

META_LEVELS_MAX: Final = 32  # that are shown: what is nested deeper is nothing that anybody reads

C = TypeVar("C", bound=Changed)


@dataclass(slots=True)
class Standing:
    """How this server is known to the daemon."""

    session_pubkey: str | None = None  # None while it is not registered
    is_told_away: bool = False  # the log knows that it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    home: Home
    mesh: str | None  # that the server was started for, if one was named
    daemon: Daemon
    keys: Keys
    relay: Relay
    mint: Callable[[], str]
    standing: Standing = field(default_factory=Standing)

    async def once(
        self,
        tool: str,
        asked: Keyed,
        kind: type[C],
        effect: Callable[[str], Awaitable[C]],
        place: str | None = None,
    ) -> C:
        """Run the effect under the key that was given, or a fresh one; or give the answer that stands under it.

        A `place` is where it acts if that is no mesh: a ledger, a relay. An answer of what did nothing
        leaves the key free.
        """
        key = asked.idempotency_key or self.mint()
        given = {name: value for name, value in msgspec.to_builtins(asked).items() if name not in VIEW}
        call = Call(tool, self._scope(place), key, given)
        answer, was_kept = await self.keys.once(call, kind, lambda: effect(key), lambda told: told.is_kept)
        return replace(answer, replayed=True) if was_kept else answer

    def mark(self, tool: str, key: str, place: str | None = None) -> str:
        """Return what a call leaves as its own where it acts: of the same scope as its key."""
        return derive_id(tool, self._scope(place), key)

    async def mark_of_home(self, tool: str, key: str, place: str) -> str:
        """Return such a mark for where other homes act, too: a key is a home's own, and so is what it leaves."""
        return derive_id(f"{tool} {await self.keys.home_id()}", self._scope(place), key)

    def _scope(self, place: str | None) -> str:
        """Say whose keys they are: the mesh's, so that two meshes never share one.

        Elsewhere they go by the mesh that the server was started for, if one was named: the only one that was
        joined may be another, or not the only one, when a call is made again. No id has a colon.
        """
        return self.daemon.mesh_id if place is None else f"{place}:{self.mesh or ''}"


def open_parts(home: Home, mesh: str | None, world: World) -> Parts:
    """Put together what a server works with. Nothing is looked for before it is used."""
    return Parts(
        home=home,
        mesh=mesh,
        daemon=Daemon(lambda: find(mesh, home.root)),
        keys=Keys(lambda: home.ensure_dir(home.root / "mcp") / "keys.db", world),
        relay=Relay(home),
        mint=world.ids.ulid,
    )


def derive_id(tool: str, scope: str, key: str) -> str:
    """Return what a call leaves as its own mark where it acts, so that it is found again after a crash."""
    return f"mcp-{sha256(f'{tool} {scope} {key}'.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of a text: `text` is escaped, and says at its end what is left out."""

    text: str
    is_truncated: bool
    following: int | None  # where the next piece begins


def show(text: str, start: int, count: int) -> Shown:
    piece, total = text[start : start + count], len(text)
    if start and start >= total:
        raise InvalidRequest(f"the body has {total} characters, and none from {start} on")
    following = start + len(piece) if start + len(piece) < total else None
    shown = escape(piece, lines=True)
    if following is not None:
        shown += f"… [truncated: characters {start} to {following} of {total}]"
    return Shown(shown, following is not None or start > 0, following)


def show_meta(meta: Any, levels: int = META_LEVELS_MAX) -> Any:  # noqa: ANN401 - JSON is anything
    """Return what travels along, its texts escaped; names too."""
    match meta:
        case str():
            return escape(meta, lines=True)
        case dict() | list() if not levels:
            return "… [nested too deep to be shown]"
        case dict():
            return {escape(name): show_meta(value, levels - 1) for name, value in meta.items()}
        case list():
            return [show_meta(value, levels - 1) for value in meta]
        case _:
            return meta
