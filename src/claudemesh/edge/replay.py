"""Replay: envelopes go to the upstream in the order of their entities, and what it answers is written down.

The loop is `outbox.sender`; here is how an envelope is carried, what an answer makes of it, and which are never
tried again: one that was tried, and is older than the upstream remembers keys, could be applied twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from claudemesh.edge import policy
from claudemesh.edge.events import EnvelopeSettled, EnvelopeStopped, Warned
from claudemesh.edge.keeping import kept, kept_json
from claudemesh.edge.model import ALONE, Answer, Envelope, Headers, Settlement, Source
from claudemesh.edge.reach import Reach
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import InvalidRequest, MeshError
from claudemesh.kernel.idempotency import render_key
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.kernel.write_errors import BadGateway
from claudemesh.outbox.model import ClaimedRow
from claudemesh.outbox.ports import SendingStore
from claudemesh.outbox.reading import read_outcome
from claudemesh.outbox.sender import Sender
from claudemesh.runtime.world import World
from claudemesh.wire.json import dump_json

UNSENDABLE: Final = Answer(status=400, body=b'{"code": "unsendable"}')
MARGIN_MS: Final = DAY_MS  # before the upstream forgets a key
PAGE: Final = 256

_STOPS: Final = frozenset({OutboxEvent.CONFLICTED, OutboxEvent.REFUSED, OutboxEvent.EXPIRED})

Row = ClaimedRow[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one try: an answer, or none; then whether a byte may have gone out."""

    envelope: Envelope
    answer: Answer | None = None
    was_sent: bool = True
    theirs: Any = None  # of a conflict: the row as it is there, if it could be seen


class Replay(Sender[str, Upstream, Outcome, Settlement]):
    rows_each_max = 1  # the next one of an entity goes by the answer to this one
    unanswered_max = 32
    only_tried_are_overdue = True

    def __init__(
        self, outbox: SendingStore[str, Settlement], upstream: Upstream, reach: Reach, world: World
    ) -> None:
        super().__init__(outbox, world)
        self._upstream = upstream
        self._reach = reach
        self._observer = world.observer
        self.key_expiry_ms = 30 * DAY_MS  # as the upstream publishes it
        reach.listen(self)

    # --- what the reach tells ------------------------------------------------------------------------

    def upstream_is_there(self) -> None:
        self.connected(self._upstream)

    def upstream_is_away(self) -> None:
        self.disconnected()

    # --- what is too old -------------------------------------------------------------------------------

    @property
    def too_old_before(self) -> int:
        return self._steady_ms() - max(self.key_expiry_ms - MARGIN_MS, 0)

    async def give_up(self, link: Upstream | None) -> set[str]:  # noqa: ARG002  nobody can be asked
        after = (0, 0)
        while rows := await self._outbox.overdue(self.too_old_before, after, PAGE):
            after = (rows[-1].enqueued_at, rows[-1].seq)
            tried = [row for row in rows if row.attempts]
            settlements = [
                Settlement(
                    seq=row.seq,
                    event=OutboxEvent.EXPIRED,
                    at=self._steady_ms(),
                    attempted=False,
                    last_error="outcome_unknown",
                )
                for row in tried
            ]
            await self._outbox.settle(settlements)
            for settlement in settlements:
                self._tell(settlement)
        return set()

    # --- one try ---------------------------------------------------------------------------------------

    def carried_apart(self, rows: Sequence[Row]) -> list[list[Row]]:
        return [[row] for row in rows]

    async def carry(self, link: Upstream, rows: Sequence[Row]) -> Sequence[Outcome]:
        return [await self._carry_one(link, row) for row in rows]

    async def _carry_one(self, link: Upstream, row: Row) -> Outcome:
        envelope = policy.read_envelope(row.payload)
        if envelope is None:
            raise AssertionError("an envelope that waits was emptied")
        try:
            answer = await link.request(outgoing(envelope))
        except Unreached as error:
            self._reach.lost(str(error))
            return Outcome(envelope, was_sent=False)
        except Unanswered as error:
            self._reach.lost(str(error))
            return Outcome(envelope)
        except BadGateway as error:
            return Outcome(envelope, Answer(status=error.status))
        except (InvalidRequest, UnicodeError):  # imported from elsewhere, and no request at all
            return Outcome(envelope, UNSENDABLE)
        answer = policy.meant(answer)
        if answer.status in policy.UPSTREAM_AWAY:
            self._reach.lost(f"a gateway answered {answer.status}")
        if answer.status in policy.REFUSES_US:
            self._reach.refused(answer.status)
        theirs = await self._theirs(link, envelope, answer) if policy.is_conflict(answer) else None
        return Outcome(envelope, answer, theirs=theirs)

    async def _theirs(self, link: Upstream, envelope: Envelope, refusal: Answer) -> Any:  # noqa: ANN401  JSON
        """Return the row as it is there: as the refusal shows it, or as it is read; None if it cannot be seen."""
        shown = policy.current_in(refusal)
        if shown is not None or envelope.read is None:
            return shown
        try:
            found = await link.request(Outgoing(method="GET", path=envelope.read))
            return orjson.loads(found.body) if found.status == 200 else None  # noqa: PLR2004
        except (Unreached, Unanswered, MeshError, orjson.JSONDecodeError):
            return None

    # --- what it means ---------------------------------------------------------------------------------

    def is_taken(self, outcome: Outcome) -> bool:
        return outcome.answer is not None and policy.outcome_status(outcome.answer) == 200  # noqa: PLR2004

    def read(self, row: Row, outcome: Outcome | None, *, others_pass: bool) -> tuple[Settlement, int | None]:
        now = self._steady_ms()
        if outcome is None or outcome.answer is None:
            was_sent = outcome is None or outcome.was_sent
            error = "no_answer" if was_sent else "unreachable"
            # Asking whether the upstream is there has a backoff of its own; one that breaks connections waits too.
            wait_ms = derive_backoff_ms(row.attempts + 1, self._roll()) if was_sent else 0
            failed = Settlement(
                seq=row.seq,
                event=OutboxEvent.FAILED,
                at=now,
                next_attempt_at=now + wait_ms,
                attempted=was_sent,
                last_error=error,
            )
            return failed, wait_ms
        if policy.is_conflict(outcome.answer):
            return self._read_conflict(row, outcome, now), None
        return self._read_answer(row, outcome.envelope, outcome.answer, others_pass=others_pass)

    def _read_conflict(self, row: Row, outcome: Outcome, now: int) -> Settlement:
        theirs = dump_json(outcome.theirs) if outcome.theirs is not None else None
        if policy.holds(outcome.theirs, outcome.envelope):
            answer = Answer(status=200, headers=((b"content-type", b"application/json"),), body=theirs or b"")
            return Settlement(
                seq=row.seq,
                event=OutboxEvent.ACCEPTED,
                at=now,
                answer=kept(answer),
                last_error="already_there",  # by another's hand: those behind it never saw that, so no rebase
            )
        return Settlement(
            seq=row.seq,
            event=OutboxEvent.CONFLICTED,
            at=now,
            last_error="revision_conflict",
            theirs=kept_json(theirs),
        )

    def _read_answer(
        self, row: Row, envelope: Envelope, answer: Answer, *, others_pass: bool
    ) -> tuple[Settlement, int | None]:
        now = self._steady_ms()
        reading = read_outcome(
            policy.outcome_status(answer),
            policy.problem_code(answer) or f"status_{answer.status}",
            row.server_errors,
            others_pass=others_pass,
        )
        wait_ms: int | None = None
        if reading.event is OutboxEvent.FAILED:
            wait_ms = derive_backoff_ms(row.attempts + 1, self._roll(), policy.retry_after_ms(answer))
        is_accepted = reading.event is OutboxEvent.ACCEPTED
        has_entity = not row.destination.startswith(ALONE)
        settlement = Settlement(
            seq=row.seq,
            event=reading.event,
            at=now,
            next_attempt_at=now + (wait_ms or 0),
            server_failed=reading.is_server_failure,
            last_error=reading.last_error,
            answer=None if wait_ms is not None else kept(answer),
            rebase=policy.derive_rebase(envelope, answer) if is_accepted and has_entity else None,
        )
        return settlement, wait_ms

    def tell(self, settled: Sequence[tuple[Row, Outcome | None, Settlement]]) -> None:
        for *_, settlement in settled:
            self._tell(settlement)

    def _tell(self, settlement: Settlement) -> None:
        self._observer.publish(EnvelopeSettled(settlement.seq, settlement.event, settlement.last_error))
        if settlement.event in _STOPS:
            self._observer.publish(EnvelopeStopped(settlement.seq, settlement.event, settlement.last_error))

    def warn(self, code: str, detail: str) -> None:
        self._observer.publish(Warned(code, detail))


def source_headers(source: Source) -> Headers:
    named = {b"agent": source.agent, b"host": source.host, b"repo": source.repo, b"session": source.session}
    return tuple((b"x-source-" + name, value.encode()) for name, value in named.items() if value is not None)


def outgoing(envelope: Envelope) -> Outgoing:
    """Return the request that an envelope is."""
    headers = [(b"content-type", b"application/json"), (b"idempotency-key", render_key(envelope.key).encode())]
    if envelope.if_match is not None:
        headers.append((b"if-match", envelope.if_match.encode("latin-1")))
    source = envelope.source
    headers += source_headers(source)
    return Outgoing(
        method=envelope.method,
        path=envelope.path,
        query=envelope.query,
        headers=tuple(headers),
        body=b"" if envelope.is_bodiless else bytes(envelope.body),
    )
