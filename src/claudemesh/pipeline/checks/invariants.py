"""What is asked of a history: the tables it is asked of, the queries, and the form of what they find.

The queries are in the `.sql` files beside this one, and run unchanged on SQLite and on Spark: `inputs.sql` makes a
few plain tables out of the stores', the others each find what must not be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, NamedTuple

from claudemesh.pipeline.catalogue import BROKER, HUB, INBOX, LEDGER, OUTBOX, RELAY
from claudemesh.pipeline.shapes import Kind
from claudemesh.storage.sqlfile import load_queries

EVIDENCE: Final = ("what", "mesh", "id", "who", "detail")
COUNTED: Final = (
    "h",
    "sent",
    "stored",
    "accepted",
    "queued",
    "received",
    "delivery",
    "leased",
    "announced",
    "told",
    "step",
    "held",
    "receipted",
    "written",
    "relayed",
)


class Input(NamedTuple):
    """A table of a kind of store, and those of its columns that are looked at."""

    kind: Kind
    table: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.kind.name}_{self.table}"


_OF_HISTORY: Final = ("mesh_id", "history_id")
_OF_LEASE: Final = ("lease_owner", "lease_expires_at", "fencing_token")
_OF_WORKER: Final = ("step_id", "worker_id", "fencing_token")
_OF_KEY: Final = ("member_id", "session_pubkey")
_OF_ID: Final = ("sender_id", "client_message_id", "broker_message_id")

INPUTS: Final = (
    Input(BROKER, "client_message_dedupe", ("mesh_id", *_OF_ID, "request_fingerprint")),
    Input(BROKER, "message_history", (*_OF_HISTORY, *_OF_ID, "kind")),
    Input(BROKER, "topic_message", (*_OF_HISTORY, "topic_id")),
    Input(BROKER, "message_queue", (*_OF_HISTORY, "recipient_id", "queue_id")),
    Input(BROKER, "delivery_queue", (*_OF_HISTORY, "recipient_id")),
    Input(BROKER, "mention_index", _OF_HISTORY),
    Input(BROKER, "queue_lease", _OF_HISTORY),
    Input(BROKER, "delivery_event", ("id", *_OF_HISTORY, "recipient_id", "what")),
    Input(BROKER, "presence_event", ("id", "mesh_id", *_OF_KEY, "presence_uid", "what", "seq")),
    Input(BROKER, "tombstone", ("what", *_OF_HISTORY, *_OF_ID)),
    Input(BROKER, "body", (*_OF_HISTORY, "encoding", "body")),
    Input(BROKER, "mesh", ("id", "uid")),
    Input(BROKER, "member", ("id", "uid")),
    Input(
        OUTBOX,
        "outbox",
        (
            "seq",
            "id",
            "client_message_id",
            "request_fingerprint",
            "destination",
            "status",
            "broker_message_id",
            "history_id",
            "superseded_by",
        ),
    ),
    Input(INBOX, "inbox", ("seq", "sender_id", "client_message_id", "broker_message_id", "history_id", "topic")),
    Input(INBOX, "body", ("seq", "broker_message_id", "body")),
    Input(LEDGER, "cassette_messages", ("message_id", "run_id")),
    Input(LEDGER, "cassette_jobs", ("job_id", "message_id")),
    Input(LEDGER, "cassette_steps", ("step_id", "job_id", "status", *_OF_LEASE)),
    Input(LEDGER, "cassette_receipts", ("receipt_id", "job_id", "created_at", *_OF_WORKER)),
    Input(LEDGER, "cassette_requeues", ("requeue_id", *_OF_WORKER)),
    Input(LEDGER, "cassette_renewals", ("renewal_id", *_OF_WORKER)),
    Input(LEDGER, "cassette_chain", ("seq", "kind", "row_id")),
    Input(
        RELAY,
        "outbox",
        (
            "seq",
            "id",
            "key",
            "method",
            "destination",
            "route_class",
            "if_match",
            "expected_updated_at",
            "expected_status",
            "source_agent",
            "status",
            "last_error",
        ),
    ),
    Input(RELAY, "envelope_event", ("seq", "envelope", "became")),
    Input(
        HUB,
        "hub_write",
        (
            "seq",
            "at",
            "kind",
            "entity_id",
            "base_revision",
            "revision",
            "idempotency_key",
            "source_agent",
            "expected_revisions",
            "expected_updated_at",
            "expected_status",
            "status",
            "deleted",
        ),
    ),
    Input(HUB, "hub_state", ("name",)),
    Input(OUTBOX, "owner", ("mesh", "owner")),
    Input(INBOX, "owner", ("mesh", "owner")),
)

_HERE: Final = files(__package__)
_VIEWS: Final = load_queries(_HERE / "inputs.sql")

VIEWS: Final[Mapping[str, str]] = {name: _VIEWS[name] for name in _VIEWS.names()}
INVARIANTS: Final[Mapping[str, str]] = {
    name: queries[name]
    for queries in (load_queries(_HERE / f"{part}.sql") for part in ("sends", "deliveries", "turns", "relays"))
    for name in queries.names()
}


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    evidence: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    checked: Mapping[str, int]  # how much was looked at
    violations: list[Violation]


def render_search() -> str:
    """Return one statement that asks for all violations: an engine that reads its inputs once does so for all."""
    asked = (f"SELECT '{name}' AS invariant, q.* FROM (\n{sql}\n) AS q" for name, sql in INVARIANTS.items())  # noqa: S608 - our own
    return "\nUNION ALL\n".join(asked)


def render_count() -> str:
    return "\nUNION ALL\n".join(f"SELECT '{name}', count(*) FROM {name}" for name in COUNTED)  # noqa: S608 - our own


def read_violations(rows: Iterable[tuple[object, ...]]) -> list[Violation]:
    """Make violations of rows, in an order that no engine decides."""
    texts = sorted(tuple("" if value is None else str(value) for value in row) for row in rows)
    return [Violation(name, dict(zip(EVIDENCE, evidence, strict=True))) for name, *evidence in texts]
