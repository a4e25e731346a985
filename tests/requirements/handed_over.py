"""Of contract 4, Q3: what can go wrong with work that is acked as handed over to a ledger."""

from typing import Final

from tests.requirements.model import Fault

_CALLS = "tests/integration/test_broker_calls.py"
_DELIVERY = "tests/acceptance/test_delivery.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_UPKEEP = "tests/contract/broker/test_upkeep_contract.py"
_WORK = "tests/contract/broker/test_work_contract.py"

HANDED_OVER: Final = (
    Fault(
        what="Work that was handed over counts as done.",
        file="broker/policy.py",
        old="return DeliveryState.DELIVERED if handed_over and not held.is_acted else DeliveryState.ACTED",
        new="return DeliveryState.DELIVERED if handed_over and held.is_acted else DeliveryState.ACTED",
        test=f"{_WORK}::test_what_is_handed_over_is_leased_no_more_and_stays_delivered",
    ),
    Fault(
        what="Work that was handed over comes back when its lease ends.",
        file="broker/stores/sqlite/work.py",
        old='_apply(connection, "settle", held.place, held.place.token)',
        new='asked.handed_over or _apply(connection, "settle", held.place, held.place.token)',
        test=f"{_WORK}::test_what_is_handed_over_is_leased_no_more_and_stays_delivered",
    ),
    Fault(
        what="Work that was handed over comes back, at the brokers of one database.",
        file="broker/stores/postgres/work.sql",
        old="-- Nobody will lease it again, and it is not acted yet. The owner stays: it may answer for it.\n"
        "UPDATE mesh.queue_lease SET is_settled = true",
        new="-- Nobody will lease it again, and it is not acted yet. The owner stays: it may answer for it.\n"
        "UPDATE mesh.queue_lease SET is_settled = false",
        test=f"{_WORK}::test_what_is_handed_over_is_leased_no_more_and_stays_delivered",
    ),
    Fault(
        what="Anybody's reply says that work which was handed over is done.",
        file="broker/stores/sqlite/accept.sql",
        old="AND l.owner_id = ?3 AND l.is_settled = 1",
        new="AND l.is_settled = 1",
        test=f"{_WORK}::test_the_reply_of_who_handed_it_over_makes_it_acted_and_nobody_elses_does",
    ),
    Fault(
        what="Anybody's reply says so, at the brokers of one database.",
        file="broker/stores/postgres/accept.sql",
        old="l.owner_id = r.sender_id AND l.is_settled",
        new="l.is_settled",
        test=f"{_WORK}::test_the_reply_of_who_handed_it_over_makes_it_acted_and_nobody_elses_does",
    ),
    Fault(
        what="A reply to work that is still leased, and may be lost, says that it is done.",
        file="broker/stores/sqlite/accept.sql",
        old="AND l.owner_id = ?3 AND l.is_settled = 1",
        new="AND l.owner_id = ?3",
        test=f"{_WORK}::test_a_reply_to_work_that_is_only_leased_changes_nothing",
    ),
    Fault(
        what="A reply to work that is still leased says so, at the brokers of one database.",
        file="broker/stores/postgres/accept.sql",
        old="l.owner_id = r.sender_id AND l.is_settled",
        new="l.owner_id = r.sender_id",
        test=f"{_WORK}::test_a_reply_to_work_that_is_only_leased_changes_nothing",
    ),
    Fault(
        what="The reply that says what became of work which was handed over is not noted.",
        file="broker/stores/sqlite/accept.sql",
        old="CASE h.kind WHEN 'queue' THEN 0 ELSE ?3 END",
        new="?3",
        test=f"{_DELIVERY}::test_work_that_was_handed_over_is_acted_only_with_the_reply_of_who_did_that",
    ),
    Fault(
        what="Whoever held what retention gave up answers for it.",
        file="broker/stores/sqlite/accept.sql",
        old="(d.dead_at IS NULL AND EXISTS (",
        new="(EXISTS (",
        test=f"{_UPKEEP}::test_work_that_retention_gave_up_is_neither_handed_over_nor_answered_by_who_held_it",
    ),
    Fault(
        what="Whoever held what retention gave up answers for it, at the brokers of one database.",
        file="broker/stores/postgres/accept.sql",
        old="(d.dead_at IS NULL AND l.owner_id",
        new="(l.owner_id",
        test=f"{_UPKEEP}::test_work_that_retention_gave_up_is_neither_handed_over_nor_answered_by_who_held_it",
    ),
    Fault(
        what="What retention gave up while it was leased counts as handed over.",
        file="broker/policy.py",
        old="return self.is_settled and not self.is_acted and not self.is_dead",
        new="return self.is_settled and not self.is_acted",
        test=f"{_UPKEEP}::test_work_that_retention_gave_up_is_neither_handed_over_nor_answered_by_who_held_it",
    ),
    Fault(
        what="What another broker is just now giving up counts as handed over.",
        file="broker/stores/postgres/work.py",
        old='if row is not None and row["is_settled"]:',
        new='if row is not None and row["is_dead"]:',
        test=f"{_PAIR_RACES}::test_work_that_is_just_now_given_up_as_too_old_is_neither_done_nor_handed_over",
    ),
    Fault(
        what="What was handed over is a dead letter when it is old, although a ledger has it.",
        file="broker/stores/sqlite/upkeep.sql",
        old="l.history_id = ?2 AND l.is_settled = 1",
        new="l.history_id = ?2 AND l.is_settled = 2",
        test=f"{_UPKEEP}::test_what_was_handed_over_goes_when_it_is_old_and_is_no_dead_letter",
    ),
    Fault(
        what="What was handed over is a dead letter when it is old, at the brokers of one database.",
        file="broker/stores/postgres/upkeep.sql",
        old=" AND l.is_settled IS NOT TRUE",
        new="",
        test=f"{_UPKEEP}::test_what_was_handed_over_goes_when_it_is_old_and_is_no_dead_letter",
    ),
    Fault(
        what="What was handed over can be acked only while its lease would have lasted.",
        file="broker/policy.py",
        old=" and _is_holders(held, claim) else",
        new=" and _is_holders(held, claim) and now_ms < held.expires_at_ms else",
        test=f"{_WORK}::test_what_was_handed_over_is_acted_once_and_handing_it_over_again_changes_nothing",
    ),
    Fault(
        what="Whoever likes acks what another has handed over.",
        file="broker/policy.py",
        old=" and _is_holders(held, claim) else",
        new=" else",
        test=f"{_WORK}::test_what_was_handed_over_is_acted_once_and_handing_it_over_again_changes_nothing",
    ),
    Fault(
        what="What a reply made acted was acted when it was acked later.",
        file="broker/stores/postgres/work.sql",
        old=" AND recipient_id = 0 AND acted_at IS NULL",
        new=" AND recipient_id = 0",
        test=f"{_PAIR_RACES}::test_what_is_acked_while_a_reply_makes_it_acted_was_acted_when_the_reply_came",
    ),
    Fault(
        what="A receipt does not say that a ledger has it.",
        file="broker/stores/sqlite/receipts.sql",
        old="coalesce(l.is_settled, 0)",
        new="0",
        test=f"{_WORK}::test_what_is_handed_over_is_leased_no_more_and_stays_delivered",
    ),
    Fault(
        what="The broker takes whatever is handed over for done.",
        file="broker/calls.py",
        old="claim, now, handed_over=args.handed_over)",
        new="claim, now)",
        test=f"{_CALLS}::test_work_that_is_handed_over_is_acted_with_the_workers_reply_and_its_sender_is_told_then",
    ),
    Fault(
        what="The daemon does not say that it was handed over.",
        file="daemon/http/control.py",
        old='passed_on("queue.ack"), AckBody,',
        new='passed_on("queue.ack"), LeaseBody,',
        test=f"{_DELIVERY}::test_work_that_was_handed_over_is_acted_only_with_the_reply_of_who_did_that",
    ),
    Fault(
        what="A program that hands work over acks it as done.",
        file="sdk/asks.py",
        old='body |= {"handed_over": True} if handed_over else {}',
        new="del handed_over",
        test="tests/unit/sdk/test_both_meshes_receiving.py::test_work_that_is_handed_over_is_not_acked_as_done",
    ),
)
