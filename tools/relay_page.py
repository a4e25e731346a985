"""The generated page on the relay's built-in routes: what each of them is, what is sent and what comes back."""

from collections.abc import Iterator

from claudemesh.edge.policy import EXPECTATIONS
from claudemesh.edge.routing import RouteClass, Rule, load_built_in
from tools.made import MADE

ID = "01JYE0T3M5Q8R2S4V6W7X8Y9ZA"
RECEIPT = '{"queued": true, "outbox_id": "01JYE0V7K2", "idempotency_key": "close-7", "upstream": "unreachable"}'

CLASSES = {
    RouteClass.APPEND: (
        "Adds something of its own. Queued while the upstream is away, replayed under its key, so that it happens",
        "once. It never conflicts with another write.",
    ),
    RouteClass.REPLACE: (
        f"Changes a row. Queued only with an expectation (`{'`, `'.join(EXPECTATIONS)}` or `If-Match`),",
        "behind earlier writes to the same entity. If the row has changed in a way that was not expected, the",
        "envelope is kept as a conflict and nothing is overwritten; unless the row already holds the values.",
    ),
    RouteClass.BULK: (
        "A list of such changes. Each entry becomes an envelope of its own, and needs its own expectation.",
    ),
    RouteClass.ONLINE_ONLY: (
        "Whatever no rule names: DELETE, sync, import, sweeps, exports, administration. Forwarded, and while the",
        "upstream is away refused with `503 not_queueable`; with `504 outcome_unknown` if a byte of it may have",
        "got there.",
    ),
}


def relay_routes_page() -> Iterator[str]:
    policy = load_built_in()
    yield from (
        MADE,
        "",
        "# Routes of the relay",
        "",
        "Made from the built-in policy, `src/claudemesh/edge/routes.toml`. For another API write your own:",
        "[relay your own API](../how-to/relay-your-own-api.md).",
        "",
        "A receipt says that a write waits, and nothing else: it is not done, and may still conflict or be",
        "refused.",
        "",
        "## Classes",
        "",
    )
    for route_class, said in CLASSES.items():
        first, *rest = said
        yield from (f"**{route_class}**: {first}", *rest, "")
    yield from (
        "## Inventory",
        "",
        "Of two writes to one entity that set nothing but the fields under *supersedes* (and expectations), the",
        "earlier need not be sent if it never was. Fields under *strip* are taken out before forwarding and",
        "queueing alike.",
        "",
        "| route | class | entity | supersedes | strip |",
        "|---|---|---|---|---|",
    )
    for rule in policy.rules:
        cells = (f"`{rule.name}`", rule.route_class, _code(rule.entity), _list(rule.supersedes), _list(rule.strip))
        yield f"| {' | '.join(cells)} |"
    yield from (
        "| everything else | online_only | | | |",
        "",
        f"Reads that are passed on: {_list(policy.reads)}.",
        f"Shown as they were, and marked as stale, while the upstream is away: {_list(policy.stale_reads)}.",
        f"Whether it is there is asked at `{policy.probe}`; that it is back is reported with `{policy.recovery}`.",
        "",
        "## Examples",
        "",
    )
    for rule in policy.rules:
        yield from _example(rule)


def _example(rule: Rule) -> Iterator[str]:
    receipt = f"HTTP/1.1 202 Accepted\n\n{RECEIPT}"
    if rule.each is not None:
        receipt = f"HTTP/1.1 202 Accepted            (for each of its {rule.each.list})\n\n{RECEIPT}"
    yield from (
        f"### `{rule.name}`",
        "",
        "```http",
        f"{rule.method} {rule.path.replace('{id}', ID)}",
        "Idempotency-Key: close-7",
        "Content-Type: application/json",
        "",
        rule.example or "",
        "```",
        "",
        "```http",
        receipt,
        "```",
        "",
    )


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(_code, names))
