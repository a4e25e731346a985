"""The use cases of a daemon that its surfaces call: accept a send, show an inbox, tell a message's life.

Accept reads as the contract does: choose the id, look the destination up, ask the outbox, and judge what stands.
Whatever could refuse a send meets only an id that is free (the refusal travels with the submission), so a retry of
an acknowledged send is never refused.
"""

from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from claudemesh.daemon.directory import Directory
from claudemesh.daemon.events import SendJudged
from claudemesh.daemon.model import Destination, SendAsked, StandingRow, Submission
from claudemesh.daemon.policy import Answer, answer_fresh, answer_standing, fingerprint, mark, unresolved
from claudemesh.daemon.ports import OutboxStore
from claudemesh.kernel.contents import check_contents
from claudemesh.kernel.errors import IdempotencyConflict, MeshError, PayloadTooLarge, UnknownDestination
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.keys import is_pubkey
from claudemesh.runtime.world import World
from claudemesh.wire.frames import SendItem, item_bytes_max, render_item
from claudemesh.wire.names import parse_topic
from claudemesh.wire.negotiation import INLINE_BYTES_DEFAULT

BATCH_MAX: Final = 1_000

_QUEUED: Final = SendJudged("queued", stood=False)


@dataclass(slots=True)
class Conditions:
    """What may refuse a new send right now, as the rest of the daemon knows it."""

    inline_bytes: int = INLINE_BYTES_DEFAULT
    refusal: MeshError | None = None  # disk pressure
    is_online: bool = False


class Outward(Protocol):
    """The part of the daemon that faces the broker, as far as accepting needs it."""

    def queued(self, destinations: Collection[Destination]) -> None:
        """Take note that rows for these destinations are in the outbox, or on its way into it."""

    async def refresh_directory(self, keys: Sequence[str] = ()) -> None:
        """Ask the broker who is in the mesh, and which of these keys lead to somebody; else all stays as it is."""


class Accepting:
    def __init__(
        self, outbox: OutboxStore, directory: Directory, conditions: Conditions, outward: Outward, world: World
    ) -> None:
        self._outbox = outbox
        self._directory = directory
        self._conditions = conditions
        self._outward = outward
        self._world = world

    async def accept(self, asked: SendAsked) -> Answer:
        """Answer after the row is durable; a refusal or a conflict is raised, and then nothing was written."""
        submission = self.prepare(asked)
        try:
            standing = await self._put(submission)
        except UnknownDestination:
            if not self._conditions.is_online:
                raise
            await self._outward.refresh_directory(_keys([asked]))  # once: somebody may have joined a moment ago
            submission = self.prepare(asked)
            standing = await self._put(submission)
        return self._answer(submission, standing)

    async def accept_many(self, batch: Sequence[SendAsked | MeshError]) -> list[Answer | MeshError]:
        """Answer each by itself, in one commit; one that could not even be parsed keeps its place."""
        prepared = [entry if isinstance(entry, MeshError) else self._prepare_or_refuse(entry) for entry in batch]
        unknown = [entry.asked for entry in prepared if isinstance(entry, Submission) and _is_unknown(entry)]
        if self._conditions.is_online and unknown:
            await self._outward.refresh_directory(_keys(unknown))
            prepared = [
                entry if isinstance(entry, MeshError) else self._prepare_or_refuse(entry) for entry in batch
            ]
        submissions = [entry for entry in prepared if isinstance(entry, Submission)]
        putting = self._outbox.accept_many(submissions)
        self._outward.queued({one.destination for one in submissions if one.refusal is None})
        stood = iter(await putting)
        return [entry if isinstance(entry, MeshError) else self._conclude(entry, next(stood)) for entry in prepared]

    # --- one submission ----------------------------------------------------------------------------

    def prepare(self, asked: SendAsked, destination: Destination | None = None) -> Submission:
        """Return what would be put before the outbox; a destination that is given is not looked up again."""
        destination = destination or self._find(asked.to)
        check_contents(asked.meta, asked.reply_to)
        refusal = self._refusal(asked, destination)
        destination = destination or unresolved(asked.to)
        presented = fingerprint(asked, destination)
        item = SendItem(
            client_message_id=asked.client_message_id,
            kind=destination.kind,
            ref=destination.ref,
            body=asked.body,
            fingerprint=presented.hex(),
            reply_to=asked.reply_to,
            priority=asked.priority,
            meta=asked.meta or None,
        )
        payload = render_item(item)
        return Submission(
            row_id=self._world.ids.ulid(),
            asked=asked,
            destination=destination,
            fingerprint=presented,
            payload=payload,
            enqueued_at=self._world.steady_ms(),
            refusal=refusal or self._refuse_size(payload),
        )

    def _put(self, submission: Submission) -> Awaitable[StandingRow | None]:
        """Send the row to the store and tell the sender at once: its claim then shares the row's own commit."""
        putting = self._outbox.accept(submission)
        if submission.refusal is None:
            self._outward.queued((submission.destination,))
        return putting

    def _find(self, to: str) -> Destination | None:
        marked = mark(to)
        if marked is not None:
            parse_topic(marked.ref)
            return marked
        found = self._directory.resolve(to)
        if found is None and is_pubkey(to) and not self._conditions.is_online:
            return Destination(Kind.DM, to)  # nobody can be asked; a key is an address all the same
        return found

    def _refusal(self, asked: SendAsked, destination: Destination | None) -> MeshError | None:
        size, limit = len(asked.body.encode(errors="surrogatepass")), self._conditions.inline_bytes
        if size > limit:
            return PayloadTooLarge(f"the message has {size} bytes, the mesh takes {limit}", limit_bytes=limit)
        if destination is None:
            return UnknownDestination(
                "the members that are known are in `claudemesh peer list`; a topic is #NAME, a queue queue:NAME"
            )
        return self._conditions.refusal

    def _refuse_size(self, payload: bytes) -> MeshError | None:
        """Refuse what would not fit into a frame: it could never be sent, and would keep all others waiting."""
        limit = item_bytes_max(self._conditions.inline_bytes)
        if len(payload) <= limit:
            return None
        return PayloadTooLarge(f"with its meta it has {len(payload)} bytes on the wire, a frame takes {limit}")

    def _answer(self, submission: Submission, standing: StandingRow | None) -> Answer:
        if standing is None:
            self._world.observer.publish(_QUEUED)
            return answer_fresh(submission)
        try:
            answer = answer_standing(standing, submission)
        except IdempotencyConflict as conflict:
            self._world.observer.publish(SendJudged(conflict.conflict, stood=True))
            raise
        self._world.observer.publish(SendJudged(answer.status, stood=True))
        return answer

    def _prepare_or_refuse(self, asked: SendAsked) -> Submission | MeshError:
        try:
            return self.prepare(asked)
        except MeshError as error:
            return error

    def _conclude(self, submission: Submission, stood: StandingRow | MeshError | None) -> Answer | MeshError:
        if isinstance(stood, MeshError):
            return stood
        try:
            return self._answer(submission, stood)
        except MeshError as conflict:
            return conflict


def _is_unknown(submission: Submission) -> bool:
    return isinstance(submission.refusal, UnknownDestination)


def _keys(asked: Sequence[SendAsked]) -> list[str]:
    return sorted({one.to for one in asked if is_pubkey(one.to)})
