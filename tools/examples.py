"""A document as an example: what a type requires, filled in by the names of its fields."""

from typing import Any

from msgspec import inspect

from claudemesh.cli.documents import Printed

KEY = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
ULID = "01JYE0T3M5Q8R2S4V6W7X8Y9ZA"
AT = "2026-01-31T12:00:00.000Z"
AT_MS = 1_769_860_800_000
ENDPOINT = "http://127.0.0.1:7450"

# What stands in a field of this name, in whatever document. A name with a dot is of one type only.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("broker_key", "from", "member_pubkey", "pubkey", "session_pubkey"), KEY),
    **dict.fromkeys(("broker_message_id", "cursor", "id", "invite_id", "job_id", "ledger_id", "member_id"), ULID),
    **dict.fromkeys(("mesh_id", "message_id", "receipt_id", "requeue_id", "step_id"), ULID),
    **dict.fromkeys(("accepted_at", "at", "created_at", "enqueued_at", "expires_at", "first_seen"), AT),
    **dict.fromkeys(("last_seen", "lease_expires_at", "next_attempt_at", "posted_at", "received_at"), AT),
    "revoked_at": AT,
    **dict.fromkeys(("broker_url", "hub", "store", "upstream", "url"), ENDPOINT),
    **dict.fromkeys(("at_ms", "Invited.expires_at", "Happened.at", "EnvelopeSeen.created_at"), AT_MS),
    **dict.fromkeys(("EnvelopePrinted.created_at", "ExportedEnvelope.created_at"), AT_MS),
    **dict.fromkeys(("EnvelopeSeen.next_attempt_at", "EnvelopePrinted.next_attempt_at", "updated_at"), AT_MS),
    **dict.fromkeys(("connected", "created", "left", "ok", "outbox_usable", "reached", "running", "stopped"), True),
    **dict.fromkeys(("told_broker", "upstream_reachable", "was_subscribed", "is_current"), True),
    **{name: [] for name in ("issues", "mismatches", "ancestors", "why")},
    **{name: {} for name in ("lag", "counts", "left_out", "meta")},
    **dict.fromkeys(("answer", "last_error", "next_after", "next_cursor", "since", "theirs", "topic"), None),
    **dict.fromkeys(("aborted_at", "aborted_by", "ci", "container", "home", "read_at", "reply_to_id"), None),
    **dict.fromkeys(("acked_at", "cancelled_by", "entity", "runtime_dir", "superseded_by", "to_session"), None),
    **dict.fromkeys(("by", "error", "successor", "was", "Trace.at", "Health.session_pubkey"), None),
    **dict.fromkeys(("violations", "dead", "inflight", "pending", "blocked", "conflicts", "buried", "refused"), 0),
    **dict.fromkeys(("dead_letters", "gone", "oldest_pending_age_s", "queue_depth", "lag_ms"), 0),
    **{name: [] for name in ("changed", "queued", "failed")},
    "Configuration.home": "/srv/mesh",
    "DaemonStatus.session_pubkey": None,
    "ListedStep.outcome": None,
    "ListedStep.receipt_id": None,
    "about": "no acknowledged send was lost",
    "agent": "builder",
    "applied": ["disk.reserved_bytes"],
    "attempts": 1,
    "became": "queued",
    "body": "the build is green",
    "caller": "127.0.0.1",
    "client_message_id": "build-42",
    "code": "eyJicm9rZXJfdXJsIjoi…",
    "completed_at": None,
    "connections": "prefer_newest",
    "daemon_version": "0.1.0",
    "broker_version": "0.1.0",
    "destination": f"dm:{KEY}",
    "detail": "3 rows on the disk",
    "direction": "sent",
    "evidence": "outbox row 01JYE0T3M5Q8R2S4V6W7X8Y9ZA",
    "file": "/srv/mesh/daemon/demo/config.toml",
    "fingerprint": "9f86d081884c7d65",
    "fingerprint_prefix": "9f86d081884c7d65",
    "from_name": "alice",
    "hash": "9f86d081884c7d65",
    "html": "/srv/mesh/lake/gold/report/cut=1/report.html",
    "invariant": "acknowledged_is_stored",
    "job": "orphans",
    "kept_at": "/srv/mesh/left/demo-1769860800000",
    "key": "close-7",
    "idempotency_key": "close-7",
    "kind": "broker",
    "Head.kind": "claudemesh-ledger-head-1",
    "Mended.kind": "tasks",
    "lease_owner": "worker-1",
    "lease_ttl_ms": 300_000,
    "lines": [{"event": "daemon.started", "level": "info"}],
    "link": "connected",
    "made_of": ["machine-id", "mac"],
    "member": "alice",
    "mesh": "demo",
    "meshes": ["demo"],
    "method": "POST",
    "mine": {"status": "done"},
    "missing": ["history"],
    "name": "alice",
    "needs_restart": [],
    "outcome": "SUCCESS",
    "out": "/srv/mesh/lake/gold/report/cut=1/report.json",
    "path": "/progress/",
    "payload": {"intent": "build"},
    "pid": 4711,
    "place": 7,
    "priority": "next",
    "programs": ["claudemesh", "cortex", "statehub", "statehub-edge"],
    "repo": "/srv/code",
    "request": "PATCH /tasks/1",
    "request_hash": "9f86d081884c7d65",
    "role": "owner",
    "route_class": "replace",
    "run_id": "release-7",
    "script": "…",
    "seconds": 4.2,
    "sender": "alice",
    "sends_per_window": 6000,
    "shell": "bash",
    "signature": "5f1b…",
    "slug": "demo",
    "socket": "/srv/mesh/daemon/demo/sock",
    "source": "inbox-demo",
    "source_agent": "builder",
    "source_host": "laptop",
    "state": "queued",
    "status": "queued",
    "ShownRow.status": "pending",
    "Decision.status": "aborted",
    "Settled.state": "acted",
    "OutboxStatus.outbox": "there",
    "TokenRotated.file": "/srv/mesh/daemon/demo/local_token",
    "ExportedTo.file": "/srv/mesh/outbox.jsonl",
    "ExportedEnvelope.envelope": {
        "method": "PATCH",
        "path": "/tasks/1",
        "key": "close-7",
        "route_class": "replace",
    },
    "CopiedStore.store": "sqlite:////srv/mesh/broker.db",
    "Figures.store": "sqlite:////srv/mesh/broker.db",
    "intent": "build",
    "nothing_waits": True,
    "outage_over": True,
    "UsedKey.state": "done",
    "UsedKey.status": 201,
    "ListedStep.status": "PENDING",
    "ListedStep.lease_expires_at": None,
    "ListedStep.lease_owner": None,
    "ShownPeer.status": "online",
    "Problem.status": 409,
    "Problem.code": "idempotency_key_reused",
    "Problem.title": "The idempotency key was used for a different request",
    "Problem.type": "urn:claudemesh:problem:idempotency_key_reused",
    "Step.at": AT,
    "to": "bob",
    "Upgraded.from": 1,
    "Upgraded.to": 2,
    "JobResult.sources": {"broker": {"rows": {"orphans": 0}}},
    "OrphansResult.sources": {"broker": {"rows": {"orphans": 0}}},
    "Orphan.client_message_id": "build-42",
    "totals": {"message": {"lake": 12, "store": 12}},
    "JobResult.items": [],
    "OrphansResult.items": [],
    "Checked.items": [],
    "HistoryChecked.items": [],
    "Verdict.items": [],
    "Verdict.name": "check",
    "upstream_state": "online",
    "listen": "127.0.0.1:18080",
    "version": "0.1.0",
    "waited_for": "delivered",
    "SendWaited.state": "delivered",
    "what": "right",
    "where": "workplans/0001.md",
    "worker_id": "bob@demo",
    "DrillStep.name": "a write is kept while the hub is away",
    "ShownTopic.name": "ops",
    "ShownQueue.name": "builds",
    "Made.name": "ops",
    "Subscribed.name": "ops",
    "Unsubscribed.name": "ops",
    "Figures.name": "broker",
}


def example_of(printed: Printed) -> Any:  # noqa: ANN401 - a document is anything
    """Return an example of the first of its types."""
    return _fill(inspect.type_info(printed.types[0]), "", "") or {"event": "daemon.started", "level": "info"}


def document_of(type_: type, **more: Any) -> Any:  # noqa: ANN401 - as above
    """Return an example of a type, with some fields as they are given."""
    return _fill(inspect.type_info(type_), "", "") | more


def _fill(info: inspect.Type, owner: str, name: str) -> Any:  # noqa: ANN401 - as above
    for known in (f"{owner}.{name}", name):
        if known in VALUES and _is_allowed(VALUES[known], info):
            return VALUES[known]
    match info:
        case inspect.StructType() | inspect.DataclassType():
            cls = info.cls.__name__
            return {one.encode_name: _fill(one.type, cls, one.encode_name) for one in info.fields if one.required}
        case inspect.UnionType():
            return _fill(next(one for one in info.types if not isinstance(one, inspect.NoneType)), owner, name)
        case inspect.ListType():
            return [_fill(info.item_type, owner, "")]
        case inspect.DictType() if not isinstance(info.value_type, inspect.AnyType):
            return {"message": _fill(info.value_type, owner, "")}
        case _:
            return _plain(info, name)


def _plain(info: inspect.Type, name: str) -> Any:  # noqa: ANN401 - as above
    match info:
        case inspect.LiteralType():
            return info.values[0]
        case inspect.StrType():
            return name
        case _:
            return _PLAIN.get(type(info), (dict, {}))[1]


# What JSON makes of a type, and what stands for it if its field has no example.
_PLAIN: dict[type, tuple[type, Any]] = {
    inspect.BoolType: (bool, False),
    inspect.IntType: (int, 1),
    inspect.FloatType: (float, 1.0),
    inspect.StrType: (str, ""),
    inspect.NoneType: (type(None), None),
    inspect.DictType: (dict, {}),
}


def _is_allowed(value: object, info: inspect.Type) -> bool:
    """Say whether the value of a name fits where the name is another type's, too."""
    types = info.types if isinstance(info, inspect.UnionType) else (info,)
    return any(_is_of(value, one) for one in types)


def _is_of(value: object, info: inspect.Type) -> bool:
    match info:
        case inspect.AnyType():
            return True
        case inspect.LiteralType():
            return value in info.values
        case inspect.ListType():
            return isinstance(value, list) and all(_is_of(one, info.item_type) for one in value)
        case _:
            return type(info) in _PLAIN and type(value) is _PLAIN[type(info)][0]
