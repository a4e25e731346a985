"""What an operator does with envelopes: retry, cancel, mark dead, resolve; export them, and import them elsewhere.

Nothing is decided by the relay that its operator should decide: an envelope in conflict keeps both values, and
waits. A dead one is retried as a new envelope under a fresh key, at the end of its entity's queue; one in conflict
goes back to its old place.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from claudemesh.edge import door, policy
from claudemesh.edge.events import EnvelopeDecided
from claudemesh.edge.keeping import holds_credential
from claudemesh.edge.model import ALONE, WORDS, Envelope, EnvelopeSeen, EnvelopeShown, Exportable, Submission
from claudemesh.edge.ports import OperatedStore
from claudemesh.kernel.errors import InvalidRequest, NotFound, RequestError, StateError
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.outbox import OutboxState
from claudemesh.kernel.secrets import find_secret
from claudemesh.outbox.model import OperatorsRow
from claudemesh.runtime.world import World

Keep = Literal["mine", "theirs"]

PAGE: Final = 500
FORM: Final = 1  # of an export


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an export: an envelope as it would be sent, and how far it had come."""

    form: int = FORM
    id: str
    idempotency_key: str
    fingerprint: str
    destination: str
    created_at: int
    attempts: int
    state: str
    last_error: str | None = None
    is_status_write: bool = False
    envelope: Envelope


T = TypeVar("T")


class Operating:
    def __init__(self, outbox: OperatedStore, queued: Callable[[Sequence[str]], None], world: World) -> None:
        self._outbox = outbox
        self._queued = queued
        self._world = world

    async def page(self, state: OutboxState | None, after_seq: int, limit: int) -> list[EnvelopeSeen]:
        return await self._outbox.page(state, after_seq, limit)

    async def show(self, any_id: str) -> EnvelopeShown:
        return _found(await self._outbox.show(any_id))

    async def retry(self, row_id: str, by: str) -> EnvelopeShown:
        """Let an envelope try again: one in conflict as it is, a dead one under a fresh id and key, at the end."""
        row, shown, envelope = await self._row(row_id)
        if row.state is OutboxState.CONFLICT:
            await self._reopen(row, envelope, shown, f"retried by {by}")
        elif row.state is OutboxState.DEAD:
            return await self._again(row, shown, envelope, by)
        else:
            raise StateError(f"the envelope is {WORDS[row.state]}: only one in conflict, or dead, is retried")
        return await self._decided(row, "retry", by)

    async def cancel(self, row_id: str, by: str) -> EnvelopeShown:
        row, shown, _ = await self._row(row_id)
        _allow(row, {OutboxState.PENDING, OutboxState.CONFLICT, OutboxState.DEAD}, "cancelled")
        await self._outbox.retire(row, self._world.steady_ms(), by)
        return await self._decided(row, "cancel", by, lane=_lane_of(shown))

    async def mark_dead(self, row_id: str, by: str) -> EnvelopeShown:
        row, shown, _ = await self._row(row_id)
        _allow(row, {OutboxState.PENDING, OutboxState.CONFLICT}, "marked dead")
        await self._outbox.condemn(row, "marked_dead")
        return await self._decided(row, "mark-dead", by, lane=_lane_of(shown))

    async def resolve(self, row_id: str, keep: Keep, by: str) -> EnvelopeShown:
        """Decide a conflict: give ours up, or write it over what stands there now, and over nothing newer."""
        row, shown, envelope = await self._row(row_id)
        _allow(row, {OutboxState.CONFLICT}, "resolved")
        if keep == "theirs":
            await self._outbox.retire(row, self._world.steady_ms(), f"{by}: kept theirs")
            return await self._decided(row, "keep-theirs", by, lane=_lane_of(shown))
        theirs = await self._outbox.theirs(row.seq)
        if not isinstance(theirs, dict):
            raise StateError("what stands there is not known: `retry` asks once more, and shows it")
        wanted = policy.on_theirs(policy.envelope_expectation(envelope), theirs)
        if not wanted:
            raise StateError("what stands there has none of the marks that this write goes by")
        await self._reopen(row, policy.keep_mine(envelope, wanted), shown, f"kept mine, by {by}")
        return await self._decided(row, "keep-mine", by)

    # --- to another machine and back -----------------------------------------------------------------

    async def export(self, after_seq: int) -> tuple[list[Exported], int | None]:
        """Return a page of envelopes that are not settled and hold no secret, and where the next page begins."""
        rows = await self._outbox.export(after_seq, PAGE)
        exported = [_exported(row) for row in rows]
        return [one for one in exported if one is not None], rows[-1].seq if len(rows) == PAGE else None

    async def import_(self, lines: Sequence[bytes], by: str) -> dict[str, int]:
        """Queue envelopes of another relay, all or none, under their own keys; what is known changes nothing."""
        submissions = [self._imported(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
        stood = await self._outbox.accept_all(submissions)
        fresh = [one for one, stands in zip(submissions, stood, strict=True) if stands is None]
        self._queued([one.destination for one in fresh])
        for one in fresh:
            self._world.observer.publish(EnvelopeDecided(one.row_id, "import", by))
        return {"imported": len(fresh), "known": len(submissions) - len(fresh)}

    def _imported(self, number: int, line: bytes) -> Submission:
        try:
            one = msgspec.json.decode(line, type=Exported)
            fingerprint = Fingerprint(bytes.fromhex(one.fingerprint))
        except (ValueError, msgspec.MsgspecError) as error:
            raise InvalidRequest(f"line {number} is no exported envelope") from error
        try:
            body = door.parse_body(bytes(one.envelope.body))
        except RequestError as error:
            raise InvalidRequest(f"line {number} holds a body that no relay takes: {error}") from error
        if one.form != FORM or one.state not in ("queued", "sending", "conflict", "dead") or len(fingerprint) != 32:  # noqa: PLR2004
            raise InvalidRequest(f"line {number} is no exported envelope that can be queued")
        if find_secret(body) is not None or any(map(holds_credential, _told(one))):
            raise InvalidRequest(f"line {number} holds what looks like a credential, and nothing was imported")
        row_id = self._world.ids.ulid()
        return Submission(
            row_id=row_id,
            key=one.idempotency_key,
            fingerprint=fingerprint,
            destination=ALONE + row_id if one.destination.startswith(ALONE) else one.destination,
            envelope=one.envelope,
            enqueued_at=one.created_at,
            attempts=max(one.attempts, int(one.state == "sending")),
            is_status_write=one.is_status_write,
        )

    # --- one envelope --------------------------------------------------------------------------------

    async def _row(self, any_id: str) -> tuple[OperatorsRow, EnvelopeShown, Envelope]:
        shown = await self.show(any_id)
        row = _found(await self._outbox.for_operator(shown.seen.id))
        envelope = policy.read_envelope(row.payload)
        if envelope is None:
            raise StateError("the envelope is settled, and its body is no longer kept")
        return row, shown, envelope

    async def _reopen(self, row: OperatorsRow, envelope: Envelope, shown: EnvelopeShown, why: str) -> None:
        # Under a fresh key: what was refused under the old one may be kept there as its answer.
        fresh = msgspec.structs.replace(envelope, key=self._world.ids.ulid())
        await self._outbox.reopen(row, fresh, self._world.steady_ms(), why)
        self._queued([_lane_of(shown)])

    async def _again(self, row: OperatorsRow, shown: EnvelopeShown, envelope: Envelope, by: str) -> EnvelopeShown:
        row_id, key = self._world.ids.ulid(), self._world.ids.ulid()
        found = await self._outbox.look(row.client_message_id, None)
        if found.standing is None:
            raise NotFound("there is no such envelope")
        successor = Submission(
            row_id=row_id,
            key=key,
            fingerprint=found.standing.fingerprint,
            destination=shown.seen.entity or ALONE + row_id,
            envelope=msgspec.structs.replace(envelope, key=key),
            enqueued_at=self._world.steady_ms(),
        )
        await self._outbox.retire(row, self._world.steady_ms(), by, successor)
        self._queued([successor.destination])
        self._world.observer.publish(EnvelopeDecided(row.row_id, "retry", by))
        return await self.show(row_id)

    async def _decided(self, row: OperatorsRow, what: str, by: str, lane: str | None = None) -> EnvelopeShown:
        if lane is not None:
            self._queued([lane])  # what waited behind it may go on
        self._world.observer.publish(EnvelopeDecided(row.row_id, what, by))
        return await self.show(row.row_id)


def _lane_of(shown: EnvelopeShown) -> str:
    return shown.seen.entity or ALONE + shown.seen.id


def _allow(row: OperatorsRow, states: set[OutboxState], what: str) -> None:
    if row.state not in states:
        raise StateError(f"the envelope is {WORDS[row.state]}, and cannot be {what}")


def _found(value: T | None) -> T:
    if value is None:
        raise NotFound("there is no such envelope")
    return value


def _told(one: Exported) -> list[str]:
    """Return all of an envelope that is written down, beside its body."""
    envelope, source = one.envelope, one.envelope.source
    said = (envelope.if_match, envelope.read, source.agent, source.host, source.repo, source.session)
    named = (envelope.method, envelope.path, envelope.query, envelope.key, one.idempotency_key, one.destination)
    before = (text for one in envelope.was for text in (one.if_match, one.updated_at, one.status))
    return [*named, *envelope.passed, *(text for text in (*said, *before) if text is not None)]


def _exported(row: Exportable) -> Exported | None:
    envelope = policy.read_envelope(row.payload)
    if envelope is None or row.state in (OutboxState.DONE, OutboxState.ABORTED):
        return None
    return Exported(
        id=row.row_id,
        idempotency_key=row.key,
        fingerprint=row.fingerprint.hex(),
        destination=row.destination,
        created_at=row.enqueued_at,
        attempts=row.attempts,
        state=WORDS[row.state],
        last_error=row.last_error,
        is_status_write=row.is_status_write,
        envelope=envelope,
    )
