"""What the lake holds: for every kind of store its tables, their columns, how they grow and what goes from them.

A table is named as in the store that it is copied from. An append-only table is copied row by row, each row once;
a small one that changes is copied whole with every cut. To add a store: a kind here, in `sources/` a file with what
cannot be said here (how to tell who it is, how far it has come and what it counts), and functions over its frames.
The words that a kind is declared with are in `shapes`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from claudemesh.pipeline.shapes import TOMBSTONE, Grave, Growth, Kind, Series, Table, Type, typed, whole

# --- the broker's ----------------------------------------------------------------------------------

_HISTORY: Final = Series("history", "history_id", within="mesh_id")
_EVENTS: Final = Series("delivery_event", "id", is_journal=True)
_LEASES: Final = Series("presence_event", "id", is_journal=True)
_TOMBSTONES: Final = Series(TOMBSTONE, "id", is_journal=True)
_MESSAGE: Final = Grave("message", ("mesh_id", "history_id"))
_ID: Final = Grave("dedupe", ("broker_message_id",))  # not by the id itself: it may be in use again


def _of_message(name: str, /, *key: str, is_body: bool = False, **types: Type) -> Table:
    """Return a table whose rows come and go with their message."""
    return Table(
        name=name,
        columns=typed(mesh_id="bigint", history_id="bigint", **types),
        series=_HISTORY,
        key=("mesh_id", "history_id", *key),
        grave=_MESSAGE,
        is_body=is_body,
    )


BROKER: Final = Kind(
    name="broker",
    marker="message_history",
    files="broker.db",
    tables=(
        Table(
            name="client_message_dedupe",  # accepted ids
            columns=typed(
                sender_id="bigint",
                client_message_id="string",
                mesh_id="bigint",
                broker_message_id="string",
                request_fingerprint="binary",
                first_seen_at="bigint",
                expires_at="bigint",
            ),
            series=_HISTORY,
            key=("broker_message_id",),
            grave=_ID,
        ),
        _of_message(
            "message_history",
            broker_message_id="string",
            sender_id="bigint",
            client_message_id="string",
            kind="string",
            accepted_at="bigint",
            sender_seq="bigint",
        ),
        _of_message("topic_message", topic_id="bigint", priority="string", encoding="string", body_bytes="bigint"),
        _of_message(
            "message_queue",
            recipient_id="bigint",
            queue_id="bigint",
            priority="string",
            encoding="string",
            body_bytes="bigint",
        ),
        _of_message("delivery_queue", "recipient_id", recipient_id="bigint"),
        _of_message("mention_index", "mentioned", mentioned="string"),
        _of_message("queue_lease", queue_id="bigint"),
        Table(
            name="delivery_event",
            columns=typed(
                id="bigint",
                mesh_id="bigint",
                history_id="bigint",
                recipient_id="bigint",
                what="string",
                at="bigint",
                attempts="bigint",
                reason="string",
            ),
            series=_EVENTS,
            key=("id",),
            grave=_MESSAGE,
        ),
        Table(
            name="presence_event",  # all that leases were; what is swept after a long time leaves no tombstone
            columns=typed(
                id="bigint",
                mesh_id="bigint",
                member_id="bigint",
                session_pubkey="string",
                presence_uid="string",
                what="string",
                at="bigint",
                because="string",
                seq="bigint",
            ),
            series=_LEASES,
            key=("id",),
        ),
        Table(
            name=TOMBSTONE,
            columns=typed(
                id="bigint",
                what="string",
                mesh_id="bigint",
                sender_id="bigint",
                client_message_id="string",
                broker_message_id="string",
                history_id="bigint",
                deleted_at="bigint",
            ),
            series=_TOMBSTONES,
            key=("id",),
        ),
        _of_message("body", is_body=True, encoding="string", body="string"),
        whole(
            "retired_id",  # ids that were given up before they were accepted
            sender_id="bigint",
            client_message_id="string",
            mesh_id="bigint",
            first_seen_at="bigint",
            expires_at="bigint",
        ),
        whole("mesh", id="bigint", uid="string", slug="string", sends_per_window="bigint", created_at="bigint"),
        whole(
            "member",
            id="bigint",
            uid="string",
            mesh_id="bigint",
            name="string",
            pubkey="string",
            role="string",
            joined_at="bigint",
            revoked_at="bigint",
        ),
        whole("topic", id="bigint", mesh_id="bigint", name="string"),
        whole("queue", id="bigint", mesh_id="bigint", name="string"),
        whole("history_counter", mesh_id="bigint", history_id="bigint"),
        whole("history_jump", mesh_id="bigint", after_history_id="bigint", skipped="bigint", epoch="bigint"),
    ),
)

# --- a daemon's ------------------------------------------------------------------------------------

# Whose store it is, by ULIDs; no row, if nobody says.
OWNER: Final = whole("owner", mesh="string", owner="string")

_SENDS: Final = Table(
    name="outbox",
    columns=typed(
        seq="bigint",
        id="string",
        client_message_id="string",
        request_fingerprint="binary",
        to_asked="string",
        destination="string",
        enqueued_at="bigint",
        attempts="bigint",
        status="string",
        last_error="string",
        delivered_at="bigint",
        broker_message_id="string",
        history_id="bigint",
        aborted_at="bigint",
        superseded_by="string",
    ),
    series=Series("outbox", "seq"),
    key=("seq",),
)

OUTBOX: Final = Kind(
    name="outbox",
    marker="outbox",
    unless="envelope_event",
    files="daemon/*/outbox.db",
    tables=(
        _SENDS,
        Table(name="outbox_open", columns=_SENDS.columns, growth=Growth.WHOLE, open_of="outbox"),
        OWNER,
    ),
)

_RECEIVED: Final = Series("event", "seq")


def _of_inbox(name: str, /, *, apart_by: str, is_body: bool = False, **types: Type) -> Table:
    """Return a table by numbers that a file which came back from a backup gives to other rows again."""
    columns = typed(seq="bigint", **types)
    return Table(name=name, columns=columns, series=_RECEIVED, key=("seq", apart_by), is_body=is_body)


INBOX: Final = Kind(
    name="inbox",
    marker="inbox",
    files="daemon/*/inbox.db",
    tables=(
        _of_inbox(
            "inbox",
            apart_by="broker_message_id",
            sender_id="string",
            client_message_id="string",
            broker_message_id="string",
            history_id="bigint",
            sender_pubkey="string",
            sender_name="string",
            topic="string",
            priority="string",
            accepted_at="bigint",
            received_at="bigint",
        ),
        _of_inbox("event", apart_by="at", type="string", at="bigint"),
        _of_inbox(
            "body",
            apart_by="broker_message_id",
            is_body=True,
            broker_message_id="string",
            body="string",
            meta="string",
            reply_to="string",
        ),
        OWNER,
    ),
    forgets=True,
)

# --- a ledger --------------------------------------------------------------------------------------


def _of_ledger(
    name: str, columns: Mapping[str, Type], *, series: str | None = None, is_body: bool = False
) -> Table:
    """Return a table by its rowids: the ledger's law keeps them dense, and in the order of commits."""
    numbered = {**typed(rowid="bigint"), **columns}
    return Table(
        name=name, columns=numbered, series=Series(series or name, "rowid"), key=("rowid",), is_body=is_body
    )


_STEPS: Final = _of_ledger(
    "cassette_steps",
    typed(
        step_id="string",
        job_id="string",
        ordinal="bigint",
        status="string",
        lease_owner="string",
        lease_expires_at="string",
        fencing_token="bigint",  # noqa: S106 - a column
        created_at="string",
        claimed_at="string",  # of the last claim; nobody notes it in a file of version 1
    ),
)

# Of a record of what happened to a lease; a file of version 1 has none.
_LEASE: Final = typed(
    step_id="string",
    worker_id="string",
    fencing_token="bigint",  # noqa: S106 - a column
    lease_expires_at="string",
    created_at="string",
)

LEDGER: Final = Kind(
    name="ledger",
    marker="cassette_messages",
    files="ledger.db",
    tables=(
        _of_ledger(
            "cassette_messages",
            typed(
                message_id="string",
                run_id="string",
                source="string",
                idempotency_key="string",
                created_at="string",
            ),
        ),
        _of_ledger(
            "cassette_jobs",
            typed(job_id="string", message_id="string", intent="string", ordinal="bigint", created_at="string"),
        ),
        _STEPS,
        Table(name="cassette_steps_open", columns=_STEPS.columns, growth=Growth.WHOLE, open_of="cassette_steps"),
        _of_ledger(
            "cassette_receipts",
            typed(
                receipt_id="string",
                step_id="string",
                job_id="string",
                worker_id="string",
                fencing_token="bigint",  # noqa: S106 - a column
                outcome="string",
                created_at="string",
            ),
        ),
        _of_ledger("cassette_requeues", typed(requeue_id="string") | _LEASE),
        _of_ledger("cassette_renewals", typed(renewal_id="string") | _LEASE),
        Table(
            name="cassette_chain",
            columns=typed(seq="bigint", kind="string", row_id="string", hash="string"),
            series=Series("cassette_chain", "seq"),
            key=("seq",),
        ),
        _of_ledger("message_body", typed(payload_json="string"), series="cassette_messages", is_body=True),
        _of_ledger("step_body", typed(payload_json="string"), series="cassette_steps", is_body=True),
        _of_ledger("receipt_body", typed(receipt_json="string"), series="cassette_receipts", is_body=True),
    ),
)

# --- a relay's -------------------------------------------------------------------------------------

_SEQ: Final = Series("outbox", "seq")

_ENVELOPES: Final = Table(
    name="outbox",
    columns=typed(
        seq="bigint",
        id="string",
        client_message_id="string",  # the caller's key
        key="string",  # under which the upstream knows it; of one that was emptied nobody knows it any more
        request_fingerprint="binary",
        method="string",
        path="string",
        destination="string",
        route_class="string",
        is_status_write="bigint",
        if_match="string",
        expected_updated_at="string",
        expected_status="string",
        source_agent="string",
        source_host="string",
        body_bytes="bigint",
        enqueued_at="bigint",
        attempts="bigint",
        status="string",
        last_error="string",
        delivered_at="bigint",
        answer_status="bigint",
        aborted_at="bigint",
        aborted_by="string",
        superseded_by="string",
    ),
    series=_SEQ,
    key=("seq",),
)

# What is sent changes until it is settled, and so does what is known of the other side.
_SENT: Final = Table(
    name="envelope_body",
    columns=typed(seq="bigint", body="string", theirs="string", answer="string"),
    series=_SEQ,
    key=("seq",),
    is_body=True,
)

RELAY: Final = Kind(
    name="relay",
    marker="envelope_event",
    files="edge/outbox.db",
    tables=(
        _ENVELOPES,
        Table(name="outbox_open", columns=_ENVELOPES.columns, growth=Growth.WHOLE, open_of="outbox"),
        Table(
            name="envelope_event",
            columns=typed(
                seq="bigint",
                envelope="bigint",
                at="bigint",
                was="string",
                became="string",
                error="string",
                by="string",
                superseded_by="string",
            ),
            series=Series("envelope_event", "seq"),
            key=("seq",),
        ),
        whole(
            "outage",
            id="string",
            began_at="bigint",
            online_at="bigint",
            recovered_at="bigint",
            first_seq="bigint",
        ),
        _SENT,
        Table(
            name="envelope_body_open",
            columns=_SENT.columns,
            growth=Growth.WHOLE,
            is_body=True,
            open_of="envelope_body",
        ),
    ),
)

# --- a hub's ---------------------------------------------------------------------------------------

_WRITES: Final = Series("hub_write", "seq")

HUB: Final = Kind(
    name="hub",
    marker="hub_write",
    files="hub.db",
    tables=(
        Table(
            name="hub_write",  # all that rows ever were: how they stand is its fold, held against the hub's counts
            columns=typed(
                seq="bigint",
                at="bigint",
                kind="string",
                entity_id="string",
                base_revision="bigint",
                revision="bigint",
                method="string",
                path="string",
                idempotency_key="string",
                source_host="string",
                source_agent="string",
                expected_revisions="string",  # JSON
                expected_updated_at="bigint",
                expected_status="string",
                status="string",  # after the write
                fields_bytes="bigint",
                deleted="bigint",
            ),
            series=_WRITES,
            key=("seq",),
        ),
        Table(
            name="write_body",
            columns=typed(seq="bigint", fields="string"),
            series=_WRITES,
            key=("seq",),
            is_body=True,
        ),
        whole("hub_state", name="string", value="string"),  # says that there is a hub, however little it holds
    ),
)

# In the order in which messages and writes pass them: what one handed on before it was read, is in the next.
KINDS: Final = {kind.name: kind for kind in (OUTBOX, BROKER, INBOX, LEDGER, RELAY, HUB)}


def kind_of(tables: Iterable[str]) -> Kind | None:
    """Say which kind of store has these tables."""
    named = frozenset(tables)
    found = [kind for kind in KINDS.values() if kind.marker in named and kind.unless not in named]
    return found[0] if len(found) == 1 else None
