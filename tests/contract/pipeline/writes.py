"""A relay and a hub to be copied, written by their own stores. Nothing is between them: envelopes are carried.

Each is closed before it is copied: a file that is open twice in one process loses its locks.
"""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from claudemesh.edge import policy
from claudemesh.edge.model import ALONE, Answer, Envelope, Settlement, Source, Submission
from claudemesh.edge.operate import Operating
from claudemesh.edge.policy import read_envelope
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from claudemesh.hub.model import Asked, Create, Expectation, Kind, Origin, Update, Write
from claudemesh.hub.ports import HubStore
from claudemesh.hub.stores.postgres import PostgresStores
from claudemesh.hub.stores.sqlite import SqliteStores
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.outbox.model import ClaimAsked
from claudemesh.wire.instants import parse_instant
from tests.contract.hub.backends import NOW, ulids, world_of
from tests.doubles import ManualClock

TASK = f"tasks/{'0' * 25}1"
WORDS = "secret words"


@asynccontextmanager
async def open_hub(path: Path) -> AsyncIterator[HubStore]:
    async with aclosing(SqliteStores.open(path, world_of(ManualClock()))) as stores:
        yield stores.hub


@asynccontextmanager
async def open_hub_on(dsn: str) -> AsyncIterator[HubStore]:
    async with aclosing(await PostgresStores.open(dsn, world_of(ManualClock()))) as stores:
        yield stores.hub


async def make_task(hub: HubStore, place: str = TASK) -> None:
    fields = json.dumps({"title": WORDS, "status": "todo"}, separators=(",", ":"))
    asked = Asked(Kind.TASKS, place.partition("/")[2], Create(fields))
    await hub.write(Write((asked,), Origin("POST", "/tasks/"), NOW))


async def change(hub: HubStore, status: str, place: str = TASK, expected: Expectation | None = None) -> None:
    """Write at the hub, past any relay."""
    asked = Asked(Kind.TASKS, place.partition("/")[2], Update({"status": status}), expected or Expectation())
    await hub.write(Write((asked,), Origin("PATCH", f"/{place}"), NOW))


class Relay:
    """A relay's store, with an operator at it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.store = SqliteEnvelopeStore.open(path)
        self.operator = Operating(self.store, lambda _: None, world_of(ManualClock()))
        self.now_ms = NOW

    async def append(self) -> str:
        row_id = ulids.ulid()
        body = {"agent": "codex", "summary": WORDS}
        await self._queue(row_id, ALONE + row_id, Envelope(**self._sent("POST", "/progress/", body, "append")))
        return row_id

    async def replace(self, status: str, place: str = TASK, *, if_match: str | None = None, **expected: str) -> str:
        row_id = ulids.ulid()
        sent = self._sent("PATCH", f"/{place}", {"status": status, **expected}, "replace")
        await self._queue(row_id, place, Envelope(**sent, if_match=if_match), is_status_write=True)
        return row_id

    def _sent(self, method: str, path: str, body: dict[str, Any], route_class: str) -> dict[str, Any]:
        raw = msgspec.Raw(msgspec.json.encode(body))
        source = Source(agent="codex", host="laptop")
        sent = {"method": method, "path": path, "key": ulids.ulid(), "body": raw, "source": source}
        return {**sent, "route_class": route_class}

    async def _queue(self, row_id: str, lane: str, envelope: Envelope, *, is_status_write: bool = False) -> None:
        self.now_ms += 10
        submission = Submission(
            row_id=row_id,
            key=envelope.key,
            fingerprint=Fingerprint(bytes(32)),
            destination=lane,
            envelope=envelope,
            enqueued_at=self.now_ms,
            is_status_write=is_status_write,
        )
        assert await self.store.accept(submission) is None

    async def replay(self, hub: HubStore) -> None:
        """Carry all that waits to the hub, lane by lane."""
        while True:
            lanes = tuple(one.destination for one in await self.store.recover(self.now_ms))
            asked = ClaimAsked(
                destinations=lanes,
                rows_max=100,
                bytes_max=1 << 30,
                accepted_since=0,
                rows_each_max=1,
                only_tried_are_overdue=True,
            )
            claimed = await self.store.claim(asked)
            if not claimed.rows:
                return
            for row in claimed.rows:
                envelope = read_envelope(row.payload)
                assert envelope is not None
                await self.settle(row.seq, envelope, await apply(hub, envelope))

    async def settle(self, seq: int, envelope: Envelope, answer: Answer) -> None:
        self.now_ms += 10
        event = OutboxEvent.ACCEPTED if answer.status < 300 else OutboxEvent.REFUSED
        if policy.is_conflict(answer):
            event = OutboxEvent.CONFLICTED
        is_acked = event is OutboxEvent.ACCEPTED
        theirs = None if is_acked else msgspec.json.encode(policy.current_in(answer))
        rebase = policy.derive_rebase(envelope, answer) if is_acked and envelope.method == "PATCH" else None
        settlement = Settlement(seq=seq, event=event, at=self.now_ms, answer=answer, theirs=theirs, rebase=rebase)
        assert await self.store.settle([settlement]) == [True]

    async def away(self, outage_id: str) -> None:
        self.now_ms += 10
        await self.store.begin_outage(outage_id, self.now_ms)

    async def back(self) -> None:
        self.now_ms += 10
        await self.store.back_online(self.now_ms)

    async def over(self, outage_id: str) -> None:
        self.now_ms += 10
        await self.store.end_outage(outage_id, self.now_ms)


@asynccontextmanager
async def open_relay(path: Path) -> AsyncIterator[Relay]:
    relay = Relay(path)
    try:
        yield relay
    finally:
        relay.store.close()


async def apply(hub: HubStore, envelope: Envelope) -> Answer:
    """Do what an envelope asks for, as a hub does."""
    body = policy.body_of(envelope)
    kind, _, row_id = envelope.path.strip("/").partition("/")
    origin = Origin(envelope.method, envelope.path, envelope.key, envelope.source.host, envelope.source.agent)
    if envelope.method == "POST":
        asked = Asked(Kind(kind), ulids.ulid(), Create(json.dumps(body, separators=(",", ":"))))
    else:
        updated_at = body.pop("expected_updated_at", None)
        expected = Expectation(
            revisions=None if envelope.if_match is None else (int(envelope.if_match.strip('"')),),
            updated_at=None if updated_at is None else parse_instant(updated_at),
            status=body.pop("expected_status", None),
        )
        asked = Asked(Kind(kind), row_id, Update(body), expected)
    decision = await hub.write(Write((asked,), origin, NOW))
    return Answer(status=decision.answer.status, body=decision.answer.body)
