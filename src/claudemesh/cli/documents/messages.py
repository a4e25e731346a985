"""What is printed of messages: sent, received, traced, and worked from a queue."""

from typing import Any

import msgspec

from claudemesh.cli.documents.printed import Printed, lines, one
from claudemesh.daemon.http.control import GivenBack, Made, Queues, Renewed, Settled, Work
from claudemesh.daemon.http.inbox import InboxPage, ShownMessage
from claudemesh.daemon.http.sends import SendAnswer
from claudemesh.daemon.tracing import Trace


class SendWaited(SendAnswer, frozen=True, omit_defaults=True, kw_only=True):
    """And how far the message came: `reached` says whether that is as far as was asked."""

    state: str
    waited_for: str
    reached: bool


class ArchivedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the pipeline keeps it; `source` is the inbox that it was copied from."""

    client_message_id: str
    broker_message_id: str
    history_id: int
    sender: str = msgspec.field(name="from")
    from_name: str
    topic: str | None
    body: str
    meta: dict[str, Any] | None
    priority: str
    reply_to_id: str | None
    accepted_at: str
    received_at: str
    cursor: str
    source: str


class ArchivePage(msgspec.Struct, frozen=True):
    messages: list[ArchivedMessage]
    next_cursor: str | None


class LedgeredWork(msgspec.Struct, frozen=True, kw_only=True):
    """A message with the step of the ledger that it became; the last three if a command worked on it."""

    client_message_id: str
    broker_message_id: str
    sender: str = msgspec.field(name="from")
    body: str
    meta: dict[str, Any] | None
    lease_token: int
    lease_expires_at: str
    run_id: str
    step_id: str
    worker_id: str
    receipt_id: str | msgspec.UnsetType = msgspec.UNSET
    outcome: str | msgspec.UnsetType = msgspec.UNSET
    receipt: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Receipted(msgspec.Struct, frozen=True):
    id: str
    receipt_id: str
    outcome: str


PRINTED: dict[str, Printed] = {
    "claudemesh send": one(SendAnswer),
    "claudemesh send --wait": one(
        SendWaited, exits={1: "it did not get there in time, or cannot", 130: "Ctrl-C ended the wait: it was taken"}
    ),
    "claudemesh inbox": one(InboxPage),
    "claudemesh inbox --follow": lines(ShownMessage),
    "claudemesh inbox --archive": one(ArchivePage),
    "claudemesh trace": one(Trace),
    "claudemesh queue list": one(Queues),
    "claudemesh queue create": one(Made),
    "claudemesh queue work": one(Work, None),
    "claudemesh queue work --ledger": one(
        LedgeredWork, None, exits={1: "it was printed, and could not be completed"}
    ),
    "claudemesh queue ack": one(Settled),
    "claudemesh queue ack --ledger": one(Receipted),
    "claudemesh queue nack": one(GivenBack),
    "claudemesh queue renew": one(Renewed),
}
