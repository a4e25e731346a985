"""Looks as a daemon would be seen, and a looker that shows what a test told it to."""

import threading
from typing import Any

from claudemesh.cli.top.picture import Counters, Look
from claudemesh.daemon.http.outbox import ShownRow
from claudemesh.daemon.http.status import Health
from tools.examples import document_of

HOSTILE = "[red]x[/][@click=app.quit]y[/]"

HEALTH: dict[str, Any] = document_of(Health) | {
    "connected": True,
    "link": "connected",
    "lag_ms": 12_000,
    "queue_depth": 3,
    "inflight": 1,
    "dead": 2,
    "unread": 4,
    "mesh": "demo",
    "member": "ada",
    "uptime_s": 3_700,
    "daemon_version": "1.2",
    "broker_version": "1.1",
    "degraded": False,
}


def dead_row(number: int, to: str = "bob", attempts: int = 1) -> dict[str, Any]:
    row: dict[str, Any] = document_of(
        ShownRow,
        id=f"row-{number}",
        client_message_id=f"message-{number}",
        to=to,
        attempts=attempts,
        last_error="destination_not_found",
        enqueued_at="2023-11-14T22:13:00.000Z",
    )
    return row


def look(at_ms: int = 0, *, sent: float = 0.0, received: float = 0.0, **changes: Any) -> Look:  # noqa: ANN401 - a look's fields
    said: dict[str, Any] = {
        "health": HEALTH,
        "counters": Counters(sent, received, 2.0, {"outbox": 7.0}),
        "peers": [
            {
                "name": HOSTILE, "pubkey": "aa", "status": "online", "reach": "now", "role": "owner",
                "lease_left_ms": 89_001, "waiting": 5, "unread": 1, "about": "\x1b[31mred",
                "sessions": [{"session_pubkey": "cc"}],
            },
            {"name": "bob", "pubkey": "bb", "status": "offline", "reach": "waits", "role": "member"},
        ],
        "dead": [dead_row(1), dead_row(2, "carol", attempts=12)],
        "queues": [{"name": "jobs", "ready": 2, "leased": 1, "created_at": "2023-11-14T22:13:00.000Z"}],
    }  # fmt: skip
    return Look(at_ms=at_ms, wall_ms=1_700_000_000_000 + at_ms, **(said | changes))


def away(at_ms: int = 0) -> Look:
    return Look(at_ms=at_ms, wall_ms=1_700_000_000_000 + at_ms, errors={"daemon": "no daemon answers"})


class ScriptedLooker:
    """Shows each look in turn, the last one again and again."""

    def __init__(self, *looks: Look) -> None:
        self._looks = list(looks)
        self.looked = 0
        self.traced: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def look(self) -> Look:
        """Answer once it may; the thread that draws would be held up by that, and so may not ask."""
        assert threading.current_thread() is not threading.main_thread()
        self.may_answer.wait()
        self.looked += 1
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def trace(self, client_message_id: str) -> dict[str, Any]:
        self.traced.append(client_message_id)
        steps = [{"state": "dead", "at": None, "evidence": HOSTILE}]
        return {"client_message_id": client_message_id, "state": "dead", "steps": steps}

    def envelope(self, envelope_id: str) -> dict[str, Any]:
        return {"id": envelope_id, "mine": {"title": HOSTILE}}
