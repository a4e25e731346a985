"""The sends of one connection: taken in order, committed in order, answered when each is done.

How much may be under way is bounded in frames and bytes; beyond it the socket is not read, and the sender's own
buffers fill. A commit belongs to the broker, not to the connection: it goes on, and wakes its recipients, when the
connection is gone.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claudemesh.broker.model import Accepted, AcceptOutcome, Duplicate, Identity
from claudemesh.broker.policy import present
from claudemesh.broker.service import AcceptService, Admitted, Presented
from claudemesh.kernel.errors import IdempotencyConflict, InvalidRequest, MeshError
from claudemesh.kernel.fingerprint import SendRequest
from claudemesh.runtime import points
from claudemesh.wire.frames import Outcome, SendItem, SendResult, render

BEFORE_ANSWER: Final = points.declare("broker.before_answer")

IN_FLIGHT_FRAMES: Final = 64
IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
TOGETHER_MAX: Final = 16  # frames that share one look-up
DETAIL_CHARS_MAX: Final = 200  # of what a decoder says, which may quote the message

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True)
class _Frame:
    n: int
    items: list[Presented]
    size: int


class Sending:
    def __init__(
        self, service: AcceptService, identity: Identity, spawn: Spawn, answer: Callable[[str], Awaitable[None]]
    ) -> None:
        self._service = service
        self._identity = identity
        self._spawn = spawn
        self._answer = answer
        self._waiting: deque[_Frame] = deque()
        self._bell = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._frames = 0
        self._bytes = 0

    async def take(self, n: int, items: list[Presented], size: int) -> None:
        """Queue a frame; returns when there is room for the next one."""
        self._waiting.append(_Frame(n, items, size))
        self._count(1, size)
        self._bell.set()
        await self._room.wait()

    async def run(self) -> None:
        """Admit what comes, in order, until cancelled."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                together = [self._waiting.popleft() for _ in range(min(TOGETHER_MAX, len(self._waiting)))]
                await self._admit(together)

    async def _admit(self, together: list[_Frame]) -> None:
        try:
            admitted = await self._service.admit(self._identity, [frame.items for frame in together])
        except MeshError as error:  # the look-up failed: nothing was decided about any of them
            for frame in together:
                self._spawn(self._finish(frame.n, frame.size, _refused(error, len(frame.items))))
            return
        for frame, one in zip(together, admitted, strict=True):
            self._spawn(self._commit(frame.n, frame.size, one))

    async def _commit(self, n: int, size: int, admitted: Admitted) -> None:
        await self._finish(n, size, await self._service.commit(admitted))

    async def _finish(self, n: int, size: int, outcomes: list[AcceptOutcome]) -> None:
        points.reach(BEFORE_ANSWER)
        try:
            await self._answer(render(SendResult(n, [render_outcome(outcome) for outcome in outcomes])))
        finally:
            self._count(-1, -size)

    def _count(self, frames: int, size: int) -> None:
        self._frames += frames
        self._bytes += size
        if self._frames < IN_FLIGHT_FRAMES and self._bytes < IN_FLIGHT_BYTES:
            self._room.set()
        else:
            self._room.clear()


def _refused(error: MeshError, count: int) -> list[AcceptOutcome]:
    return [error] * count


# --- what arrived ----------------------------------------------------------------------------------


class _RawSend(msgspec.Struct, frozen=True, tag_field="type", tag="send"):
    n: int
    items: list[msgspec.Raw]


class _LenientSend(msgspec.Struct, frozen=True, tag_field="type", tag="send"):
    n: int
    items: list[Any]

    def to_raw(self) -> _RawSend:
        return _RawSend(self.n, [msgspec.Raw(json.dumps(item).encode()) for item in self.items])


_raw_send: Final = msgspec.json.Decoder(_RawSend)
_send_item: Final = msgspec.json.Decoder(SendItem)


def parse_item_by_item(text: str) -> tuple[int, list[Presented]] | None:
    """Read a send of which some items are none of ours: each is refused by itself. None if it is no send at all."""
    try:
        try:
            frame = _raw_send.decode(text)
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError:  # a lone surrogate, a NaN: what Python's own reader takes, so that we see which
            frame = msgspec.convert(json.loads(text), _LenientSend).to_raw()
    except (ValueError, RecursionError):
        return None
    return frame.n, [_present_raw(bytes(item)) for item in frame.items]


def _present_raw(raw: bytes) -> Presented:
    try:
        return present_item(_send_item.decode(raw))
    except (msgspec.DecodeError, RecursionError) as error:
        return Presented(None, "", InvalidRequest(f"this is no message: {error}"[:DETAIL_CHARS_MAX]))


def present_item(item: SendItem) -> Presented:
    request = SendRequest(
        kind=item.kind,
        ref=item.ref,
        body=item.body,
        reply_to=item.reply_to,
        priority=item.priority,
        meta=item.meta,
    )
    try:
        message = present(item.client_message_id, request, encoding=item.encoding, sender_seq=item.sender_seq)
    except MeshError as error:
        return Presented(None, item.fingerprint, error)
    return Presented(message, item.fingerprint)


def render_outcome(outcome: AcceptOutcome) -> Outcome:
    match outcome:
        case Accepted():
            return Outcome(status=201, broker_message_id=outcome.broker_message_id, history_id=outcome.history_id)
        case Duplicate():
            return Outcome(
                status=200,
                broker_message_id=outcome.broker_message_id,
                history_id=outcome.history_id,
                duplicate=True,
                history_available=outcome.history_available,
                first_seen_at=outcome.first_seen_at,
            )
        case MeshError():
            return _render_error(outcome)


def _render_error(error: MeshError) -> Outcome:
    wait_ms = error.extras.get("retry_after_ms")
    conflict = error if isinstance(error, IdempotencyConflict) else None
    return Outcome(
        status=error.status,
        code=error.code,
        detail=error.detail or error.title,
        conflict=conflict.conflict if conflict else None,
        broker_fingerprint_prefix=conflict.fingerprint_prefix if conflict else None,
        retry_after_ms=wait_ms if isinstance(wait_ms, int) else None,
    )
