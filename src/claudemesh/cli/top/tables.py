"""How a look is laid out: the lines at the head, and a table for each part. Texts of others are escaped here.

`top` on a terminal and the plain snapshot show the same words; only the terminal scrolls, sorts and filters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from claudemesh.cli.render import age, escape, when
from claudemesh.cli.top.picture import History, Json, Look, Rate, age_s, derive_state, sparkline
from claudemesh.edge.concerns import Concern, judge

SPARKS: Final = 20
GAP: Final = "   "
NONE: Final = "-"

_REACH: Final = {Concern.UNREACHABLE: "NOT reachable", Concern.REFUSED: "REFUSES the relay's credential"}

Cells = Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    """`key` names it for as long as it stands; `detail` is what its details are asked by."""

    key: str
    cells: Cells
    order: tuple[Any, ...]  # of each column, what it is sorted by
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    name: str  # of the part
    title: str
    heads: tuple[str, ...]
    rows: Sequence[Row]
    empty: str  # what stands there without rows
    count: int | None  # shown beside the title


def flow(fields: Sequence[str], width: int) -> list[str]:
    """Put fields into as few lines as there is room for; one that is wider than a line is cut."""
    lines: list[str] = []
    for field in fields:
        cut = field if len(field) <= width else f"{field[: width - 1]}…"
        if lines and len(lines[-1]) + len(GAP) + len(cut) <= width:
            lines[-1] += GAP + cut
        else:
            lines.append(cut)
    return lines


def head_fields(look: Look) -> list[str]:
    """Who this is and how it is."""
    health = look.health
    if health is None:
        return []
    broker = health.get("broker_version")
    return [
        f"mesh {escape(health.get('mesh'))}",
        f"member {escape(health.get('member'))}",
        f"up {age(int(health.get('uptime_s') or 0))}",
        f"lag {_milliseconds(health.get('lag_ms'))}",
        f"daemon {escape(health.get('daemon_version'))}",
        *([f"broker {escape(broker)}"] if broker else []),
        *([f"reconnects {look.counters.reconnects:.0f}"] if look.counters else []),
    ]


def outbox_fields(look: Look) -> list[str]:
    health = look.health
    if health is None:
        return []
    waits = int(health.get("lag_ms") or 0) // 1000
    dead = age_s(look.dead[0].get("enqueued_at"), look.wall_ms) if look.dead else None
    disk = look.counters.disk_pct if look.counters else {}
    return [
        f"outbox: pending {escape(health.get('queue_depth'))}",
        f"under way {escape(health.get('inflight'))}",
        f"dead {escape(health.get('dead'))}",
        f"oldest waits {age(waits)}",
        *([f"oldest dead {age(dead)}"] if dead is not None else []),
        f"unread {escape(health.get('unread', NONE))}",
        *(f"{escape(store)} {pct:.0f}% full" for store, pct in disk.items()),
    ]


def rate_fields(history: History) -> list[str]:
    sent, received = history.sent(), history.received()
    return [] if sent.mean is None else [f"sent {_rate(sent)}", f"received {_rate(received)}"]


def relay_fields(look: Look) -> list[str]:
    if look.relay is None:
        return [f"relay: {escape(look.errors['relay'])}"] if "relay" in look.errors else []
    relay = look.relay
    reach = next((_REACH[concern] for concern in judge(relay) if concern in _REACH), "reachable")
    waits = relay.get("oldest_pending_age_s")
    return [
        f"relay: hub {reach}",
        f"pending {escape(relay.get('pending'))}",
        f"conflicts {escape(relay.get('conflicts'))}",
        f"dead {escape(relay.get('dead'))}",
        *([f"oldest waits {age(waits)}"] if isinstance(waits, int) and relay.get("pending") else []),
    ]


def summary(look: Look, history: History, width: int) -> list[str]:
    """Return the lines below the first, which says how the daemon is."""
    parts = (
        head_fields(look),
        outbox_fields(look),
        rate_fields(history) if look.health else [],
        relay_fields(look),
    )
    return [line for fields in parts for line in flow(fields, width)]


# --- tables ------------------------------------------------------------------------------------------


def tables(look: Look) -> list[Table]:
    return [_peers(look), _dead(look), _queues(look), _relay(look), _ledger(look)]


def _peers(look: Look) -> Table:
    rows = [
        Row(
            str(peer.get("pubkey") or peer.get("name")),
            (
                escape(peer.get("name")),
                escape(peer.get("status")),
                escape(peer.get("reach") or NONE),
                _lease(peer.get("lease_left_ms")),
                _number(peer.get("waiting")),
                _number(peer.get("unread")),
                str(len(peer.get("sessions") or ())),
                escape(peer.get("role")),
                escape(peer.get("about") or ""),
            ),
            (
                str(peer.get("name")), str(peer.get("status")), str(peer.get("reach")),
                _sorted(peer.get("lease_left_ms")), _sorted(peer.get("waiting")), _sorted(peer.get("unread")),
                len(peer.get("sessions") or ()), str(peer.get("role")), str(peer.get("about")),
            ),
        )
        for peer in look.peers or ()
    ]  # fmt: skip
    heads = ("peer", "status", "reach", "lease", "waiting", "unread", "sessions", "role", "about")
    return Table("peers", "Peers", heads, rows, _empty(look, "peers", "nobody else is here"), _count(look.peers))


def _dead(look: Look) -> Table:
    rows = [_dead_row(row, look.wall_ms) for row in look.dead or ()]
    heads = ("message", "to", "age", "tries", "what happened")
    count = None if look.health is None else look.health.get("dead")
    return Table("dead", "Dead", heads, rows, _empty(look, "dead", "no dead rows"), count)


def _dead_row(row: Json, wall_ms: int) -> Row:
    seconds = age_s(row.get("enqueued_at"), wall_ms)
    named, to, error = row.get("client_message_id"), row.get("to"), row.get("last_error")
    return Row(
        str(row.get("id")),
        (escape(named), escape(to), _age(seconds), _number(row.get("attempts")), escape(error or NONE)),
        (str(named), str(to), _sorted(seconds), _sorted(row.get("attempts")), str(error)),
        detail=str(named),
    )


def _queues(look: Look) -> Table:
    rows = [
        Row(
            str(queue.get("name")),
            (
                escape(queue.get("name")),
                _number(queue.get("ready")),
                _number(queue.get("leased")),
                when(queue.get("created_at")),
            ),
            (
                str(queue.get("name")), _sorted(queue.get("ready")), _sorted(queue.get("leased")),
                str(queue.get("created_at")),
            ),
        )
        for queue in look.queues or ()
    ]  # fmt: skip
    empty = _empty(look, "queues", "no work queues")
    return Table("queues", "Queues", ("queue", "ready", "leased", "made"), rows, empty, _count(look.queues))


def _relay(look: Look) -> Table:
    rows = []
    for envelope in look.envelopes or ():
        seconds = age_s(envelope.get("created_at"), look.wall_ms)
        shown = [envelope.get(name) for name in ("request", "state")]
        tries, error = envelope.get("attempts"), envelope.get("last_error")
        rows.append(
            Row(
                str(envelope.get("id")),
                (*map(escape, shown), _age(seconds), _number(tries), escape(error or NONE)),
                (*map(str, shown), _sorted(seconds), _sorted(tries), str(error)),
                detail=str(envelope.get("id")),
            )
        )
    heads = ("request", "state", "age", "tries", "what happened")
    none = "no relay runs here" if look.relay is None else "nothing waits for an operator"
    return Table("relay", "Relay", heads, rows, _empty(look, "relay", none), _count(look.envelopes))


def _ledger(look: Look) -> Table:
    rows = [
        Row(
            str(step.get("step_id")),
            (
                escape(step.get("run_id")),
                escape(step.get("intent") or NONE),
                escape(step.get("status")),
                escape(step.get("lease_owner") or NONE),
                "expired" if step.get("is_expired") else escape(step.get("lease_expires_at") or NONE),
            ),
            tuple(
                str(step.get(name) or "")
                for name in ("run_id", "intent", "status", "lease_owner", "lease_expires_at")
            ),
        )
        for step in look.steps or ()
    ]
    none = "no ledger in this home" if look.steps is None else "every step is committed"
    heads = ("run", "intent", "status", "worker", "lease")
    return Table("ledger", "Ledger", heads, rows, _empty(look, "ledger", none), _count(look.steps))


def _empty(look: Look, name: str, otherwise: str) -> str:
    if look.health is None and name in ("peers", "dead", "queues"):
        return "nothing is known while the daemon is away"
    return escape(look.errors[name]) if name in look.errors else otherwise


# --- sorting and filtering ---------------------------------------------------------------------------


def arrange(table: Table, words: str, column: int | None, *, reverse: bool) -> list[Row]:
    """Return the rows that hold all the words in any cell, sorted by a column if one is named."""
    wanted = words.casefold().split()
    rows = [row for row in table.rows if all(word in " ".join(row.cells).casefold() for word in wanted)]
    if column is None or not 0 <= column < len(table.heads):
        return rows
    by: Callable[[Row], Any] = lambda row: row.order[column]  # noqa: E731 - a name for its type
    return sorted(rows, key=by, reverse=reverse)


# --- the plain snapshot ------------------------------------------------------------------------------


def first_line(look: Look) -> str:
    """Say how the daemon is, in one line."""
    if look.health is None:
        return f"daemon away: {escape(look.errors.get('daemon', 'it does not answer'))}"
    state, link = derive_state(look), look.health.get("link")
    return f"daemon {state}: {escape(link)}" if state in ("degraded", "not connected") else f"daemon {state}"


# --- details -----------------------------------------------------------------------------------------


def trace_lines(life: Json) -> list[str]:
    """Return the life of a message, step by step."""
    steps = [
        f"{when(step.get('at')):<24}  {escape(step.get('state')):<10}  {escape(step.get('evidence'))}"
        for step in life.get("steps") or ()
    ]
    return [f"{escape(life.get('client_message_id'))} is {escape(life.get('state'))}", "", *steps]


def value_lines(values: Mapping[str, Any]) -> list[str]:
    """Return fields and their values, a line each."""
    width = max((len(name) for name in values), default=0)
    return [
        f"{escape(name):<{width}}  {escape(NONE if value is None else value)}" for name, value in values.items()
    ]


# --- cells -------------------------------------------------------------------------------------------


def _count(rows: Sequence[Json] | None) -> int | None:
    return None if rows is None else len(rows)


def _age(seconds: int | None) -> str:
    return NONE if seconds is None else age(seconds)


def _number(value: object) -> str:
    return NONE if value is None else escape(value)


def _sorted(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -1.0


def _lease(left_ms: object) -> str:
    return f"{-(-left_ms // 1000)}s" if isinstance(left_ms, int) else NONE


def _milliseconds(value: object) -> str:
    if not isinstance(value, int):
        return NONE
    return f"{value}ms" if value < 1_000 else age(value // 1000)  # noqa: PLR2004 - a second


def _rate(rate: Rate) -> str:
    return f"{rate.mean or 0.0:.1f}/s {sparkline(rate.each, SPARKS)}"
