"""Of contract 6, L9: what can go wrong between a queue and a ledger."""

from typing import Final

from tests.requirements.model import Fault

_ACCEPTANCE = "tests/acceptance/test_ledgered_queue.py"
_BRIDGE = "tests/unit/sdk/test_bridge.py"

_CRASH = f"{_BRIDGE}::test_after_a_crash_anywhere_the_message_is_in_the_ledger_once_and_is_answered_once"
_COMMAND = (
    f"{_ACCEPTANCE}::test_a_command_does_the_work_under_a_lease_that_is_renewed_and_its_status_is_the_outcome"
)

LEDGERED: Final = (
    Fault(
        what="A message that comes again is another post.",
        file="sdk/bridge.py",
        old='"SYSTEM", idempotency_key=message_id)',
        new='"SYSTEM")',
        test=_CRASH,
    ),
    Fault(
        what="What is posted says how the sender is called just now, so that a message conflicts with itself.",
        file="sdk/bridge.py",
        old='"client_message_id", "from", "body")},',
        new='"client_message_id", "from", "from_name", "body")},',
        test=_CRASH,
    ),
    Fault(
        what="The queue is acked before anything says that an answer is due.",
        file="sdk/bridge.py",
        old="        notes.write(self.state_dir, note)\n",
        new="        self._confirm(note)\n        notes.write(self.state_dir, note)\n",
        test=f"{_BRIDGE}::test_what_is_about_to_be_acked_is_noted_before",
    ),
    Fault(
        what="A message is answered before the queue knows that it was handed over, and the answer does not count.",
        file="sdk/bridge.py",
        old="if not receipts or not self._confirm(note):",
        new="if not receipts:",
        test=_CRASH,
    ),
    Fault(
        what="A reply has another id with every try.",
        file="sdk/bridge.py",
        old="client_message_id=f\"receipt-{receipt['receipt_id']}\",",
        new='client_message_id=f"receipt-{note.lease_token}-{id(self)}",',
        test=_CRASH,
    ),
    Fault(
        what="A reply that could not be sent for now is given up.",
        file="sdk/bridge.py",
        old='        except RequestError as error:\n            if error.retry != "no":\n                raise\n',
        new="        except MeshError as error:\n",
        test=f"{_BRIDGE}::test_a_reply_waits_while_nobody_can_be_reached_and_the_step_is_done_all_the_same",
    ),
    Fault(
        what="A message whose sender is gone is never done.",
        file="sdk/bridge.py",
        old="self.mesh.queue_ack(self.queue, note.broker_message_id, note.lease_token)",
        new="pass",
        test=f"{_BRIDGE}::test_a_sender_who_is_gone_gets_no_reply_and_its_message_is_done",
    ),
    Fault(
        what="A message that was completed is answered with every look.",
        file="sdk/bridge.py",
        old="        notes.drop(self.state_dir, note)\n        return True",
        new="        return True",
        test=f"{_BRIDGE}::test_a_receipt_that_somebody_else_wrote_is_sent_too",
    ),
    Fault(
        what="Two workers of a home share a note, and the slower one drops it.",
        file="sdk/notes.py",
        old='f"{_stem(self.broker_message_id)}.{self.lease_token}.json"',
        new='f"{_stem(self.broker_message_id)}.0.json"',
        test=f"{_BRIDGE}::test_a_worker_that_lost_the_queues_lease_leaves_the_answer_and_the_note_to_whoever_has_it",
    ),
    Fault(
        what="The queue's message counts as done when the ledger has it.",
        file="sdk/bridge.py",
        old="note.lease_token, handed_over=True)",
        new="note.lease_token)",
        test=f"{_ACCEPTANCE}::test_what_is_held_is_completed_later_and_whoever_handed_it_over_answers_for_it",
    ),
    Fault(
        what="The receipt is a message of its own, and answers nothing.",
        file="sdk/bridge.py",
        old="reply_to_id=note.broker_message_id,",
        new="reply_to_id=None,",
        test=_CRASH,
    ),
    Fault(
        what="What a worker that died had claimed is never claimed again.",
        file="sdk/bridge.py",
        old="        self.ledger.requeue_expired(self.run_id)",
        new="        self.ledger.list_steps(self.run_id)",
        test=f"{_BRIDGE}::test_the_queue_is_not_asked_before_the_ledger_would_take_a_message",
    ),
    Fault(
        what="A command that runs for longer than its lease loses it.",
        file="runtime/processes.py",
        old="                    beat()\n",
        new="",
        test=_COMMAND,
    ),
    Fault(
        what="A command that failed is receipted as a success.",
        file="cli/ledgered.py",
        old='"FAILURE" if status else "SUCCESS"',
        new='"SUCCESS"',
        test=_COMMAND,
    ),
    Fault(
        what="What a ledger has is acked as done by whoever forgets to say so.",
        file="cli/queue.py",
        old="if place is None and is_noted(",
        new="if place and is_noted(",
        test=f"{_ACCEPTANCE}::test_what_is_held_is_completed_later_and_whoever_handed_it_over_answers_for_it",
    ),
)
