"""The one exception tree. What went wrong is a class; how it is shown is somebody else's business.

MeshError
├── RequestError              the caller can mend it
│   ├── InvalidRequest
│   │   ├── InvalidClientMessageId
│   │   ├── TokenInUrl
│   │   └── JsonOnly
│   ├── Unauthenticated
│   │   ├── MissingToken
│   │   └── BadToken
│   ├── Forbidden
│   │   ├── BadHost
│   │   ├── BadOrigin
│   │   ├── NotSubscribed
│   │   ├── Revoked
│   │   └── InviteRefused             why: expired, used_up, not_allowed, …
│   ├── NotFound
│   │   ├── UnknownDestination        the daemon's directory has no such member
│   │   └── DestinationNotFound       the broker has no such member, topic or queue
│   ├── MethodNotAllowed
│   ├── NameTaken
│   ├── RequestTimeout
│   ├── PayloadTooLarge
│   ├── RateLimited
│   │   ├── DaemonBusy
│   │   └── TooManyStreams
│   ├── PredecessorDeferred   an earlier message to the same destination has to go first
│   ├── CursorExpired
│   ├── CursorAhead
│   └── IdempotencyConflict   the same id stands for something else, or can never be used again
│       └── IdRetired
├── StateError                the thing is not in a state that allows this
│   ├── TransitionRefused
│   └── StaleClaim
├── LeaseError
│   ├── LeaseHeld             by whom, until when
│   └── LeaseLost
├── MessageCassetteError      the ledger refused, and nothing changed
│   ├── CassetteInvalid       what was asked cannot be written down
│   ├── CassetteConflict      the same key stands for another message
│   ├── NoPendingSteps
│   ├── CassetteAltered       the schema is not the law's: no write while that lasts
│   └── CassetteUnavailable   busy, full or failing: a write may or may not have happened
├── DependencyError           something we need did not answer
│   ├── StoreUnavailable      the outcome is unknown: ask again with the same id
│   ├── StoreFull             nothing was written
│   ├── LimiterUnavailable    nobody can say what is left of the budget, and nothing was written
│   ├── BrokerUnreachable
│   ├── ConnectionLost        after the request went out: the outcome is unknown
│   └── DeadlineExceeded
├── IntegrityError            an invariant spoke: never retried, always loud
│   └── StoreCorrupt
└── ConfigError               refuses to start, with the reason
    ├── SchemaTooNew
    ├── MaxAgeAboveWindow
    ├── AlreadyRunning
    ├── HostMismatch          this state directory was made on another host
    ├── HostFileRefused       a file of an agent host is not one that we may change, and was not
    ├── NoDaemon              nobody listens where the daemon should
    └── NoSpark               no Java, or one that does not start

Writes over HTTP, at the hub, at the relay and under the middleware, have branches of their own: `write_errors.py`.

A class carries what never varies: `code` (stable, for programs), `title` (for people), `status` (a hint to
HTTP that costs no import of HTTP) and `retry`, which tells a caller what a second try may look like:

    no       the same request will fail the same way
    same_id  the outcome is unknown or the cause may pass: try again under the SAME id, never a fresh one
    after    as same_id, but not before `retry_after_ms`

An instance adds `detail` and `extras`, named values that every rendering carries along.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

Retry = Literal["no", "same_id", "after"]
Extra = str | int | bool | None | list[str]


class MeshError(Exception):
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something failed inside claudemesh"
    status: ClassVar[int] = 500
    retry: ClassVar[Retry] = "same_id"

    def __init__(self, detail: str = "", /, **extras: Extra) -> None:
        super().__init__(detail or self.title)
        self.detail = detail
        self.extras = extras

    @classmethod
    def family(cls) -> Iterator[type["MeshError"]]:
        """Yield this class and every one below it, each before its children."""
        yield cls
        for child in cls.__subclasses__():
            yield from child.family()


# --- the caller can mend it ------------------------------------------------------------------------


class RequestError(MeshError):
    code = "request_refused"
    title = "The request was refused"
    status = 400
    retry: ClassVar[Retry] = "no"


class InvalidRequest(RequestError):
    code = "invalid_request"
    title = "The request is not valid"


class InvalidClientMessageId(InvalidRequest):
    code = "invalid_client_message_id"
    title = "The client message id is not 1 to 128 visible ASCII characters"


class TokenInUrl(InvalidRequest):
    code = "token_in_url"
    title = "A token in a URL ends up in logs: send it in the Authorization header, and make a new one"


class JsonOnly(InvalidRequest):
    code = "json_only"
    title = "The body must be sent as application/json"
    status = 415


class Unauthenticated(RequestError):
    code = "unauthenticated"
    title = "The caller did not prove who it is"
    status = 401


class MissingToken(Unauthenticated):
    code = "missing_token"
    title = "The request carries no bearer token"


class BadToken(Unauthenticated):
    code = "bad_token"
    title = "The bearer token is not the one in force"


class Forbidden(RequestError):
    code = "forbidden"
    title = "The caller may not do this"
    status = 403


class BadHost(Forbidden):
    code = "bad_host"
    title = "The Host header is not a loopback name of this daemon"


class BadOrigin(Forbidden):
    code = "bad_origin"
    title = "Requests of other origins are not served"


class NotSubscribed(Forbidden):
    code = "not_subscribed"
    title = "Only subscribers post to a topic"


class Revoked(Forbidden):
    code = "revoked"
    title = "This member was revoked"


class InviteRefused(Forbidden):
    """Carries `reason`: expired, used_up, bad_signature, not_allowed or unknown_mesh."""

    code = "invite_refused"
    title = "This invite does not let anybody in, or not any more"


class NotFound(RequestError):
    code = "not_found"
    title = "There is no such thing"
    status = 404


class UnknownDestination(NotFound):
    code = "unknown_destination"
    title = "No member of the mesh goes by this name or key"


class DestinationNotFound(NotFound):
    code = "destination_not_found"
    title = "The mesh has no such member, topic or queue"


class MethodNotAllowed(RequestError):
    code = "method_not_allowed"
    title = "This address does not take this method"
    status = 405


class NameTaken(RequestError):
    code = "name_taken"
    title = "Another member of the mesh goes by this name"
    status = 409


class RequestTimeout(RequestError):
    code = "request_timeout"
    title = "The request did not arrive in time"
    status = 408
    retry: ClassVar[Retry] = "same_id"


class PayloadTooLarge(RequestError):
    code = "payload_too_large"
    title = "The payload is larger than the limit"
    status = 413


class RateLimited(RequestError):
    code = "rate_limited"
    title = "Too many requests for now"
    status = 429
    retry: ClassVar[Retry] = "after"


class DaemonBusy(RateLimited):
    code = "daemon_busy"
    title = "As many requests as the daemon takes are under way"


class TooManyStreams(RateLimited):
    code = "too_many_streams"
    title = "As many event streams as the daemon serves are open"


class TooManySessions(RateLimited):
    code = "too_many_sessions"
    title = "As many sessions as one member may have are there"


class PredecessorDeferred(RequestError):
    code = "predecessor_deferred"
    title = "An earlier message to the same destination has to go first"
    status = 425
    retry: ClassVar[Retry] = "same_id"


class CursorExpired(RequestError):
    code = "cursor_expired"
    title = "What the cursor points at is no longer kept: begin anew"
    status = 410


class CursorAhead(RequestError):
    code = "cursor_ahead"
    title = "The cursor points beyond what this store has written: it belongs to another one"
    status = 409


class IdempotencyConflict(RequestError):
    """Carries the `conflict` word of the admission table and the prefix of the presented fingerprint."""

    code = "idempotency_key_reused"
    title = "This id already stands for another request, or was given up"
    status = 409

    def __init__(self, detail: str = "", /, *, conflict: str, fingerprint_prefix: str, **extras: Extra) -> None:
        super().__init__(detail, conflict=conflict, fingerprint_prefix=fingerprint_prefix, **extras)
        self.conflict = conflict
        self.fingerprint_prefix = fingerprint_prefix


class IdRetired(IdempotencyConflict):
    code = "id_retired"
    title = "This id was given up by its sender before it was accepted"


# --- not in a state that allows this ---------------------------------------------------------------


class StateError(MeshError):
    code = "state_refused"
    title = "The current state does not allow this"
    status = 409
    retry: ClassVar[Retry] = "no"


class TransitionRefused(StateError):
    code = "transition_refused"
    title = "This event cannot happen in this state"


class StaleClaim(StateError):
    code = "stale_claim"
    title = "Somebody else moved this row first"


# --- leases ----------------------------------------------------------------------------------------


class LeaseError(MeshError):
    code = "lease_refused"
    title = "The lease does not allow this"
    status = 409
    retry: ClassVar[Retry] = "no"


class LeaseHeld(LeaseError):
    code = "lease_held"
    title = "Another owner holds the lease"
    retry: ClassVar[Retry] = "after"


class LeaseLost(LeaseError):
    code = "lease_lost"
    title = "The lease is no longer yours"


# --- the ledger ------------------------------------------------------------------------------------


class MessageCassetteError(MeshError):
    """The ledger's one exception; `detail` begins with the words of the rule that it keeps."""

    code = "ledger_refused"
    title = "The ledger refused, and nothing changed"
    status = 422
    retry: ClassVar[Retry] = "no"


class CassetteInvalid(MessageCassetteError):
    code = "ledger_invalid"
    title = "The ledger cannot take this"
    status = 400


class CassetteConflict(MessageCassetteError):
    code = "ledger_conflict"
    title = "The key stands for another message of the run"
    status = 409


class NoPendingSteps(MessageCassetteError):
    code = "no_pending_steps"
    title = "The run has no step to claim"
    status = 404


class CassetteAltered(MessageCassetteError):
    code = "ledger_altered"
    title = "The ledger's schema is not the law's, and nothing is written while that lasts"
    status = 500


class CassetteUnavailable(MessageCassetteError):
    code = "ledger_unavailable"
    title = "The ledger's file did not confirm the write, which may or may not have happened"
    status = 503
    retry: ClassVar[Retry] = "same_id"


# --- something we need did not answer --------------------------------------------------------------


class DependencyError(MeshError):
    code = "dependency_failed"
    title = "Something that is needed did not answer"
    status = 503
    retry: ClassVar[Retry] = "same_id"


class StoreUnavailable(DependencyError):
    code = "store_unavailable"
    title = "The store did not confirm the write, which may or may not have happened"


class StoreFull(DependencyError):
    code = "insufficient_storage"
    title = "There is no room left to store this, and nothing was written"
    status = 507


class LimiterUnavailable(DependencyError):
    code = "limiter_unavailable"
    title = "What is left of the budget cannot be told now, and nothing was stored"
    retry: ClassVar[Retry] = "after"


class BrokerUnreachable(DependencyError):
    code = "broker_unreachable"
    title = "The broker cannot be reached"


class ConnectionLost(DependencyError):
    code = "connection_lost"
    title = "The connection ended before the answer came, so the outcome is unknown"


class DeadlineExceeded(DependencyError):
    code = "deadline_exceeded"
    title = "The answer did not come in time"
    status = 504


# --- an invariant spoke ----------------------------------------------------------------------------


class IntegrityError(MeshError):
    code = "integrity_violated"
    title = "Stored data breaks an invariant"
    status = 500
    retry: ClassVar[Retry] = "no"


class StoreCorrupt(IntegrityError):
    code = "store_corrupt"
    title = "The store's file is damaged or is not ours"


# --- refuses to start ------------------------------------------------------------------------------


class ConfigError(MeshError):
    code = "config_invalid"
    title = "The configuration does not allow a start"
    status = 500
    retry: ClassVar[Retry] = "no"


class SchemaTooNew(ConfigError):
    code = "schema_too_new"
    title = "The file was written by a newer program"


class MaxAgeAboveWindow(ConfigError):
    code = "outbox_max_age_above_dedupe_window"
    title = "A row could be sent after the broker has forgotten its id"


class AlreadyRunning(ConfigError):
    code = "already_running"
    title = "Another process already does this, and holds the lock"


class HostMismatch(ConfigError):
    code = "host_mismatch"
    title = "This state directory was made on another host"


class HostFileRefused(ConfigError):
    code = "host_file_refused"
    title = "A file of the agent host was left as it is"


class NoDaemon(ConfigError):
    code = "no_daemon"
    title = "No daemon listens here"
    status = 503


class NoSpark(ConfigError):
    code = "no_spark"
    title = "Spark cannot be started"
