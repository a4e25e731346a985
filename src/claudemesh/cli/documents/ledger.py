"""What is printed of a ledger, under both of its names."""

from typing import Any, Final

import msgspec

from claudemesh.cli.documents.printed import Printed, one


class Verified(msgspec.Struct, frozen=True):
    ok: bool
    issues: list[str]


class Posted(msgspec.Struct, frozen=True):
    """Always JSON: here `--json FILE` is the payload. `job_id` is the first job's."""

    message_id: str
    job_id: str


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    step_id: str
    job_id: str
    message_id: str
    ordinal: int
    payload: Any
    fencing_token: int
    lease_expires_at: str


class Completed(msgspec.Struct, frozen=True):
    receipt_id: str
    step_id: str
    outcome: str


class RequeuedStep(msgspec.Struct, frozen=True):
    step_id: str
    requeue_id: str


class Requeued(msgspec.Struct, frozen=True):
    requeued: list[RequeuedStep]


class RenewedStep(msgspec.Struct, frozen=True):
    step_id: str
    lease_expires_at: str


class Upgraded(msgspec.Struct, frozen=True):
    """The versions before and after."""

    had: int = msgspec.field(name="from")
    has: int = msgspec.field(name="to")


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Always JSON: the end of the chain, signed, to be kept where the ledger is not."""

    kind: str
    ledger_id: str
    seq: int
    hash: str
    at: str
    pubkey: str
    signature: str


class ListedStep(msgspec.Struct, frozen=True, kw_only=True):
    place: int
    run_id: str
    message_id: str
    job_id: str
    intent: str
    step_id: str
    job_ordinal: int
    ordinal: int
    is_expired: bool
    status: str
    lease_owner: str | None
    lease_expires_at: str | None
    fencing_token: int
    receipt_id: str | None
    outcome: str | None
    posted_at: str
    completed_at: str | None


class Steps(msgspec.Struct, frozen=True):
    steps: list[ListedStep]
    next_after: int | None


_VERBS: Final = {
    "verify": one(Verified, exits={1: "something is wrong"}),
    "post": one(Posted),
    "claim": one(Claimed),
    "complete": one(Completed),
    "requeue": one(Requeued),
    "renew": one(RenewedStep),
    "upgrade": one(Upgraded),
    "head": one(Head),
    "list": one(Steps),
}

PRINTED: dict[str, Printed] = {
    f"{group} {verb}": printed
    for group in ("claudemesh ledger", "cortex cassette")
    for verb, printed in _VERBS.items()
}
