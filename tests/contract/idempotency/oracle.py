"""A store of keys as a dict: what the others are compared with. It shares no rule with them but the words."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from claudemesh.idempotency.model import Asked, Begun, Claim, Found, KeptResponse, KeyRow, Settlement
from claudemesh.kernel.idempotency import MarkState
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.runtime.world import World


@dataclass
class Entry:
    seq: int
    asked: Asked
    owner: str
    token: int
    lease_until: int
    first_seen: int
    last_seen: int
    settlement: Settlement | None = None

    @property
    def state(self) -> MarkState:
        return MarkState.IN_PROGRESS if self.settlement is None else self.settlement.state


@dataclass
class Shelf:
    """All that is kept, by caller and key; and what the app wrote."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    seq: int = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = copy.deepcopy((self.entries, self.written))
        try:
            yield
        except BaseException:
            self.entries, self.written = before
            raise


class OracleKeyStore:
    def __init__(self, shelf: Shelf, world: World) -> None:
        self._shelf = shelf
        self._world = world

    async def begin(self, asked: Asked) -> Begun | Found:
        place = (asked.caller, asked.key)
        entry = self._shelf.entries.get(place)
        if entry is not None and entry.asked.expires_at <= asked.now_ms and not self._is_worked_on(entry):
            self._shelf.entries.pop(place)
            return self._put(asked, entry.seq, entry.token + 1, asked.now_ms)
        if entry is None:
            self._shelf.seq += 1
            return self._put(asked, self._shelf.seq, 1, asked.now_ms)
        is_same = entry.asked.fingerprint == asked.fingerprint
        if is_same and entry.settlement is None and not self._is_worked_on(entry):
            return self._put(asked, entry.seq, entry.token + 1, entry.first_seen)
        entry.last_seen = max(entry.last_seen, asked.now_ms)
        response = KeptResponse(0) if entry.settlement is None else entry.settlement.response
        return Found(entry.state, entry.asked.fingerprint, response)

    async def renew(self, claim: Claim, lease_ms: int) -> bool:
        entry = self._mine(claim)
        if entry is not None:
            entry.lease_until = self._now() + lease_ms
        return entry is not None

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        entry = self._mine(claim)
        if entry is not None:
            entry.settlement = settlement
        return entry is not None

    async def release(self, claim: Claim) -> bool:
        if self._mine(claim) is None:
            return False
        del self._shelf.entries[claim.caller, claim.key]
        return True

    def complete(self, _connection: object, claim: Claim, settlement: Settlement) -> None:
        entry = self._mine(claim)
        if entry is None:
            raise MarkLost
        entry.settlement = settlement

    async def complete_async(self, *_: object) -> None:
        raise TypeError

    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        old = [
            place
            for place, entry in sorted(self._shelf.entries.items(), key=lambda item: item[1].asked.expires_at)
            if entry.asked.expires_at <= now_ms and not self._is_worked_on(entry)
        ]
        for place in old[:limit]:
            del self._shelf.entries[place]
        return len(old[:limit])

    async def page(self, after: int = 0, limit: int = 200) -> list[KeyRow]:
        entries = sorted(self._shelf.entries.values(), key=lambda entry: entry.seq)
        return [_to_row(entry) for entry in entries if entry.seq > after][:limit]

    async def aclose(self) -> None: ...

    def _now(self) -> int:
        return self._world.clock.monotonic_ms()

    def _is_worked_on(self, entry: Entry) -> bool:
        return entry.settlement is None and self._now() < entry.lease_until

    def _mine(self, claim: Claim) -> Entry | None:
        entry = self._shelf.entries.get((claim.caller, claim.key))
        is_mine = entry is not None and (entry.owner, entry.token) == (claim.owner, claim.token)
        return entry if is_mine and entry is not None and entry.settlement is None else None

    def _put(self, asked: Asked, seq: int, token: int, first_seen: int) -> Begun:
        owner, until = self._world.ids.ulid(), self._now() + asked.lease_ms
        entry = Entry(seq, asked, owner, token, until, first_seen, asked.now_ms)
        self._shelf.entries[asked.caller, asked.key] = entry
        return Begun(Claim(asked.caller, asked.key, owner, token))


def _to_row(entry: Entry) -> KeyRow:
    asked, settlement = entry.asked, entry.settlement
    return KeyRow(
        entry.seq,
        asked.caller,
        asked.key,
        asked.method,
        asked.path,
        entry.state,
        None if settlement is None else settlement.response.status,
        asked.fingerprint,
        asked.source_host,
        asked.source_agent,
        entry.first_seen,
        entry.last_seen,
        asked.expires_at,
    )
