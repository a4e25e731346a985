"""Which jobs there are, what each reads and what it gives: the one place to add one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyspark.sql import DataFrame

from claudemesh.pipeline.jobs import audit, latency, limits, orphans, retention, search, traffic
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables

Output: TypeAlias = Callable[[Tables, Params], DataFrame]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    kind: str  # of the sources that it reads
    outputs: Mapping[str, Output]
    violations: str | None = None  # the output whose rows are violations
    partition_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of an output, its columns


_MESH_AND_DAY: Final = ("mesh", "day")

JOBS: Final = {
    job.name: job
    for job in (
        Job("orphans", "broker", {"orphans": orphans.orphans}, violations="orphans"),
        Job("retention", "broker", {"plan": retention.plan}, partition_by={"plan": ("mesh",)}),
        Job(
            "audit",
            "broker",
            {"heads": audit.heads, "entries": audit.entries},
            partition_by={"entries": _MESH_AND_DAY},
        ),
        Job("limits", "broker", {"senders": limits.senders}, partition_by={"senders": _MESH_AND_DAY}),
        Job(
            "latency",
            "broker",
            {
                "latency": latency.latency,
                "dead_letters": latency.dead_letters,
                "dead_reasons": latency.dead_reasons,
            },
        ),
        Job("search", "inbox", {"documents": search.documents}),
        Job("traffic", "broker", {"messages": traffic.messages, "deliveries": traffic.deliveries}),
    )
}
