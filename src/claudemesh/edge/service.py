"""The use case of a relay: take a write to the upstream, or keep it until the upstream is there, and say which.

A write reads as the contract does: what stands under its key answers it; behind queued writes to its entity it
queues too; else it is tried. What did not get through is queued if its route, its body and its expectation allow
it, under the key of the first try. A queued write is never answered as a done one.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

import orjson

from claudemesh.edge import policy
from claudemesh.edge.events import EnvelopeQueued, WriteRefused
from claudemesh.edge.model import ALONE, Answer, Headers, StandingRow, Submission
from claudemesh.edge.policy import UPSTREAM_AWAY
from claudemesh.edge.ports import AcceptingStore, Queued
from claudemesh.edge.reach import Reach
from claudemesh.edge.routing import Policy, RouteClass
from claudemesh.edge.sorting import ONLINE_ONLY, Asked, Write
from claudemesh.edge.turns import Turns
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream
from claudemesh.kernel.admission import Busy, Conflict, Fresh, Replay, Standing
from claudemesh.kernel.errors import DependencyError, StoreCorrupt, StoreUnavailable
from claudemesh.kernel.fingerprint import Fingerprint, prefix
from claudemesh.kernel.idempotency import render_key
from claudemesh.kernel.outbox import ADMISSION, OutboxState
from claudemesh.kernel.write_errors import KeyReused, NotQueueable, OutcomeUnknown
from claudemesh.runtime.world import World

RETRY_MS: Final = 5_000  # when to come back with what cannot be queued

_BY_PROGRESS: Final = ("queued", "sending", "conflict")
_JSON: Final[Headers] = ((b"content-type", b"application/json"),)
_REPLAYED: Final = (b"idempotent-replayed", b"true")  # the key stood for this very write


class Relaying:
    """Without an outbox, because its file is damaged, writes are forwarded and nothing is queued."""

    def __init__(  # noqa: PLR0913 - what it works with, each named
        self,
        *,
        routes: Policy,
        upstream: Upstream,
        outbox: AcceptingStore | None,
        reach: Reach,
        queued: Queued,
        world: World,
    ) -> None:
        self._routes = routes
        self._upstream = upstream
        self._outbox = outbox
        self._reach = reach
        self._queued = queued
        self._world = world
        self._turns = Turns()

    async def write(self, asked: Asked) -> Answer:
        write = Write(asked, self._routes, asked.key or self._world.ids.ulid())
        names = [f"entity {lane}" for lane in write.lanes]
        if asked.key is not None:
            names.append(f"key {asked.key}")
        if not names:  # nobody else can ask about it, and it stands in nobody's way
            return await self._try(write)
        async with self._turns.of(names):
            return await self._in_turn(write)

    async def _in_turn(self, write: Write) -> Answer:
        if not self._reach.is_online and write.why_not is None:
            return await self._queue(write)  # which finds what stands, and asks nobody before
        standing, has_open = await self._look(write)
        if standing and None not in standing:
            return self._answer_standing(write, standing)
        # Of a bulk some entries may stand: a full disk kept the others out. They wait too now.
        if not has_open and not any(standing):
            return await self._try(write)
        if write.why_not is not None:  # what its caller can mend is said first
            raise self._refusal(
                write, "entity_has_queued_writes" if write.why_not == ONLINE_ONLY else write.why_not
            )
        return await self._queue(write, upstream="reachable" if self._reach.is_online else "unreachable")

    async def _look(self, write: Write) -> tuple[list[StandingRow | None], bool]:
        """Return what stands under the key of each part, and whether writes to the same entities wait."""
        if self._outbox is None:
            return [], False
        given = write.asked.key is not None
        looked = [await self._outbox.look(part.key if given else None, part.lane) for part in write.parts]
        return [one.standing for one in looked], any(one.has_open for one in looked)

    # --- trying --------------------------------------------------------------------------------------

    async def _try(self, write: Write) -> Answer:
        if not self._reach.is_online:
            return await self._keep(write, may_be_there=False)
        try:
            answer = await self._upstream.request(self._whole(write))
        except Unreached as error:
            self._reach.lost(str(error))
            return await self._keep(write, may_be_there=False)
        except Unanswered as error:
            self._reach.lost(str(error))
            return await self._keep(write, may_be_there=True)
        if answer.status in UPSTREAM_AWAY and write.why_not is None:
            self._reach.lost(f"a gateway answered {answer.status}")
            return await self._keep(write, may_be_there=True)
        return answer

    def _whole(self, write: Write) -> Outgoing:
        asked = write.asked
        headers = (*asked.headers, (b"idempotency-key", render_key(write.key).encode()))
        return Outgoing(method=asked.method, path=asked.path, query=asked.query, headers=headers, body=asked.raw)

    async def _keep(self, write: Write, *, may_be_there: bool) -> Answer:
        if write.why_not is None:
            try:
                return await self._queue(write, may_be_there=may_be_there)
            except (DependencyError, StoreCorrupt) as error:  # no room, or no file
                if not may_be_there:
                    raise
                raise self._unknown(error.code) from error
        if may_be_there:
            raise self._unknown(write.why_not)
        raise self._refusal(write, write.why_not)

    def _unknown(self, reason: str) -> OutcomeUnknown:
        self._world.observer.publish(WriteRefused("outcome_unknown"))
        return OutcomeUnknown(f"it cannot be queued ({reason}), and the upstream may have it")

    def _refusal(self, write: Write, reason: str) -> NotQueueable:
        self._world.observer.publish(WriteRefused(reason))
        name = write.routed.rule.name if write.routed.rule is not None else "this route"
        return NotQueueable(f"{name}: {_REASONS[reason]}", reason=reason, retry_after_ms=RETRY_MS)

    # --- queueing ------------------------------------------------------------------------------------

    async def _queue(self, write: Write, *, may_be_there: bool = False, upstream: str = "unreachable") -> Answer:
        if self._outbox is None:
            raise StoreUnavailable("the relay's outbox cannot be used, and nothing was queued: see its log")
        is_bulk = write.routed.route_class is RouteClass.BULK
        now, fingerprint = self._world.steady_ms(), write.fingerprint()
        submissions = []
        for part in write.parts:
            row_id = self._world.ids.ulid()
            submissions.append(
                Submission(
                    row_id=row_id,
                    key=part.key,
                    fingerprint=fingerprint,
                    destination=part.lane or ALONE + row_id,
                    envelope=part.envelope,
                    enqueued_at=now,
                    # The entries of a bulk go out under keys of their own, which the upstream never saw.
                    attempts=int(may_be_there and not is_bulk),
                    is_status_write=part.is_status_write,
                )
            )
        await self._queued.begin_outage_if_away()
        stood: Sequence[StandingRow | None]
        if is_bulk:  # whole, or not at all
            stood = await self._outbox.accept_all(submissions)
        else:
            stood = [await self._outbox.accept(submissions[0])]
        fresh = [submission for submission, stands in zip(submissions, stood, strict=True) if stands is None]
        for submission in fresh:
            self._world.observer.publish(EnvelopeQueued(submission.row_id, _route_of(write)))
        self._queued.queued([submission.destination for submission in fresh])
        if len(fresh) < len(submissions):  # somebody was faster with this key, or was there before
            standing, _ = await self._look(write)
            return self._answer_standing(write, standing)
        return _receipt([submission.row_id for submission in submissions], write.key, "queued", upstream)

    def _answer_standing(self, write: Write, standing: Sequence[StandingRow | None]) -> Answer:
        """Answer from what stands under the key; raise the conflict if it stands for something else.

        A bulk is as far as that entry of it which is least far: it is done when all of them are.
        """
        rows = [row for row in standing if row is not None]
        presented = write.fingerprint()
        states: set[str] = set()
        for row in rows:
            verdict = ADMISSION.judge(Standing(row.state, row.fingerprint), presented)
            match verdict:
                case Busy(word):
                    states.add("sending" if word == "inflight" else word)
                case Replay():
                    pass
                case Conflict(word):
                    raise _conflict(word, row, presented)
                case Fresh():
                    raise AssertionError("something stands, so the key is not free")
                case _:
                    assert_never(verdict)
        if states:
            upstream = "reachable" if self._reach.is_online else "unreachable"
            state = min(states, key=_BY_PROGRESS.index)
            told = _receipt([row.outbox_id for row in rows], write.key, state, upstream)
            return told._replace(headers=(*told.headers, _REPLAYED))
        if write.routed.route_class is RouteClass.BULK:
            return _replayed_bulk(write, rows)
        return _replayed(rows[0].answer)


_REASONS: Final = {
    ONLINE_ONLY: "it is not one that can wait for the upstream",
    "needs_expectation": "a write that replaces something waits only with expected_updated_at, expected_status or "
    "If-Match, so that it cannot overwrite what it never saw",
    "contains_secret": "it holds what looks like a credential, which is never written to the disk",
    "too_large": f"its body is larger than the {policy.QUEUED_BYTES_MAX} bytes that may wait",
    "entity_has_queued_writes": "earlier writes to the same entity are queued, and it cannot wait behind them",
}


def _receipt(ids: Sequence[str], key: str, state: str, upstream: str) -> Answer:
    """Say that a write waits: it is evidence of that, and of nothing that was done."""
    receipt: dict[str, Any] = {
        "queued": True,
        "outbox_id": ids[0],
        "idempotency_key": key,
        "upstream": upstream,
        "state": state,
    }
    if len(ids) > 1:
        receipt["outbox_ids"] = list(ids)
    return Answer(status=202, headers=_JSON, body=orjson.dumps(receipt))


def _replayed(answer: Answer | None) -> Answer:
    if answer is None:
        raise AssertionError("an acknowledged envelope has an answer")
    headers = answer.headers or _JSON
    body = answer.body or b'{"acked": true, "answer": "not kept"}'
    if not answer.body:
        headers = _JSON
    return Answer(status=answer.status, headers=(*headers, _REPLAYED), body=body)


def _replayed_bulk(write: Write, rows: Sequence[StandingRow]) -> Answer:
    """Return the answers of its entries as the upstream would tell them, were they still one request."""
    each = write.routed.rule.each if write.routed.rule is not None else None
    name = "answer" if each is None else each.answers
    items = []
    for part, row in zip(write.parts, rows, strict=True):
        told = _replayed(row.answer)
        entry = (part.lane or "").partition("/")[2]
        items.append({"id": entry, "http_status": told.status, name: orjson.Fragment(told.body)})
    return Answer(200, (*_JSON, _REPLAYED), orjson.dumps({"items": items}))


def _conflict(word: str, standing: StandingRow, presented: Fingerprint) -> KeyReused:
    is_same = standing.fingerprint == presented
    detail = (
        f"the write under this key is {'dead' if standing.state is OutboxState.DEAD else 'cancelled'}: "
        "a new one needs a new key"
        if is_same
        else "this key stands for another request"
    )
    return KeyReused(
        detail,
        conflict=word,
        fingerprint_prefix=prefix(presented),
        outbox_id=standing.outbox_id,
        reason=standing.last_error,
    )


def _route_of(write: Write) -> str:
    return write.routed.rule.name if write.routed.rule is not None else ""
