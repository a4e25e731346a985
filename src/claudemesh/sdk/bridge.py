"""A queue of the mesh worked through a ledger: posted once, claimed, receipted, and answered with the receipt.

    queue ──lease──▶ ledger: post, under the message's id ──▶ note in `handed-over/` ──▶ ack: handed over
                     ledger: claim ──▶ the caller works ──▶ receipt ──▶ reply to the sender, note removed

Each arrow may be the last before a crash, and each is safe to take again: a message that is leased again is the
same post, a note without an ack is answered as any other, and a reply has the receipt's id, so that the daemon
takes it once. Whoever handed a message over answers for it, whoever did the work: the note is in the home that did.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from claudemesh.kernel.errors import ConfigError, LeaseLost, NoPendingSteps, RequestError
from claudemesh.ledger import MessageCassette
from claudemesh.ledger.api import TTL_S_DEFAULT
from claudemesh.runtime.home import ensure_private_dir, read_private, write_private

Json = dict[str, Any]

NOTES: Final = "handed-over"

_REQUEUED_SINCE: Final = 2


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

        What a worker left behind whose lease expired can be claimed again first.
        """
        self._hand_over()
        self.answer()
        if self.ledger.read_version() == _REQUEUED_SINCE:
            self.ledger.requeue_expired(self.run_id)
        try:
            step = self.ledger.claim_step(self.run_id, self.worker_id, ttl_seconds)
        except NoPendingSteps:
            return None
        held = (step["step_id"], self.worker_id, step["fencing_token"], step["lease_expires_at"])
        return Task(step["payload"], self.run_id, *held)

    def find(self, broker_message_id: str, fencing_token: int) -> Task:
        """Return what was taken earlier, by the message's id and the lease's token."""
        step = self.ledger.find_step(self.run_id, broker_message_id)
        held = (step["step_id"], self.worker_id, fencing_token, step["lease_expires_at"] or "")
        return Task(step["payload"], self.run_id, *held)

    def renew(self, task: Task, ttl_seconds: float) -> None:
        claim = (task.run_id, task.step_id, task.worker_id, task.fencing_token)
        task.lease_expires_at = self.ledger.renew_lease(*claim, ttl_seconds)

    def complete(self, task: Task, receipt: object, outcome: str) -> str:
        """Write the receipt, and send it to whoever sent the message; return its id."""
        claim = (task.run_id, task.step_id, task.worker_id, task.fencing_token)
        receipt_id = self.ledger.complete_step(*claim, receipt, outcome)
        self.answer()
        return receipt_id

    def answer(self) -> int:
        """Send what is due: the receipts of messages that were handed over from here. Return how many."""
        answered = 0
        for path in sorted((self.state_dir / NOTES).glob("*.json")):
            answered += self._answer_one(path)
        return answered

    def _hand_over(self) -> None:
        leased = self.mesh.queue_work(self.queue)
        if leased is None:
            return
        # Nothing of the lease: whoever leases it next posts the very same.
        payload = {
            "intent": f"queue:{self.queue}",
            "mesh": self.slug,
            **{name: leased.get(name) for name in ("broker_message_id", "client_message_id", "from", "body")},
            **{name: leased[name] for name in ("meta", "reply_to_id") if leased.get(name)},
        }
        message_id = leased["broker_message_id"]
        self.ledger.post_message(payload, self.run_id, "SYSTEM", idempotency_key=message_id)
        note = {"ledger": str(self.ledger.path.absolute()), "run_id": self.run_id, "to": leased["from"]}
        path = self.state_dir / NOTES / f"{message_id}.json"
        ensure_private_dir(path.parent)
        write_private(path, json.dumps(note).encode())
        try:
            self.mesh.queue_ack(self.queue, message_id, leased["lease_token"], handed_over=True)
        except LeaseLost:  # another worker has it by now, posts the same, and answers for it
            path.unlink(missing_ok=True)

    def _answer_one(self, path: Path) -> bool:
        try:
            note = json.loads(read_private(path))
            place, run_id, to = note["ledger"], note["run_id"], note["to"]
        except FileNotFoundError:  # another worker of this home has just answered it
            return False
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path} is not a note of a message that was handed over: {error}") from error
        if (place, run_id) != (str(self.ledger.path.absolute()), self.run_id):
            return False
        receipts = self.ledger.find_receipts(run_id, path.stem)
        if not receipts:
            return False
        try:
            self._reply(to, path.stem, receipts[0])
        except RequestError as error:
            if error.retry != "no":
                raise
            self.warn(f"the receipt of {path.stem} cannot be sent to {to}: {error}")
        path.unlink(missing_ok=True)
        return True

    def _reply(self, to: str, message_id: str, receipt: Json) -> None:
        said = {name: receipt[name] for name in ("receipt_id", "outcome", "receipt")}
        self.mesh.send(
            to,
            json.dumps(said, ensure_ascii=False, sort_keys=True),
            meta={"receipt_id": receipt["receipt_id"], "outcome": receipt["outcome"]},
            reply_to_id=message_id,
            client_message_id=f"receipt-{receipt['receipt_id']}",
        )
