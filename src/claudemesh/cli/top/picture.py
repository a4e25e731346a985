"""One look at everything as a value, and what follows from several of them: rates and ages. Nothing here asks.

A part that could not be asked is None, and `errors` says why; what is not there (no relay, no ledger) is None
without an error.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Literal

Json = dict[str, Any]

WINDOW: Final = 60  # looks that a rate is taken over
BARS: Final = "▁▂▃▄▅▆▇█"

_SAMPLE: Final = re.compile(r"^(cm_[a-z0-9_]+)(?:\{(.*)\})? (\S+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was answered at one moment; `at_ms` measures, `wall_ms` tells people when."""

    at_ms: int
    wall_ms: int
    health: Json | None = None
    counters: "Counters | None" = None
    peers: Sequence[Json] | None = None
    dead: Sequence[Json] | None = None  # the oldest of them
    queues: Sequence[Json] | None = None
    relay: Json | None = None
    envelopes: Sequence[Json] | None = None  # of the relay, that wait for an operator
    steps: Sequence[Json] | None = None  # of the ledger, that are not committed
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Whether the daemon did not answer."""
        return self.health is None


@dataclass(frozen=True, slots=True)
class Counters:
    """What only grows while a daemon runs."""

    sent: float = 0.0
    received: float = 0.0
    reconnects: float = 0.0
    disk_pct: Mapping[str, float] = field(default_factory=dict)


def read_counters(text: str) -> Counters:
    """Read what is wanted out of a daemon's metrics; a newer daemon may say more."""
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        matched = _SAMPLE.match(line)
        if matched is not None:
            found[matched[1], matched[2] or ""] = float(matched[3])
    disk = {
        labels.removeprefix('store="').removesuffix('"'): value
        for (name, labels), value in found.items()
        if name == "cm_daemon_disk_pct"
    }
    return Counters(
        sent=found.get(("cm_daemon_send_total", 'event="accepted"'), 0.0),
        received=found.get(("cm_daemon_recv_total", ""), 0.0),
        reconnects=found.get(("cm_daemon_reconnects_total", ""), 0.0),
        disk_pct=disk,
    )


@dataclass(frozen=True, slots=True)
class Rate:
    """Per second: over the whole window, and between each two looks. None as long as there was one look only."""

    mean: float | None
    each: Sequence[float]


class History:
    """The last looks that were answered. A daemon that was started anew counts from 0, and so do we."""

    def __init__(self, window: int = WINDOW) -> None:
        self._looks: deque[tuple[int, Counters]] = deque(maxlen=window + 1)

    def note(self, look: Look) -> None:
        if look.counters is None:
            return
        if self._looks:
            at_ms, last = self._looks[-1]
            if look.counters.sent < last.sent or look.counters.received < last.received:
                self._looks.clear()
            elif look.at_ms <= at_ms:
                return
        self._looks.append((look.at_ms, look.counters))

    def sent(self) -> Rate:
        return _rate([(at_ms, counters.sent) for at_ms, counters in self._looks])

    def received(self) -> Rate:
        return _rate([(at_ms, counters.received) for at_ms, counters in self._looks])

    def window_s(self) -> float:
        return (self._looks[-1][0] - self._looks[0][0]) / 1000 if self._looks else 0.0


def _rate(counted: Sequence[tuple[int, float]]) -> Rate:
    steps = list(pairwise(counted))
    each = [(to - from_) * 1000 / (at_ms - before_ms) for (before_ms, from_), (at_ms, to) in steps]
    if not steps:
        return Rate(None, ())
    (first_ms, first), (last_ms, last) = counted[0], counted[-1]
    return Rate((last - first) * 1000 / (last_ms - first_ms), each)


def sparkline(values: Iterable[float], width: int) -> str:
    """Return the last so many values as bars, the highest being full."""
    shown = list(values)[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(int(value / most * (len(BARS) - 1) + 0.5), len(BARS) - 1)] for value in shown)


def age_s(instant: object, wall_ms: int) -> int | None:
    """Return how long ago an instant was: wall milliseconds, or a text of ISO 8601; None if it says nothing."""
    if isinstance(instant, int):
        return max(wall_ms - instant, 0) // 1000
    from datetime import datetime  # noqa: PLC0415 - only where there is a text

    try:
        at = datetime.fromisoformat(str(instant))
    except ValueError:
        return None
    return max(wall_ms - int(at.timestamp() * 1000), 0) // 1000 if at.tzinfo is not None else None


State = Literal["away", "degraded", "connected", "connecting", "catching up", "not connected"]
COMING: Final[tuple[State, ...]] = ("connecting", "catching up")


def derive_state(look: Look) -> State:
    """Say in a word how the daemon is."""
    if look.health is None:
        return "away"
    if look.health.get("degraded"):
        return "degraded"
    if look.health.get("connected"):
        return "connected"
    return next((word for word in COMING if word == look.health.get("link")), "not connected")


def to_document(look: Look, history: History) -> Json:
    """Return the look as `top --json` prints it."""
    health = look.health
    relay = None if look.relay is None else {**look.relay, "envelopes": look.envelopes}
    dead = look.dead or ()
    return {
        "at": look.wall_ms,
        "state": derive_state(look),
        "daemon": health,
        "outbox": health
        and {
            "pending": health.get("queue_depth"),
            "inflight": health.get("inflight"),
            "dead": health.get("dead"),
            "oldest_age_s": int(health.get("lag_ms") or 0) // 1000,
            "oldest_dead_age_s": age_s(dead[0].get("enqueued_at"), look.wall_ms) if dead else None,
        },
        "unread": health and health.get("unread"),
        "rates": {
            "sent_per_s": history.sent().mean,
            "received_per_s": history.received().mean,
            "window_s": history.window_s(),
        },
        "peers": look.peers,
        "dead": look.dead,
        "queues": look.queues,
        "relay": relay,
        "ledger": None if look.steps is None else {"steps": look.steps},
        "errors": dict(look.errors),
    }


# --- while the daemon is away ------------------------------------------------------------------------

AWAY_S_MAX: Final = 15.0


def keep(last: Look | None, new: Look) -> Look:
    """Return what is shown: the new look; while the daemon is away, what was last known of it, and the new rest."""
    if last is None or not new.is_away:
        return new
    return replace(last, relay=new.relay, envelopes=new.envelopes, steps=new.steps, errors=new.errors)


def derive_pause_s(interval_s: float, failures: int) -> float:
    """Return how long to wait before the next look: longer with each that found nobody."""
    return min(interval_s * (1 << min(failures, 10)), max(AWAY_S_MAX, interval_s))
