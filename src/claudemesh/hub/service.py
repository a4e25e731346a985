"""A write, from what was asked to its answer: ids, times, and what is told of it."""

from collections.abc import Sequence
from typing import Final

from claudemesh.asgi.messages import Response
from claudemesh.hub.events import RowAsked, What
from claudemesh.hub.model import (
    NO_OPINION,
    Asked,
    Change,
    Changed,
    Create,
    Expectation,
    Kind,
    Origin,
    Outcome,
    Page,
    Refused,
    Row,
    SetOnce,
    Shape,
    Summary,
    Unchanged,
    Write,
)
from claudemesh.hub.ports import HubStore
from claudemesh.idempotency import Mark
from claudemesh.runtime.world import World
from claudemesh.wire.instants import render_instant

NEWEST_SHOWN: Final = 10


class HubService:
    def __init__(self, store: HubStore, world: World) -> None:
        self._store = store
        self._mint = world.ids.ulid
        self._now_ms = world.clock.wall_ms
        self._observer = world.observer

    async def create(self, kind: Kind, change: Create, origin: Origin, mark: Mark | None) -> Response:
        return await self._write((Asked(kind, self._mint(), change),), origin, mark)

    async def change(  # noqa: PLR0913, PLR0917  what is asked, by whom
        self,
        kind: Kind,
        row_id: str,
        change: Change,
        origin: Origin,
        mark: Mark | None,
        expected: Expectation = NO_OPINION,
    ) -> Response:
        return await self._write((Asked(kind, row_id, change, expected),), origin, mark)

    async def mark_read(
        self, row_id: str, origin: Origin, mark: Mark | None, expected: Expectation = NO_OPINION
    ) -> Response:
        """Say that a message was read; the first time stays."""
        change = SetOnce("read_at", render_instant(self._now_ms()))
        return await self._write((Asked(Kind.MESSAGES, row_id, change, expected),), origin, mark)

    async def change_many(self, asks: Sequence[Asked], origin: Origin, mark: Mark | None) -> Response:
        """Change rows in one transaction; each is judged by itself, and one that is refused stops no other."""
        return await self._write(tuple(asks), origin, mark, Shape.LIST)

    async def get(self, kind: Kind, row_id: str) -> Row | None:
        return await self._store.get(kind, row_id)

    async def page(self, kind: Kind, after_seq: int, limit: int) -> Page:
        return await self._store.page(kind, after_seq, limit)

    async def summary(self) -> Summary:
        return await self._store.summary(NEWEST_SHOWN)

    async def _write(
        self, asks: tuple[Asked, ...], origin: Origin, mark: Mark | None, shape: Shape = Shape.ONE
    ) -> Response:
        decision = await self._store.write(Write(asks, origin, self._now_ms(), shape), mark)
        for asked, outcome in zip(asks, decision.outcomes, strict=True):
            self._observer.publish(RowAsked(asked.kind, _what(outcome)))
        return decision.answer


def _what(outcome: Outcome) -> What:
    match outcome:
        case Refused(current=None):
            return "missing"
        case Refused():
            return "conflict"
        case Unchanged():
            return "unchanged"
        case Changed(is_deleted=True):
            return "deleted"
        case Changed(before=None):
            return "created"
        case Changed():
            return "changed"
