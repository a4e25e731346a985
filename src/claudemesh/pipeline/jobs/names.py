"""What the jobs are called, for who names them before Spark is loaded; what they are is in the registry."""

from typing import Final

NAMES: Final = (
    "orphans",
    "retention",
    "audit",
    "limits",
    "latency",
    "search",
    "traffic",
    "presence",
    "ledger",
    "recovery",
    "writes",
)
