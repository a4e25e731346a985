"""The values of the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SOURCES: Final = ("USER", "PLANNER", "SYSTEM", "WORKER")
OUTCOMES: Final = ("SUCCESS", "FAILURE", "ABORTED")
STATUSES: Final = ("PENDING", "LEASED", "COMMITTED")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    intent: str
    steps: Sequence[str]  # their payloads, as JSON


@dataclass(frozen=True, slots=True)
class Post:
    """A message as it is to be written down."""

    message_id: str
    run_id: str
    source: str
    idempotency_key: str | None
    payload_json: str
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker shows for the step that it holds."""

    run_id: str
    step_id: str
    worker_id: str
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a step ended."""

    receipt_id: str
    outcome: str
    receipt_json: str


@dataclass(frozen=True, slots=True)
class Link:
    """The end of the chain."""

    seq: int
    hash: str
