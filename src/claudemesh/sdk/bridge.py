"""A queue of the mesh worked through a ledger: posted once, claimed, receipted, and answered with the receipt.

    queue ──lease──▶ ledger: post, under the message's id ──▶ note in `handed-over/` ──▶ ack: handed over
                     ledger: claim ──▶ the caller works ──▶ receipt ──▶ ack once more ──▶ reply, note removed

Each arrow may be the last before a crash. A message that is leased again is the same post. A note is of one lease
of the queue: it is answered only after the queue has confirmed that this lease handed the message over, so that no
reply comes too early to count; a note whose lease was lost is dropped, since whoever has the next one answers. The
reply has the receipt's id, so that a daemon takes it once. Whoever handed a message over answers for it, whoever
did the work.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from claudemesh.kernel.errors import (
    DependencyError,
    LeaseLost,
    MeshError,
    NoDaemon,
    NoPendingSteps,
    NotFound,
    RequestError,
)
from claudemesh.ledger import MessageCassette, policy
from claudemesh.ledger.api import TTL_S_DEFAULT
from claudemesh.sdk import notes
from claudemesh.sdk.notes import Note

Json = dict[str, Any]

RECEIPT_BYTES_MAX: Final = 64 * 1024  # a larger one stays in the ledger, and the reply says so


class Mesh(Protocol):
    """What is asked of a daemon."""

    def queue_work(self, queue: str) -> Json | None: ...

    def queue_ack(self, queue: str, broker_message_id: str, token: int, *, handed_over: bool = False) -> Json: ...

    def send(
        self,
        to: str,
        message: str,
        *,
        meta: Json | None = None,
        reply_to_id: str | None = None,
        client_message_id: str | None = None,
    ) -> Json: ...


@dataclass(slots=True)
class Task:
    """A message of a queue that a worker holds in a ledger."""

    message: Json  # as it was posted
    run_id: str
    step_id: str
    worker_id: str
    fencing_token: int
    lease_expires_at: str


@dataclass(frozen=True, slots=True)
class LedgerQueue:
    mesh: Mesh
    ledger: MessageCassette
    slug: str
    queue: str
    worker_id: str
    state_dir: Path  # of the mesh
    warn: Callable[[str], None]

    @property
    def run_id(self) -> str:
        """Return the run that the queue's messages are posted in, whoever posts them."""
        return f"queue:{self.queue}@{self.slug}"

    def take(self, ttl_seconds: float = TTL_S_DEFAULT) -> Task | None:
        """Bring one message from the queue into the ledger, and claim the first step there; None if there is none.

        What a worker left behind whose lease expired can be claimed again first. Whatever could refuse it is asked
        before the queue is: a message that comes back too often is a dead letter there. While the queue cannot be
        asked, what the ledger has is worked on.
        """
        policy.render_ttl(ttl_seconds)
        self.ledger.requeue_expired(self.run_id)  # refused if the schema is not the law's, or that of version 1
        self.answer()
        unreachable = self._try_to_hand_over()
        try:
            step = self.ledger.claim_step(self.run_id, self.worker_id, ttl_seconds)
        except NoPendingSteps:
            if unreachable is not None:
                raise unreachable from None
            return None
        if unreachable is not None:
            self.warn(f"the queue cannot be asked for more now: {unreachable}")
        held = (step["step_id"], self.worker_id, step["fencing_token"], step["lease_expires_at"])
        return Task(_read_message(step["payload"]), self.run_id, *held)

    def find(self, broker_message_id: str, fencing_token: int) -> Task:
        """Return what was taken earlier, by the message's id and the lease's token."""
        step = self.ledger.find_step(self.run_id, broker_message_id)
        held = (step["step_id"], self.worker_id, fencing_token, step["lease_expires_at"] or "")
        return Task(_read_message(step["payload"]), self.run_id, *held)

    def renew(self, task: Task, ttl_seconds: float) -> None:
        claim = (task.run_id, task.step_id, task.worker_id, task.fencing_token)
        task.lease_expires_at = self.ledger.renew_lease(*claim, ttl_seconds)

    def complete(self, task: Task, receipt: object, outcome: str) -> str:
        """Write the receipt, and send it to whoever sent the message, now or with the next call; return its id."""
        claim = (task.run_id, task.step_id, task.worker_id, task.fencing_token)
        receipt_id = self.ledger.complete_step(*claim, receipt, outcome)
        self.answer()
        return receipt_id

    def answer(self) -> int:
        """Send what is due: the receipts of messages that were handed over from here. Return how many.

        What cannot be sent now stays noted, and keeps nobody from working.
        """
        mine = (self.ledger.read_id(), self.run_id)
        answered = 0
        for note in notes.read_all(self.state_dir, self.warn):
            if (note.ledger_id, note.run_id) == mine:
                try:
                    answered += self._answer_one(note)
                except MeshError as error:
                    self.warn(f"the receipt of {note.broker_message_id} will be sent later: {error}")
        return answered

    def _try_to_hand_over(self) -> MeshError | None:
        try:
            self._hand_over()
        except (DependencyError, NoDaemon) as error:
            return error
        return None

    def _hand_over(self) -> None:
        leased = self.mesh.queue_work(self.queue)
        if leased is None:
            return
        # Nothing of the lease, nor what may change between two: whoever leases it next posts the very same.
        payload = {
            "intent": f"queue:{self.queue}",
            "mesh": self.slug,
            **{name: leased.get(name) for name in ("broker_message_id", "client_message_id", "from", "body")},
            **{name: leased[name] for name in ("meta", "reply_to_id") if leased.get(name)},
        }
        message_id, token = leased["broker_message_id"], leased["lease_token"]
        self.ledger.post_message(payload, self.run_id, "SYSTEM", idempotency_key=message_id)
        note = Note(self.ledger.read_id(), self.run_id, message_id, token, leased["from"])
        notes.write(self.state_dir, note)
        if self._confirm(note):
            self._answer_one(note)  # it may have been done before, by a worker that could not say so

    def _confirm(self, note: Note) -> bool:
        """Tell the queue that the message was handed over; False if the lease was lost, and with it the answer."""
        try:
            self.mesh.queue_ack(self.queue, note.broker_message_id, note.lease_token, handed_over=True)
        except (LeaseLost, NotFound):  # another lease has it by now, or it was too old to be kept
            notes.drop(self.state_dir, note)
            return False
        return True

    def _answer_one(self, note: Note) -> bool:
        receipts = self.ledger.find_receipts(note.run_id, note.broker_message_id)
        if not receipts or not self._confirm(note):
            return False
        try:
            self._reply(note, receipts[0])
        except RequestError as error:
            if error.retry != "no":
                raise
            self.warn(f"the receipt of {note.broker_message_id} cannot be sent to {note.to}: {error}")
            with suppress(LeaseLost):  # done it is all the same
                self.mesh.queue_ack(self.queue, note.broker_message_id, note.lease_token)
        notes.drop(self.state_dir, note)
        return True

    def _reply(self, note: Note, receipt: Json) -> None:
        said = {name: receipt[name] for name in ("receipt_id", "outcome", "receipt")}
        body = json.dumps(said, sort_keys=True)  # in ASCII: a receipt may hold half a surrogate pair
        if len(body) > RECEIPT_BYTES_MAX:
            body = json.dumps({**said, "receipt": None, "is_too_large": True}, sort_keys=True)
        self.mesh.send(
            note.to,
            body,
            meta={"receipt_id": receipt["receipt_id"], "outcome": receipt["outcome"]},
            reply_to_id=note.broker_message_id,
            client_message_id=f"receipt-{receipt['receipt_id']}",
        )


def _read_message(payload: object) -> Json:
    """Return what is to be done; what others posted in this run by hand is shown as a body."""
    return payload if isinstance(payload, dict) else {"body": json.dumps(payload)}
