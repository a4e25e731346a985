"""A report as a run might give it, with names that would like to be markup."""

from typing import Any

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_767_225_600_000  # 2026-01-01
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x00"


def sample(*, days: int = 3, violations: int = 2) -> dict[str, Any]:
    hours = [START_MS + hour * HOUR_MS for hour in range(days * 24)]
    traffic = [
        {"mesh": "demo", "hour_at": at, "kind": kind, "messages": (i * 7 + weight * 13) % 40 + weight}
        for i, at in enumerate(hours)
        for weight, kind in enumerate(("dm", "queue", "topic"), 1)
    ]
    messages = sum(row["messages"] for row in traffic)
    latency = [
        {
            "mesh": mesh,
            "day": f"2026-01-{day + 1:02}",
            "deliveries": 100,
            "p50_ms": 3 + day,
            "p90_ms": 40.0 + 10 * day,
            "p99_ms": 900 * (day + 1),
        }
        for mesh in ("demo", HOSTILE)
        for day in range(days)
    ]
    members = [
        {
            "mesh": "demo",
            "name": name,
            "sent": 5 * i,
            "received": i,
            "first_at": START_MS + i * HOUR_MS,
            "last_at": START_MS + DAY_MS + 5 * i * HOUR_MS,
        }
        for i, name in enumerate(["ada", "bob", HOSTILE, "a-name-that-is-much-longer-than-the-room-it-has"])
    ]
    items = [
        {"client_message_id": f"c{i}{HOSTILE}", "sender": HOSTILE, "missing": ["message"], "source": "broker"}
        for i in range(2)
    ]
    broker = {
        "name": "broker",
        "kind": "broker",
        "store": "sqlite:///broker.db",
        "lag": {"open_transactions": 2.0, "oldest_s": 12.4},
        "totals": {"message_history": {"lake": messages, "store": messages}},
        "traffic": traffic,
        "latency": latency,
        "dead_letters": [
            {"mesh": "demo", "reason": HOSTILE, "dead_letters": 7},
            {"mesh": "demo", "reason": "expired", "dead_letters": 31_000},
        ],
        "members": members,
        "presence": [
            {
                "mesh": mesh,
                "day": f"2026-01-{day + 1:02}",
                "sessions": 9,
                "begun": 4,
                "ended": 4,
                "peak": 5 + day,
                "hours": 50.0,
                "flaps": 5,
                "graces": 8 * day,
                "returns": 7 * day,
                "flaps_per_hour": 0.1,
                "returned_share": 0.875 if day else None,
                **(dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), 900 * (day + 1) if day else None)),
            }
            for mesh in ("demo", HOSTILE)
            for day in range(days)
        ],
        "endings": [{"mesh": "demo", "because": because, "sessions": 3} for because in ("expired", HOSTILE, None)],
    }
    inbox = {
        "name": "inbox-demo",
        "kind": "inbox",
        "store": "sqlite:///inbox.db",
        "lag": {},
        "totals": {"inbox": {"lake": 1200, "store": 1200}},
        "events": [
            {"hour_at": hours[i], "type": kind, "events": i % 3 + 1}
            for i in range(0, len(hours), 2)
            for kind in ("peer_joined", "peer_left")
        ],
    }
    counts = {"messages": 40, "jobs": 40, "steps": 90, "pending": 3, "leased": 2, "committed": 85}
    counts |= {"success": 80, "failure": 4, "aborted": 1, "expired": 1, "requeues": 8, "renewals": 5, "expiries": 9}
    ledger = {
        "name": "ledger-demo",
        "kind": "ledger",
        "store": "sqlite:///ledger.db",
        "lag": {},
        "totals": {"cassette_steps": {"lake": 90, "store": 90}},
        "runs": [{"run_id": run, **counts} for run in (None, HOSTILE)],
        "lead_times": [
            {
                "run_id": None,
                "span": span,
                "steps": 85,
                "p50_ms": 20,
                "p90_ms": 900,
                "p99_ms": 4000,
                "max_ms": 90_000,
            }
            for span in ("posted_to_claimed", "claimed_to_receipt", "posted_to_receipt")
        ],
        "requeued": [
            {"run_id": "nightly", "step_id": step, "expiries": count, "requeues": count}
            for step, count in (("01JH.1.1", 2), (HOSTILE, 7))
        ],
    }
    waited = {"envelopes": 40, "queued": 1, "acked": 30, "conflict": 2, "dead": 3, "cancelled": 1, "coalesced": 3}
    relay = {
        "name": "relay-demo",
        "kind": "relay",
        "store": "sqlite:///outbox.db",
        "lag": {},
        "totals": {"outbox": {"lake": 40, "store": 40}},
        "outages": [
            {
                "outage_id": HOSTILE,
                "began_at": START_MS + HOUR_MS,
                "online_at": START_MS + 3 * HOUR_MS,
                "recovered_at": None,
                "away_ms": 2 * HOUR_MS,
                "replay_ms": 15_000,
                "took_ms": 2 * HOUR_MS + 15_000,
                **waited,
                "attempts": 44,
                "longest_lane": 7,
                "lane": HOSTILE,
                "oldest_wait_ms": 3 * HOUR_MS,
                "acked_per_s": 2.0,
            },
            {
                "outage_id": "open",
                "began_at": START_MS,
                "online_at": None,
                "recovered_at": None,
                "away_ms": HOUR_MS,
                "replay_ms": None,
                "took_ms": HOUR_MS,
                **dict.fromkeys(waited, 0),
                "attempts": 0,
                "longest_lane": 0,
                "lane": None,
                "oldest_wait_ms": None,
                "acked_per_s": None,
            },
        ],
        "envelopes": [
            {"outage_id": outage, "route_class": name, "status": status, "envelopes": 5, "coalesced": 0}
            for outage in (None, HOSTILE)
            for name in ("append", "replace")
            for status in ("done", "aborted", "dead")
        ],
    }
    kinds = ("progress", "messages", "token_events", "decisions", "tasks", HOSTILE)
    hub = {
        "name": "hub-demo",
        "kind": "hub",
        "store": "sqlite:///hub.db",
        "lag": {},
        "totals": {"hub_write": {"lake": 21 * len(hours), "store": 21 * len(hours)}},
        "writes": [
            {"kind": kind, "hour_at": at, "writes": weight, "created": 1, "deleted": 0, "keyed": 1, "expecting": 0}
            for at in hours
            for weight, kind in enumerate(kinds, 1)
        ],
    }
    return {
        "cut": 7,
        "at": "2026-01-04T00:00:00Z",
        "since": None,
        "ok": not violations,
        "verdicts": [
            {"name": "reconciliation", "about": "totals are the store's own", "violations": 0, "items": []},
            {
                "name": "orphans",
                "about": "what one commit kept together",
                "violations": violations,
                "items": items[:violations],
            },
        ],
        "sources": [broker, inbox, ledger, relay, hub],
    }
