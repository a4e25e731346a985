"""Which jobs there are, what each reads and what it gives: the one place to add one."""

from typing import Final

from claudemesh.pipeline.heads import publish_audit
from claudemesh.pipeline.jobs import (
    audit,
    latency,
    ledger,
    limits,
    orphans,
    presence,
    recovery,
    retention,
    search,
    traffic,
    writes,
)
from claudemesh.pipeline.outputs import Job, Total
from claudemesh.pipeline.plans import publish_plan
from claudemesh.pipeline.shards import publish_archive

_MESH_AND_DAY: Final = ("mesh", "day")

JOBS: Final = {
    job.name: job
    for job in (
        Job(
            name="orphans",
            kind="broker",
            outputs={"orphans": orphans.orphans},
            violations="orphans",
            verdict="what one commit should have kept together",
        ),
        Job(
            name="retention",
            kind="broker",
            outputs={"plan": retention.plan},
            partition_by={"plan": ("mesh",)},
            publish=publish_plan,
        ),
        Job(
            name="audit",
            kind="broker",
            outputs={"heads": audit.heads, "entries": audit.entries},
            partition_by={"entries": _MESH_AND_DAY},
            publish=publish_audit,
            verdict="the past is as the last audit saw it",
        ),
        Job(
            name="limits",
            kind="broker",
            outputs={"senders": limits.senders},
            partition_by={"senders": _MESH_AND_DAY},
        ),
        Job(
            name="latency",
            kind="broker",
            outputs={
                "latency": latency.latency,
                "dead_letters": latency.dead_letters,
                "dead_reasons": latency.dead_reasons,
            },
            totals={"dead_reasons": Total("delivery.dead_letter", "dead_letters")},
            has_figures=True,
        ),
        Job(
            name="search",
            kind="inbox",
            outputs={"documents": search.documents},
            needs_bodies=True,
            publish=publish_archive,
            is_standing=True,
        ),
        Job(
            name="traffic",
            kind="broker",
            outputs={"messages": traffic.messages, "deliveries": traffic.deliveries},
            totals={
                "messages": Total("message_history", "messages"),
                "deliveries": Total("delivery.{state}", "deliveries"),
            },
            has_figures=True,
        ),
        Job(
            name="presence",
            kind="broker",
            outputs={"sessions": presence.sessions, "days": presence.days, "endings": presence.endings},
            partition_by={"sessions": _MESH_AND_DAY},
            has_figures=True,
        ),
        Job(
            name="ledger",
            kind="ledger",
            outputs={
                "runs": ledger.runs,
                "steps": ledger.steps,
                "outcomes": ledger.outcomes,
                "lead_times": ledger.lead_times,
                "requeued": ledger.requeued,
            },
            totals={
                "steps": Total("cassette_steps.{status}", "steps"),
                "outcomes": Total("cassette_receipts.{outcome}", "receipts"),
            },
            has_figures=True,
        ),
        Job(
            name="recovery",
            kind="relay",
            outputs={"outages": recovery.outages, "classes": recovery.classes},
            totals={"classes": Total("outbox.{status}", "envelopes")},
            has_figures=True,
        ),
        Job(
            name="writes",
            kind="hub",
            outputs={"rows": writes.rows, "writes": writes.writes},
            totals={"rows": Total("rows.{kind}.{status}", "rows"), "writes": Total("hub_write", "writes")},
            has_figures=True,
        ),
    )
}
