"""Metrics for Prometheus: declared once, with labels whose values are known beforehand.

This file decides the form: names are `cm_<subsystem>_<noun>_<unit>`, and a label takes its values from a closed
list, so that no caller, least of all a remote one, can make a new time series. Every series is there from the start
with 0, so that a counter's first step is seen. What is counted, and when, is for the subscribers of events.

Each `Metrics` has a registry of its own: several services in one process (in tests, in memory) do not meet.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# Of requests and of what is between them: a tenth of a millisecond to ten seconds.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Labels = Mapping[str, type[Enum] | Sequence[str]]

_NAME: Final = re.compile(r"cm(_[a-z0-9]+){2,}")

M = TypeVar("M", bound=MetricWrapperBase)


class Family(Generic[M]):
    """One metric: a child for each combination of label values, all of them made when it is declared."""

    def __init__(self, metric: M, labels: Labels) -> None:
        values = [_values(of) for of in labels.values()]
        self._children: dict[tuple[str | Enum, ...], M] = (
            {combination: metric.labels(*combination) for combination in product(*values)}
            if labels
            else {(): metric}
        )

    def of(self, *labels: str | Enum) -> M:
        """Return the child for these values, in the order of declaration; KeyError if one was not declared."""
        child = self._children.get(labels)  # found for texts, and for enums that are texts
        if child is not None:
            return child
        return self._children[tuple(str(label.value) if isinstance(label, Enum) else label for label in labels)]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as a reader meets it: for the reference, and for whoever writes a rule about it."""

    name: str
    kind: str  # counter, gauge or histogram
    labels: Mapping[str, Sequence[str]]
    meaning: str


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self.described: list[Described] = []

    def counter(self, name: str, meaning: str, labels: Labels | None = None) -> Family[Counter]:
        if not name.endswith("_total"):
            raise ValueError(f"a counter's name ends in _total, and {name} does not")
        return self._declare(Counter, name, meaning, labels)

    def gauge(
        self, name: str, meaning: str, labels: Labels | None = None, *, read: Callable[[], float] | None = None
    ) -> Family[Gauge]:
        """Declare a gauge that is set, or one without labels whose value `read` tells when it is asked for."""
        family = self._declare(Gauge, name, meaning, labels)
        if read is not None:
            family.of().set_function(read)
        return family

    def histogram(
        self, name: str, meaning: str, labels: Labels | None = None, *, buckets: Iterable[float] = SECONDS
    ) -> Family[Histogram]:
        return self._declare(Histogram, name, meaning, labels, buckets=tuple(buckets))

    def render(self) -> bytes:
        """Return all of them in the text format; its content type is `CONTENT_TYPE`."""
        return generate_latest(_WithoutCreation(self._registry))

    def _declare(
        self, kind: type[M], name: str, meaning: str, labels: Labels | None, **options: object
    ) -> Family[M]:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name} is not of the form cm_<subsystem>_<noun>_<unit>")
        names = tuple(labels or ())
        known = {label: _values(of) for label, of in (labels or {}).items()}
        self.described.append(Described(name, kind.__name__.lower(), known, meaning))
        return Family(kind(name, meaning, names, registry=self._registry, **options), labels or {})  # type: ignore[arg-type]


class _WithoutCreation(Collector):
    """Leaves out when each series was made: the library's own switch for that is global, and not ours to turn."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if s.name != f"{family.name}_created"]
            yield family


def _values(of: type[Enum] | Sequence[str]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in of) if isinstance(of, type) else tuple(of)
