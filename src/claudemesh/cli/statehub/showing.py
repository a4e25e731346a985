"""How envelopes are shown to a person, and what their figures mean for an outage. Nothing here asks anybody.

The figures decide one thing, which people and scripts read alike: whether anything of this host is still unsent.
"""

from collections.abc import Sequence
from typing import Any, Final

from claudemesh.cli.render import Output, age, escape, render_json, when
from claudemesh.edge import concerns
from claudemesh.edge.concerns import WAITING, Concern

Json = dict[str, Any]

CELL_CHARS_MAX: Final = 60

HEADS: Final = ("id", "state", "request", "age", "attempts", "what happened")
_EXPECTATIONS: Final = {"expected_updated_at": "updated_at", "expected_status": "status"}


# --- whether an outage is over -----------------------------------------------------------------------


_SAID: Final = {
    Concern.DAMAGED: "the outbox is damaged, and nobody knows what waits in it: `statehub outbox recover`",
    Concern.PENDING: "{writes} not sent yet, the oldest for {oldest}",
    Concern.CONFLICTS: "{writes} in conflict: `statehub outbox list --state conflict`, then `resolve`",
    Concern.DEAD: "{writes} dead: `statehub outbox list --state dead`, then `retry` or `cancel`",
    Concern.UNREACHABLE: "the hub cannot be reached",
    Concern.REFUSED: "the hub refuses the relay's credential: nothing is replayed until it is taken",
}


def judge(status: Json) -> Json:
    """Add what the figures mean: whether anything waits, whether the outage is over, and why it is not."""
    found = concerns.judge(status)
    oldest = age(status["oldest_pending_age_s"])
    why = [_SAID[one].format(writes=_writes(status.get(one, 0)), oldest=oldest) for one in found]
    return {**status, "nothing_waits": WAITING.isdisjoint(found), "outage_over": not found, "why": why}


def _writes(count: int) -> str:
    return f"{count} write is" if count == 1 else f"{count} writes are"


def status_lines(out: Output, judged: Json) -> list[str]:
    running = "a relay runs" if judged["running"] else "no relay runs"
    place = f" at http://{escape(judged['listen'])}" if judged["listen"] else ""
    upstream = f", upstream {escape(judged['upstream'])}" if judged["upstream"] else ""
    reach = {True: " (reachable)", False: " (not reachable)", None: ""}[judged["upstream_reachable"]]
    lines = [f"{running}{place}{upstream}{reach}"]
    if judged["outbox"] == "none":
        lines.append("there is no outbox in this home: no relay has run here")
    lines.append(
        f"waiting: {judged['pending']}, in conflict: {judged['conflicts']}, dead: {judged['dead']}"
        if judged["outbox_usable"]
        else "waiting: unknown"
    )
    lines += [f"- {why}" for why in judged["why"]]
    if judged["outage_over"]:
        said = "nothing of this host is unsent: as far as it is concerned, an outage can be declared over"
        return [*lines, out.paint(said, "green")]
    return [*lines, out.paint("an outage cannot be declared over yet", "yellow")]


# --- envelopes ---------------------------------------------------------------------------------------


def page_lines(out: Output, page: Json, now_ms: int) -> list[str]:
    if not page["items"]:
        return ["no envelopes"]
    rows = [
        (
            one["id"],
            one["state"],
            one["request"],
            age((now_ms - one["created_at"]) // 1000),
            one["attempts"],
            happened_to(one),
        )
        for one in page["items"]
    ]
    lines = out.table(HEADS, rows)
    if page["next_cursor"] is not None:
        lines.append(out.paint(f"more: --after {page['next_cursor']}", "dim"))
    return lines


def happened_to(one: Json) -> str | None:
    """Say in a few words why an envelope is in its state."""
    if one["superseded_by"]:
        return f"replaced by {one['superseded_by']}"
    if one["cancelled_by"]:
        return f"cancelled by {one['cancelled_by']}"
    if one["state"] == "acked":
        return f"answered {one['answer_status']}"
    error: str | None = one["last_error"]
    return error


def envelope_lines(out: Output, shown: Json, now_ms: int) -> list[str]:
    """Show all that is kept of one envelope; of a conflict both values side by side."""
    source = ", ".join(f"{name} {value}" for name, value in shown["source"].items() if value)
    told = {
        "id": shown["id"],
        "idempotency key": shown["idempotency_key"],
        "state": shown["state"],
        "request": shown["request"],
        "class": shown["route_class"],
        "entity": shown["entity"],
        "from": source or None,
        "queued": f"{when(shown['created_at'])}, {age((now_ms - shown['created_at']) // 1000)} ago",
        "attempts": shown["attempts"],
        "what happened": happened_to(shown),
    }
    width = max(map(len, told))
    lines = [f"{name:<{width}}  {out.state('-' if value is None else value)}" for name, value in told.items()]
    lines += ["", *values_lines(out, shown["mine"], shown["theirs"], shown["expectation"].get("if_match"))]
    events = [
        (when(event["at"]), event["was"] or "-", event["became"], event["error"] or event["by"])
        for event in shown["happened"]
    ]
    return [*lines, "", *out.table(("at", "was", "became", "why"), events)]


def values_lines(out: Output, mine: Any, theirs: Any, if_match: str | None = None) -> list[str]:  # noqa: ANN401  JSON is anything
    """Show what is to be written, beside what stands there if that is known."""
    if mine is None:
        return ["its body is no longer kept"]
    fields = mine if isinstance(mine, dict) else {"body": mine}
    if not isinstance(theirs, dict):
        return out.table(("field", "mine"), [(name, _cell(value)) for name, value in fields.items()])
    rows = [(name, _cell(value), _cell(theirs.get(name))) for name, value in _written(fields)]
    rows += [
        (f"{there} (expected)", _cell(fields[name]), _cell(theirs.get(there)))
        for name, there in _EXPECTATIONS.items()
        if name in fields
    ]
    if if_match is not None:
        rows.append(("revision (expected)", if_match, _cell(theirs.get("revision"))))
    written = {name for name, _ in _written(fields)}
    rows += [(name, "", _cell(value)) for name, value in theirs.items() if name not in written]
    return out.table(("field", "mine", "theirs"), rows)


def _written(fields: Json) -> Sequence[tuple[str, Any]]:
    return [(name, value) for name, value in fields.items() if name not in _EXPECTATIONS]


def _cell(value: Any) -> str:  # noqa: ANN401  JSON is anything
    text = value if isinstance(value, str) else render_json(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"
