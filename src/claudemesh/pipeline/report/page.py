"""The page of a report, made from its document alone. It asks nobody for anything: no script, font or picture."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from xml.etree.ElementTree import Element

from claudemesh.pipeline.report import plots
from claudemesh.pipeline.report.markup import each, el, render, verbatim

KINDS: Final = ("dm", "topic", "queue")
PERCENTILES: Final = {"p50_ms": "half", "p90_ms": "90 %", "p99_ms": "99 %"}
PRESENCE: Final = {"sessions": "sessions", "peak": "at once", "flaps": "flaps"}
MEMBERS_MAX: Final = 40
MESHES_MAX: Final = 6
REASONS_MAX: Final = 20
RUNS_MAX: Final = 20
OUTAGES_MAX: Final = 20
WRITTEN_MAX: Final = 4  # kinds with a colour of their own
STEP_ID_SHOWN: Final = 16
SPANS: Final = {
    "posted_to_claimed": "posted to claimed",
    "claimed_to_receipt": "claimed to receipt",
    "posted_to_receipt": "posted to receipt",
}

Row = Mapping[str, Any]


def build_page(document: Mapping[str, Any]) -> str:
    style = files("claudemesh.pipeline.report").joinpath("page.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    title = f"claudemesh: cut {document['cut']}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el(
            "meta", http_equiv="Content-Security-Policy", content=f"default-src 'none'; style-src 'sha256-{digest}'"
        ),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        verbatim("style", style),
    )
    span = f", from {document['since']} on" if document.get("since") else ""
    body = el(
        "body",
        el("h1", title),
        el("p", f"The stores as they were at {document['at']}{span}.", class_="faint"),
        each("div", map(_verdict, document["verdicts"]), class_="verdicts"),
    )
    for source in document["sources"]:
        body.extend(_source(source))
    return render(el("html", head, body, lang="en"))


# --- verdicts ------------------------------------------------------------------------------------------


def _verdict(verdict: Row) -> Element:
    count = verdict["violations"]
    mark = el("span", f"{count} found" if count else "holds", class_="mark")
    name = el("strong", verdict["name"])
    about = el("span", f" {verdict['about']}", class_="faint")
    if not count:
        return el("div", mark, " ", name, about, class_="card verdict")
    items = verdict["items"]
    shown = el("p", f"The first {len(items)} of {count}:") if len(items) < count else el("p", "All of them:")
    summary = el("summary", mark, " ", name, about)
    return el("details", summary, shown, _table(items), class_="verdict broken", open="open")


# --- a store -------------------------------------------------------------------------------------------


def _source(source: Row) -> Iterable[Element]:
    yield el("h2", source["name"])
    yield el("p", f"{source['kind']}, {source['store']}{_lag(source['lag'])}", class_="faint")
    drawn = (card for figure, draw in _FIGURES.items() if figure in source for card in draw(source[figure]))
    yield each("div", [_totals(source["totals"]), *drawn], class_="cards")


def _lag(lag: Row) -> str:
    if not lag.get("open_transactions"):
        return ""
    oldest = f", the oldest for {lag['oldest_s']:.0f} s" if "oldest_s" in lag else ""  # not every role is told
    return f"; open transactions: {lag['open_transactions']:.0f}{oldest}"


def _totals(totals: Mapping[str, Mapping[str, int]]) -> Element:
    rows = [
        {"total": name, "in the lake": pair["lake"], "in the store": pair["store"]} for name, pair in totals.items()
    ]
    return _card("Totals", "What the lake holds, and what the store itself counted at the cut.", _table(rows))


def _traffic(rows: Sequence[Row]) -> Iterable[Element]:
    series = {kind: _sums(rows, "hour_at", "messages", kind=kind) for kind in KINDS}
    present = {kind: points for kind, points in series.items() if points}
    hours = [row["hour_at"] for row in rows]
    step = plots.say_ms(plots.choose_step(min(hours), max(hours))) if hours else ""
    says = f"Messages that were accepted; a bar is {step}." if hours else "Messages that were accepted."
    yield _card("Traffic", says, plots.bars(present, "messages"), present)


def _latency(rows: Sequence[Row]) -> Iterable[Element]:
    busiest = sorted(_sums(rows, "mesh", "deliveries").items(), key=lambda pair: -pair[1])[:MESHES_MAX]
    says = (
        "From accepted to delivered, by the day of the accept: so many took no longer."
        " Also of messages that retention has deleted since."
    )
    for mesh, _ in busiest:
        days = {plots.parse_day(row["day"]): row for row in rows if row["mesh"] == mesh}
        series = {label: {at: row[name] for at, row in days.items()} for name, label in PERCENTILES.items()}
        yield _card(f"Delivery latency: {mesh}", says, plots.lines(series, plots.say_ms), series)
    if not rows:
        yield _card("Delivery latency", says, plots.nothing())


def _dead_letters(rows: Sequence[Row]) -> Iterable[Element]:
    counts = _sums(rows, "reason", "dead_letters")
    most = dict(sorted(counts.items(), key=lambda pair: -pair[1])[:REASONS_MAX])
    more = f" The {len(most)} most frequent of {len(counts)}." if len(most) < len(counts) else ""
    says = f"Deliveries that were given up, by reason.{more}"
    yield _card("Dead letters", says, plots.ranking(most, "deliveries"))


def _members(rows: Sequence[Row]) -> Iterable[Element]:
    latest = sorted(rows, key=lambda row: -row["last_at"])[:MEMBERS_MAX]
    spans = [plots.Span(row["name"], row["first_at"], row["last_at"], _seen(row)) for row in latest]
    more = f" The latest {len(latest)} of {len(rows)}." if len(latest) < len(rows) else ""
    says = f"Not who was there: from each member's first message to its last, sent or received.{more}"
    yield _card("Members seen", says, plots.spans(spans))


def _seen(row: Row) -> str:
    last = plots.say_time(row["last_at"])
    return f"{row['name']}: {row['sent']} sent, {row['received']} received, last at {last}"


def _presence(rows: Sequence[Row]) -> Iterable[Element]:
    busiest = sorted(_sums(rows, "mesh", "hours").items(), key=lambda pair: -pair[1])[:MESHES_MAX]
    for mesh, _ in busiest:
        of_mesh = [row for row in rows if row["mesh"] == mesh]
        days = {plots.parse_day(row["day"]): row for row in of_mesh}
        counts = {label: {at: row[name] for at, row in days.items()} for name, label in PRESENCE.items()}
        yield _card(f"Who was there: {mesh}", _stayed(of_mesh), plots.lines(counts, plots.say_number), counts)
        graces = {
            label: {at: row[name] for at, row in days.items() if row[name] is not None}
            for name, label in PERCENTILES.items()
        }
        says = f"How long leases stood without a connection, by the day it was over. {_returned(of_mesh)}"
        yield _card(f"Time in grace: {mesh}", says, plots.lines(graces, plots.say_ms), graces)
    if not rows:
        yield _card(
            "Who was there", "Sessions by day, how many at once, and connections replaced.", plots.nothing()
        )


def _stayed(days: Sequence[Row]) -> str:
    begun, hours, flaps = (sum(row[name] for row in days) for name in ("begun", "hours", "flaps"))
    rate = f", {flaps / hours:.3g} for each hour of a session" if hours else ""
    return f"{begun} sessions began; a flap is a connection that was replaced: {flaps}{rate}."


def _returned(days: Sequence[Row]) -> str:
    graces, returns = (sum(row[name] for row in days) for name in ("graces", "returns"))
    return f"{returns} of {graces} ended in a return ({returns / graces:.0%})." if graces else "None so far."


def _endings(rows: Sequence[Row]) -> Iterable[Element]:
    counts = {key or "not said": count for key, count in _sums(rows, "because", "sessions").items()}
    yield _card(
        "How sessions ended", "Departures that all were told of, by reason.", plots.ranking(counts, "sessions")
    )


def _events(rows: Sequence[Row]) -> Iterable[Element]:
    names = {"peer_joined": "came", "peer_left": "left"}
    series = {label: _sums(rows, "hour_at", "events", type=name) for name, label in names.items()}
    present = {label: points for label, points in series.items() if points}
    says = "Peers that came and left, as this daemon was told while it was connected."
    yield _card("Presence", says, plots.bars(present, "peers"), present)


def _runs(rows: Sequence[Row]) -> Iterable[Element]:
    largest = [_named(row) for row in rows[: RUNS_MAX + 1]]  # the first is all of them
    more = f" The {RUNS_MAX} largest of {len(rows) - 1}." if len(rows) > RUNS_MAX + 1 else ""
    says = f"What became of the steps; aborted ones are among the failed. An expiry is a lease that ran out.{more}"
    yield _card("Runs", says, _table(largest) if largest else plots.nothing())


def _lead_times(rows: Sequence[Row]) -> Iterable[Element]:
    total = {row["span"]: row for row in rows if row["run_id"] is None}
    shown = [
        {"span": says, "steps": row["steps"]}
        | {label: plots.say_ms(row[name]) for name, label in {**PERCENTILES, "max_ms": "longest"}.items()}
        for span, says in SPANS.items()
        if (row := total.get(span))
    ]
    says = "From posted to the last claim, and to the receipt: half of the steps took at most so long, and so on."
    yield _card("Lead times", says, _table(shown) if shown else plots.nothing())


def _requeued(rows: Sequence[Row]) -> Iterable[Element]:
    ordered = sorted(rows, key=lambda row: -row["expiries"])
    most = {_short(row["step_id"]): row["expiries"] for row in ordered[:REASONS_MAX]}
    more = f" The {len(most)} most frequent of {len(rows)}." if len(most) < len(rows) else ""
    says = f"Steps whose leases ran out, by how often.{more}"
    yield _card("Lease expiries", says, plots.ranking(most, "expiries"))


def _outages(rows: Sequence[Row]) -> Iterable[Element]:
    latest = [_came_through(row) for row in rows[:OUTAGES_MAX]]
    more = f" The latest {OUTAGES_MAX} of {len(rows)}." if len(rows) > OUTAGES_MAX else ""
    says = (
        "When the upstream was away, what had to wait for it, and how that went. What is in conflict or dead waits"
        f" for an operator; what was coalesced, a later write made needless.{more}"
    )
    yield _card("Outages", says, _table(latest) if latest else plots.nothing())


def _came_through(row: Row) -> Row:
    counts = {
        name: row[name] for name in ("envelopes", "queued", "acked", "conflict", "dead", "cancelled", "coalesced")
    }
    spans = {"away": row["away_ms"], "replay": row["replay_ms"], "oldest wait": row["oldest_wait_ms"]}
    rate = row["acked_per_s"]
    return {
        "began": plots.say_time(row["began_at"]),
        **{name: "" if span is None else plots.say_ms(span) for name, span in spans.items()},
        **counts,
        "acked a second": "" if rate is None else plots.say_number(rate),
        "longest lane": row["longest_lane"],
    }


def _envelopes(rows: Sequence[Row]) -> Iterable[Element]:
    states = {"acked": "done", "queued": "pending", "sending": "inflight", "conflict": "conflict", "dead": "dead"}
    shown = [
        {"class": name}
        | {
            word: _sums(rows, "route_class", "envelopes", status=state).get(name, 0)
            for word, state in states.items()
        }
        | {"cancelled": _sums(rows, "route_class", "envelopes", status="aborted").get(name, 0)}
        for name in sorted({row["route_class"] for row in rows})
    ]
    says = "What became of all writes that ever waited here, by the class of their route; coalesced is cancelled."
    yield _card("Writes that waited", says, _table(shown) if shown else plots.nothing())


def _writes(rows: Sequence[Row]) -> Iterable[Element]:
    kinds = sorted(_sums(rows, "kind", "writes").items(), key=lambda pair: (-pair[1], pair[0]))
    most = {kind for kind, _ in kinds[:WRITTEN_MAX]}
    told = [{**row, "kind": row["kind"] if row["kind"] in most else "others"} for row in rows]
    names = dict.fromkeys([kind for kind, _ in kinds if kind in most] + [row["kind"] for row in told])
    series = {kind: _sums(told, "hour_at", "writes", kind=kind) for kind in names}
    says = "Writes that changed something, by the kind of their row."
    yield _card("Writes", says, plots.bars(series, "writes"), series)


def _short(step_id: str) -> str:
    """Keep the end of an id: that is where steps of one message differ."""
    return step_id if len(step_id) <= STEP_ID_SHOWN else f"…{step_id[-STEP_ID_SHOWN:]}"


def _named(row: Row) -> Row:
    """Name a run, and leave of its counts what fits beside each other; a job's output has all of them."""
    run = "all" if row["run_id"] is None else row["run_id"]
    failed = row["failure"] + row["aborted"]
    return {"run": run, "steps": row["steps"], "done": row["success"], "failed": failed} | {
        name: row[name] for name in ("pending", "leased", "expiries")
    }


_FIGURES: Final = {  # drawn of every store that has them
    "traffic": _traffic,
    "latency": _latency,
    "dead_letters": _dead_letters,
    "members": _members,
    "presence": _presence,
    "endings": _endings,
    "events": _events,
    "runs": _runs,
    "lead_times": _lead_times,
    "requeued": _requeued,
    "outages": _outages,
    "envelopes": _envelopes,
    "writes": _writes,
}


def _sums(rows: Iterable[Row], key: str, value: str, **where: str) -> dict[Any, int]:
    """Add up a column by another, of the rows that have these values."""
    sums: Counter[Any] = Counter()
    for row in rows:
        if all(row[name] == wanted for name, wanted in where.items()):
            sums[row[key]] += row[value]
    return dict(sums)


# --- pieces --------------------------------------------------------------------------------------------


def _card(title: str, says: str, content: Element, series: Iterable[str] = ()) -> Element:
    keys = [
        el(
            "span",
            el("svg", el("rect", width=10, height=10, class_=f"c{i}"), viewBox="0 0 10 10"),
            name,
            class_="key",
        )
        for i, name in enumerate(series)
    ]
    return el(
        "figure", el("h3", title), el("p", says, class_="faint"), content, each("figcaption", keys), class_="card"
    )


def _table(rows: Sequence[Row]) -> Element:
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name: "n" for name in names if all(isinstance(row.get(name), int) for row in rows)}
    head = each("tr", (el("th", name, class_=numeric.get(name)) for name in names))
    body = (each("tr", (el("td", _say(row.get(name)), class_=numeric.get(name)) for name in names)) for row in rows)
    return el("div", el("table", head, *body), class_="scroll")


def _say(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
