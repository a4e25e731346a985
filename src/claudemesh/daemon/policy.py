"""The daemon's own rules: what a destination's text means, and what is answered when an id already stands.

Same id, other body? The table is `kernel.outbox.ADMISSION`; here its verdict becomes an answer.
"""

from typing import Final, assert_never

import msgspec

from claudemesh.daemon.model import Destination, SendAsked, StandingRow, Submission
from claudemesh.kernel.admission import Busy, Conflict, Fresh, Replay, Standing
from claudemesh.kernel.errors import IdempotencyConflict
from claudemesh.kernel.fingerprint import Fingerprint, Kind, SendRequest, fingerprint_send, prefix
from claudemesh.kernel.outbox import ADMISSION, OutboxState

QUEUE_MARK: Final = "queue:"
TOPIC_MARK: Final = "#"
UNRESOLVED: Final = "?"  # stands before a name that no member has: no real ref begins with it


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller is told of its send: `status` is the word of the table."""

    http_status: int
    client_message_id: str
    status: str
    duplicate: bool = False
    broker_message_id: str | None = None
    history_id: int | None = None


def mark(to: str) -> Destination | None:
    """Read a destination that says itself what it is; None if it is a member's name or key."""
    if to.startswith(TOPIC_MARK):
        return Destination(Kind.TOPIC, to.removeprefix(TOPIC_MARK))
    if to.startswith(QUEUE_MARK):
        return Destination(Kind.QUEUE, to.removeprefix(QUEUE_MARK))
    return None


def unresolved(to: str) -> Destination:
    """Return a destination for a name that nobody has, so that its request has a fingerprint to compare."""
    return Destination(Kind.DM, UNRESOLVED + to)


def fingerprint(asked: SendAsked, destination: Destination) -> Fingerprint:
    return fingerprint_send(
        SendRequest(
            kind=destination.kind,
            ref=destination.ref,
            body=asked.body,
            reply_to=asked.reply_to,
            priority=asked.priority,
            meta=asked.meta,
        )
    )


def answer_fresh(submission: Submission) -> Answer:
    return Answer(http_status=202, client_message_id=submission.asked.client_message_id, status="queued")


def answer_standing(standing: StandingRow, submission: Submission) -> Answer:
    """Answer from what stands under the id; raise the conflict if it stands for something else."""
    presented = submission.fingerprint
    if standing.to_asked == submission.asked.to and standing.destination != submission.destination:
        # The name has come to mean somebody else since. A retry asks for what its first try asked for.
        presented = fingerprint(submission.asked, standing.destination)
    verdict = ADMISSION.judge(Standing(standing.state, standing.fingerprint), presented)
    client_message_id = submission.asked.client_message_id
    match verdict:
        case Busy(word):
            return Answer(http_status=202, client_message_id=client_message_id, status=word, duplicate=True)
        case Replay(word):
            return Answer(
                http_status=200,
                client_message_id=client_message_id,
                status=word,
                duplicate=True,
                broker_message_id=standing.broker_message_id,
                history_id=standing.history_id,
            )
        case Conflict(word):
            raise _conflict(word, standing, presented)
        case Fresh():
            raise AssertionError("something stands, so the id is not free")
        case _:
            assert_never(verdict)


def _conflict(word: str, standing: StandingRow, presented: Fingerprint) -> IdempotencyConflict:
    extras: dict[str, str | None] = {}
    is_same = standing.fingerprint == presented
    if standing.state is OutboxState.DONE:
        extras["broker_message_id"] = standing.broker_message_id
    if standing.state is OutboxState.DEAD and is_same:
        extras["reason"] = standing.last_error
    detail = (
        f"this id was used before and is {standing.state}; a new request needs a new id"
        if is_same
        else f"this id stands for another request, which is {standing.state}"
    )
    return IdempotencyConflict(detail, conflict=word, fingerprint_prefix=prefix(presented), **extras)
