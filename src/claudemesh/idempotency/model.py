"""The words of write idempotency, as values."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.idempotency import MarkState

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class KeptResponse(NamedTuple):
    """An answer that a later request with the same key is given again."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class Asked(NamedTuple):
    """A request that wants to begin; `now_ms` and `expires_at` are wall time, and the lease is by the store's."""

    caller: str
    key: str
    method: str
    path: str
    fingerprint: Fingerprint
    now_ms: int
    expires_at: int
    lease_ms: int
    source_host: str = ""
    source_agent: str = ""


class Claim(NamedTuple):
    """The right to settle one key: good for as long as nobody took the key over."""

    caller: str
    key: str
    owner: str
    token: int


class Settlement(NamedTuple):
    """What is written of an answer."""

    state: MarkState
    response: KeptResponse


@dataclass(frozen=True, slots=True)
class Begun:
    """The caller is first, or takes over from a worker that died."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Found:
    """The key is taken. `response` is what was kept of the answer, if there was one."""

    state: MarkState
    fingerprint: Fingerprint
    response: KeptResponse


class KeyRow(NamedTuple):
    """One key as operators see it: nothing of the answer but its status."""

    seq: int
    caller: str
    key: str
    method: str
    path: str
    state: MarkState
    status: int | None
    fingerprint: Fingerprint
    source_host: str
    source_agent: str
    first_seen: int
    last_seen: int
    expires_at: int
