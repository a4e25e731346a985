"""What can go wrong with an HTTP write, at the hub, at the relay or under the middleware.

Branches of the one tree in `errors.py`:

InvalidRequest
├── BadHeader             a header, path or id that no server should be sent
├── TooDeep
├── Unstorable            JSON that not every store could keep
└── BadIdempotencyKey
Forbidden
└── TargetNotAllowed      the relay has one upstream, and goes nowhere else
IdempotencyConflict
├── KeyReused             the key stands for another request, or was given up
└── AnswerNotKept         the write was done, and its answer was too large or too secret to keep
StateError
├── KeyInProgress         the same write is under way elsewhere
├── RevisionConflict      the row is not what the caller expected it to be
└── StaleVersion          the same, told to an If-Match
LeaseLost
└── MarkLost              another worker took the key over: the write is rolled back
DependencyError
├── NotQueueable          the upstream is away, and this write cannot wait for it: nothing was sent
├── OutcomeUnknown        the upstream may have it, and nobody can ask again
└── BadGateway            the upstream's answer is not one that may be passed on
    ├── RedirectRefused
    └── AnswerTooLarge
"""

from typing import ClassVar

from claudemesh.kernel.errors import (
    DependencyError,
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    LeaseLost,
    Retry,
    StateError,
)


class BadHeader(InvalidRequest):
    code = "bad_header"
    title = "A header, path or id holds what may not be passed on"


class TooDeep(InvalidRequest):
    code = "too_deep"
    title = "The body is nested too deeply"


class Unstorable(InvalidRequest):
    code = "unstorable"
    title = "The body holds what not every store can keep"
    status = 422


class BadIdempotencyKey(InvalidRequest):
    code = "bad_idempotency_key"
    title = "The Idempotency-Key is missing, or is not 1 to 255 visible ASCII characters, quoted or bare"


class TargetNotAllowed(Forbidden):
    code = "target_not_allowed"
    title = "The relay contacts its one upstream and nobody else"


class KeyReused(IdempotencyConflict):
    code = "key_reused"
    title = "This Idempotency-Key already stands for another request, or was given up"


class AnswerNotKept(IdempotencyConflict):
    """Carries `status_code`, the status of the first answer."""

    code = "answer_not_kept"
    title = "This write was done before, and its answer was not kept"


class KeyInProgress(StateError):
    code = "key_in_progress"
    title = "The same write is under way: ask again in a moment"
    retry: ClassVar[Retry] = "after"


class RevisionConflict(StateError):
    code = "revision_conflict"
    title = "The row is no longer what this write expected it to be, and was left as it is"


class StaleVersion(StateError):
    code = "stale_version"
    title = "The row has another revision than If-Match names, and was left as it is"
    status = 412


class MarkLost(LeaseLost):
    code = "mark_lost"
    title = "Another worker took this key over, and the write was rolled back"
    retry: ClassVar[Retry] = "after"


class NotQueueable(DependencyError):
    """Carries `reason`: online_only, needs_expectation, contains_secret, too_large, entity_has_queued_writes."""

    code = "not_queueable"
    title = "This write can neither go to the upstream now nor wait for it: nothing was sent"
    retry: ClassVar[Retry] = "after"


class OutcomeUnknown(DependencyError):
    code = "outcome_unknown"
    title = "The upstream may have taken this write, and it cannot be asked again"
    status = 504


class BadGateway(DependencyError):
    code = "bad_gateway"
    title = "The upstream's answer cannot be passed on"
    status = 502


class RedirectRefused(BadGateway):
    code = "redirect_refused"
    title = "The upstream answered with a redirect, which is not followed"


class AnswerTooLarge(BadGateway):
    code = "answer_too_large"
    title = "The upstream's answer is larger than the limit"
