"""The rules of the broker: what refuses a message, who stays when two connections meet, who may change what.

Within one frame, what comes behind a message that has to be tried again waits for it (`Deferrals`): else the retry
would be overtaken. What is refused for good holds nobody up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from claudemesh.broker.model import (
    Accepted,
    AcceptOutcome,
    Claim,
    ConnectionPolicy,
    DedupeState,
    DeliveryState,
    Duplicate,
    Meeting,
    Member,
    Message,
    Newcomer,
    PlanPage,
    PlanSwept,
    RecipientReceipt,
    Role,
    Sender,
    StandingMessage,
)
from claudemesh.kernel.admission import AdmissionTable, Conflict, Match, Replay, Standing
from claudemesh.kernel.contents import check_contents
from claudemesh.kernel.errors import (
    Forbidden,
    IdempotencyConflict,
    IdRetired,
    IntegrityError,
    InvalidRequest,
    InviteRefused,
    LeaseLost,
    MeshError,
    NameTaken,
    NotFound,
    PayloadTooLarge,
    PredecessorDeferred,
    Revoked,
)
from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send, prefix
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.kernel.lease import Acquire, Fence, Granted, Lease, Lost, Renew
from claudemesh.kernel.lease import judge as judge_lease

FRAME_ITEMS_MAX: Final = 256
SENDER_SEQ_MAX: Final = 2**63 - 1

# An attempt at a delivery counts when the socket lived on for this long without an ack.
ATTEMPT_AFTER_MS: Final = 30_000
ATTEMPTS_MAX: Final = 10

SESSIONS_MAX: Final = 10_000  # leases that the sessions of one member have
INSTANCES_MAX: Final = 16  # of one key, where a mesh lets them stand side by side
SESSIONS_SHOWN: Final = 100  # of one member, among the peers
UNREAD_MAX: Final = 1_000  # up to which what a member has not read is counted

QUEUE_LEASE_MS: Final = 300_000
QUEUE_RETURNS_MAX: Final = 10

BROKER_LEASE_MS: Final = 15_000  # a broker that does not beat for so long is taken for dead by the others

# How far history ids go ahead when a store comes back from a backup: more than anybody sends, and thousands of
# times before a number is too large for JSON.
EPOCH_SKIP: Final = 2**40

MANAGERS: Final = frozenset({Role.OWNER, Role.ADMIN})  # they invite, revoke and set


class Phase(StrEnum):
    """Where an accept ended."""

    B0 = "b0"
    B1 = "b1"
    B2 = "b2"
    B3 = "b3"


# The order of an accept is the contract: each phase protects the one before it from the ones after.
ACCEPT_PHASES: Final = (
    (Phase.B0, "look the id up: a retry of what was accepted is answered before anything that could refuse it"),
    (Phase.B1, "schema, size, budget: outside the transaction, so a flood costs no write; the id stays free"),
    (Phase.B2, "claim the id, then the destination: inside, so that what is found still holds at the commit"),
    (Phase.B3, "write everything: one commit, and only now the id is used"),
)


# --- B0 and B2: what stands under the id -----------------------------------------------------------

_S = DedupeState

DEDUPE: Final = AdmissionTable(
    DedupeState,
    {
        (_S.ACCEPTED, Match.SAME): Replay("duplicate"),
        (_S.ACCEPTED, Match.OTHER): Conflict("request_fingerprint_mismatch"),
        (_S.RETIRED, Match.SAME): Conflict("id_retired"),
        (_S.RETIRED, Match.OTHER): Conflict("id_retired"),
    },
)


def judge_standing(standing: StandingMessage, message: Message) -> Duplicate | MeshError:
    """Answer for an id that was used."""
    verdict = DEDUPE.judge(Standing(standing.state, standing.fingerprint), message.fingerprint)
    if isinstance(verdict, Replay):
        return derive_duplicate(standing)
    word = verdict.word if isinstance(verdict, Conflict) else ""
    kind = IdRetired if standing.state is DedupeState.RETIRED else IdempotencyConflict
    return kind(
        conflict=word,
        fingerprint_prefix=prefix(message.fingerprint),
        client_message_id=message.client_message_id,
    )


def derive_duplicate(standing: StandingMessage) -> Duplicate:
    if standing.broker_message_id is None or standing.history_id is None:
        raise IntegrityError("a dedupe row says accepted, and names no message")
    return Duplicate(
        standing.broker_message_id, standing.history_id, standing.history_available, standing.first_seen_at
    )


def judge_drift(message: Message, claimed: str) -> MeshError | None:
    """Refuse a daemon whose own fingerprint differs: it and we do not mean the same by 'the same request'."""
    if claimed == message.fingerprint.hex():
        return None
    return IdempotencyConflict(
        "the fingerprint that came with the message is not the broker's",
        conflict="request_fingerprint_mismatch",
        fingerprint_prefix=prefix(message.fingerprint),
        client_message_id=message.client_message_id,
    )


# --- B1: without a look at the store ---------------------------------------------------------------


def present(
    client_message_id: str, request: SendRequest, *, encoding: str = "plain", sender_seq: int | None = None
) -> Message:
    """Make a message of what arrived, or raise InvalidRequest: what has no fingerprint was never accepted."""
    meta = request.meta
    mentions = check_contents(meta, request.reply_to)
    if sender_seq is not None and not 0 <= sender_seq <= SENDER_SEQ_MAX:
        raise InvalidRequest("sender_seq is not a number that can be stored")
    return Message(
        client_message_id=parse_client_message_id(client_message_id),
        kind=request.kind,
        ref=request.ref,
        body=request.body,
        fingerprint=fingerprint_send(request),
        reply_to=request.reply_to,
        priority=request.priority,
        meta=msgspec.json.encode(meta).decode() if meta else "",
        mentions=mentions,
        encoding=encoding,
        sender_seq=sender_seq,
    )


def judge_size(message: Message, inline_bytes: int) -> MeshError | None:
    size = len(message.body) if message.body.isascii() else len(message.body.encode())
    if size > inline_bytes:
        return PayloadTooLarge(f"the message has {size} bytes, and at most {inline_bytes} are taken")
    return None


# --- the order within a frame ----------------------------------------------------------------------

_TRANSIENT: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500


def is_transient(error: MeshError) -> bool:
    return error.status in _TRANSIENT or error.status >= _SERVER_ERROR


class Deferrals:
    """The destinations that have to wait within one frame, since something of theirs has to be tried again."""

    def __init__(self) -> None:
        self._waiting: set[tuple[Kind, str]] = set()

    def judge(self, destination: tuple[Kind, str]) -> MeshError | None:
        return PredecessorDeferred() if destination in self._waiting else None

    def note(self, destination: tuple[Kind, str], outcome: AcceptOutcome) -> None:
        if isinstance(outcome, MeshError) and is_transient(outcome):
            self._waiting.add(destination)


def derive_phase(outcome: AcceptOutcome, *, in_transaction: bool) -> Phase:
    if isinstance(outcome, Accepted):
        return Phase.B3
    if in_transaction:
        return Phase.B2
    return Phase.B0 if isinstance(outcome, Duplicate | IdempotencyConflict) else Phase.B1


# --- receipts --------------------------------------------------------------------------------------

_ADVANCE: Final = (
    DeliveryState.ACCEPTED,
    DeliveryState.DEAD_LETTER,
    DeliveryState.DELIVERED,
    DeliveryState.READ,
    DeliveryState.ACTED,
)

_TIMED: Final = (DeliveryState.DELIVERED, DeliveryState.READ, DeliveryState.ACTED, DeliveryState.DEAD_LETTER)


def derive_message_state(recipients: Sequence[RecipientReceipt]) -> DeliveryState:
    """Return the least advanced recipient's state. One that still waits is behind one that never will get it."""
    return derive_least(recipient.state for recipient in recipients)


def derive_least(states: Iterable[DeliveryState]) -> DeliveryState:
    return min(states, key=_ADVANCE.index, default=DeliveryState.ACCEPTED)


def derive_since(state: DeliveryState, accepted_at: int, times: Sequence[int | None]) -> int:
    """Return since when it is in its state, given the times of `_TIMED`. A mark that made no state counts not."""
    since = dict(zip(_TIMED, times, strict=True)).get(state)
    return accepted_at if since is None else since


def derive_counts(recipients: Sequence[RecipientReceipt]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for recipient in recipients:
        counts[recipient.state] = counts.get(recipient.state, 0) + 1
    return counts


# --- two connections under one key -----------------------------------------------------------------


def judge_meeting(policy: ConnectionPolicy, standing_instance: str, new_instance: str) -> Meeting:
    """Judge what becomes of the one that stands."""
    if standing_instance == new_instance:
        return Meeting.REPLACED
    return {
        ConnectionPolicy.PREFER_NEWEST: Meeting.SUPERSEDED,
        ConnectionPolicy.PREFER_OLDEST: Meeting.REFUSED,
        ConnectionPolicy.ALLOW_CONCURRENT: Meeting.SHARED,
    }[policy]


# --- attempts --------------------------------------------------------------------------------------


def is_attempt(pushed_at_ms: int, last_life_ms: int) -> bool:
    """Say whether a push without an ack counts: the socket was still alive long after it. Being away never does."""
    return last_life_ms - pushed_at_ms >= ATTEMPT_AFTER_MS


# --- the work of queues ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The lease of a queue's message, as it stands."""

    owner_id: int | None
    token: int
    expires_at_ms: int
    is_settled: bool
    is_acted: bool
    is_dead: bool

    @property
    def is_handed_over(self) -> bool:
        """Whether a ledger has it. What else settles a lease acts upon the message, or makes it a dead letter."""
        return self.is_settled and not self.is_acted and not self.is_dead


def derive_grant(worker: Sender, last_token: int, ttl_ms: int, now_ms: int) -> Lease:
    """Return the lease of a message that nobody held, with the worker."""
    verdict = judge_lease(Lease(None, last_token, 0), Acquire(str(worker.member_id), ttl_ms), now_ms)
    if not isinstance(verdict, Granted):
        raise IntegrityError("a vacant lease was not granted")
    return verdict.lease


def is_acked(held: HeldLease, claim: Claim) -> bool:
    """Say whether the ack of this claim was said before: then its answer was lost, and is given again.

    What was acted upon stays so: to hand it over says less, and changes nothing.
    """
    return held.is_acted and _is_holders(held, claim)


def judge_ack(held: HeldLease, claim: Claim, now_ms: int) -> LeaseLost | None:
    """Say why the worker may not ack this. What it handed over it may hand over again or ack, whatever the time."""
    return None if held.is_handed_over and _is_holders(held, claim) else judge_settle(held, claim, now_ms)


def derive_acked(held: HeldLease, *, handed_over: bool) -> DeliveryState:
    """Return how far the message is with an ack that holds."""
    return DeliveryState.DELIVERED if handed_over and not held.is_acted else DeliveryState.ACTED


def judge_settle(held: HeldLease, claim: Claim, now_ms: int) -> LeaseLost | None:
    """Say why the worker may neither ack this nor give it back."""
    verdict = _judge_claim(held, Fence(_owner(claim), claim.token), now_ms)
    return None if isinstance(verdict, Lease) else verdict


def judge_renew(held: HeldLease, claim: Claim, ttl_ms: int, now_ms: int) -> Lease | LeaseLost:
    return _judge_claim(held, Renew(_owner(claim), claim.token, ttl_ms), now_ms)


def _judge_claim(held: HeldLease, request: Fence | Renew, now_ms: int) -> Lease | LeaseLost:
    owner = None if held.owner_id is None else str(held.owner_id)
    verdict = judge_lease(Lease(owner, held.token, held.expires_at_ms), request, now_ms)
    if isinstance(verdict, Granted) and not held.is_settled:
        return verdict.lease
    return LeaseLost(reason=verdict.because if isinstance(verdict, Lost) else "settled")


def _is_holders(held: HeldLease, claim: Claim) -> bool:
    return (held.owner_id, held.token) == (claim.sender.member_id, claim.token)


def _owner(claim: Claim) -> str:
    return str(claim.sender.member_id)


# --- what is forgotten -----------------------------------------------------------------------------


def plan_pruned(rows: Iterable[Any], position: int, now_ms: int) -> tuple[int, list[tuple[int, str]]]:
    """Say up to which tombstone to go from a position, and which ids to forget on the way.

    A row is a tombstone's number, then sender, id and expiry of what still stands under the id of its message.
    They stand in the order in which they expire: the first that has not ends it.
    """
    expired: list[tuple[int, str]] = []
    for tombstone_id, sender_id, client_message_id, expires_at in rows:
        if client_message_id is not None:
            if expires_at is None or expires_at > now_ms:
                break
            expired.append((sender_id, client_message_id))
        position = tombstone_id
    return position, expired


def judge_plan(page: PlanPage, rows: Iterable[Any]) -> tuple[list[Any], PlanSwept]:
    """Say which of the rows a plan deletes, and how many of its messages it does not: refused, or gone.

    A row is a message that is kept: its history id, when it was accepted, the broker's id, whatever else.
    """
    kept, due, refused, gone = {row[0]: row for row in rows}, [], 0, 0
    for history_id, broker_message_id in page.planned:
        row = kept.get(history_id)
        if row is None:
            gone += 1
        elif row[1] < page.before_ms and row[2] == broker_message_id:
            due.append(row)
        else:
            refused += 1
    return due, PlanSwept(refused=refused, gone=gone)


def plan_events(rows: Iterable[Any]) -> list[int]:
    """Say which of the oldest events go: all before the first that stays. A row is one, and whether it may go."""
    going: list[int] = []
    for event_id, may_go in rows:
        if not may_go:
            break
        going.append(event_id)
    return going


# --- who may change what ---------------------------------------------------------------------------


def judge_manager(actor: Member) -> MeshError | None:
    """Say why the actor may not change the mesh itself."""
    if actor.revoked_at is not None:
        return Revoked()
    return None if actor.role in MANAGERS else Forbidden("only an owner or an admin may do this")


def judge_join(
    newcomer: Newcomer, inviter: Member | None, uses_left: int, *, is_key_used: bool, is_name_taken: bool
) -> MeshError | None:
    """Say why an invite does not let somebody in who is no member yet."""
    if inviter is None or judge_manager(inviter) is not None:
        return InviteRefused("whoever signed it may not invite", reason="not_allowed")
    if uses_left <= 0:
        return InviteRefused("it was used as often as it may be", reason="used_up")
    if is_key_used:
        return InviteRefused("this key was used in the mesh before", reason="not_allowed")
    return NameTaken(f"another member is called {newcomer.name}") if is_name_taken else None


def judge_target(found: Member | None, role: Role | None) -> Member | NotFound:
    """Return whom to give this role, or with None revoke. Who was revoked has no role, and may be revoked again."""
    if found is None or (found.revoked_at is not None and role is not None):
        return NotFound("no member goes by this name or key")
    return found


def judge_member_change(actor: Member, target: Member, role: Role | None, owners: int) -> MeshError | None:
    """Say why the actor may not give the target this role, or with None revoke it; the mesh has so many owners."""
    if actor.revoked_at is not None:
        return Revoked()
    is_last = target.role is Role.OWNER and target.revoked_at is None and owners == 1
    if is_last and role is not Role.OWNER:
        return Forbidden("a mesh keeps its last owner: make somebody else an owner first", reason="last_owner")
    if actor.id == target.id and role in (None, Role.MEMBER):  # whoever wants to may leave, or step down
        return None
    if actor.role is not Role.OWNER and Role.OWNER in (target.role, role):
        return Forbidden("only an owner may do this to an owner, or make one")
    return judge_manager(actor)
