"""The generated pages on what can be observed: every metric, and every event that a log may hold."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec

import claudemesh
from claudemesh.broker.metering import BrokerMetrics
from claudemesh.daemon.metrics import DaemonMetrics
from claudemesh.edge.metrics import EdgeMetrics
from claudemesh.hub.metering import HubMetrics
from claudemesh.pipeline.metrics import ABOUT
from claudemesh.runtime.metrics import Described
from claudemesh.runtime.observe import level_of
from tools.made import MADE

MARK = "name: ClassVar[str] = "  # how an event says its name
OPEN = ("…",)  # of a label whose values are the installation's own

WHERE = {
    "daemon": "`GET /v1/metrics` at its socket, or at its port with the local token.",
    "broker": "`GET /v1/metrics`, without a token.",
    "hub": "`GET /metrics`.",
    "relay": "`GET /metrics`.",
    "pipeline": "The file `metrics.prom` in the lake, for a textfile collector.",
}
PARTS = {
    "daemon": "The daemon, in `daemon.log` of its state directory",
    "dashboard": "The dashboard, in the log of the daemon that serves it",
    "mcp": "The MCP server, on standard error, which its host keeps",
    "broker": "The broker, on standard error",
    "edge": "The relay, in `edge/edge.log`",
    "hub": "The hub, on standard error",
    "idempotency": "The middleware for writes, in the log of whatever it runs in",
    "http": "Every HTTP surface, in the log of whoever serves it",
    "runtime": "Every process",
}


def described() -> dict[str, Sequence[Described]]:
    """Return every metric by the part that has it."""
    nothing = MagicMock()
    return {
        "daemon": DaemonMetrics(nothing, nothing).metrics.described,
        "broker": BrokerMetrics().metrics.described,
        "hub": HubMetrics().metrics.described,
        "relay": EdgeMetrics(nothing, nothing, nothing).metrics.described,
        "pipeline": [
            Described(name, "gauge", dict.fromkeys(labels, OPEN), meaning)
            for name, (labels, meaning) in ABOUT.items()
        ],
    }


def metrics_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Metrics",
        "",
        "In the text format of Prometheus. A label has the values that are listed and no others, and every series",
        "is there from the start with 0, so that a counter's first step is seen. Counters begin anew with the",
        "process.",
        "What to watch, and what to do then, is in [Monitor it](../how-to/monitor.md).",
    )
    for part, metrics in described().items():
        yield from ("", f"## The {part}", "", WHERE[part], "")
        yield from ("| name | type | labels | meaning |", "|---|---|---|---|")
        for one in metrics:
            yield f"| `{one.name}` | {one.kind} | {_labels(one.labels)} | {one.meaning} |"


def _labels(labels: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"`{name}`: {', '.join(values)}" for name, values in labels.items())


def events() -> list[type[Any]]:
    """Return every event class of the sources, by its name in the log."""
    root = Path(claudemesh.__path__[0])
    found: list[type[Any]] = []
    for path in root.rglob("*.py"):
        if MARK in path.read_text(encoding="utf-8"):
            parts = path.relative_to(root).with_suffix("").parts
            module = importlib.import_module(".".join(("claudemesh", *parts)))
            found += [
                one
                for one in vars(module).values()
                if isinstance(one, type) and one.__module__ == module.__name__ and _is_event(one)
            ]
    return sorted(found, key=lambda event: str(event.name))


def _is_event(one: type[Any]) -> bool:
    is_value = dataclasses.is_dataclass(one) or issubclass(one, msgspec.Struct)
    return is_value and isinstance(vars(one).get("name"), str)


def meaning_of(event: type[Any]) -> str:
    """Return when it happens, in its own words; nothing, if it has none."""
    text = inspect.cleandoc(event.__doc__ or "")
    return "" if text.startswith(f"{event.__name__}(") else " ".join(text.partition("\n\n")[0].split())


def _fields(event: type[Any]) -> tuple[str, ...]:
    if issubclass(event, msgspec.Struct):
        return tuple(event.__struct_fields__)
    return tuple(field.name for field in dataclasses.fields(event))


def events_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Events in the logs",
        "",
        "A log is lines of JSON: `at` (UTC, milliseconds), `level`, `event`, and the fields of that event. Names",
        "stay; fields may be added. Bodies, keys and tokens are in no event. Those of level `debug` happen with",
        "every request: they are counted in the [metrics](metrics.md), and a log does not hold them.",
        "",
        "```json",
        '{"at":"2026-03-01T12:00:00.000Z","level":"warning","event":"daemon.row_died","reason":"too_old",…}',
        "```",
    )
    by_part: dict[str, list[type[Any]]] = {part: [] for part in PARTS}
    for event in events():
        by_part[str(event.name).partition(".")[0]].append(event)
    for part, found in by_part.items():
        yield from ("", f"## {PARTS[part]}", "", "| event | level | fields | when |", "|---|---|---|---|")
        for event in found:
            fields = ", ".join(f"`{name}`" for name in _fields(event))
            yield f"| `{event.name}` | {level_of(event)} | {fields} | {meaning_of(event)} |"
