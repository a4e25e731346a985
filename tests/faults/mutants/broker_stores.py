"""In the broker's own stores, SQLite and what both share."""

from tests.requirements import Fault

_ACCEPTS = "tests/contract/broker/test_accept_contract.py"
_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_JOURNAL = "tests/contract/broker/test_journal_contract.py"
_ORACLE = "tests/contract/broker/test_against_oracle.py"
_KEYS = "tests/contract/broker/test_presence_keys_contract.py"
_PLANNED = "tests/contract/broker/test_planned_contract.py"
_SEATS = "tests/contract/broker/test_seat_contract.py"
_UPKEEP = "tests/contract/broker/test_upkeep_contract.py"
_WORK = "tests/contract/broker/test_work_contract.py"

_FORGOTTEN = "the_key_of_an_ended_session_leads_to_its_member_until_the_last_of_its_leases_is_forgotten"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="Keys of sessions are kept for ever.",
        file="broker/stores/sqlite/presence.py",
        old='    connection.executemany(_SQL["forget_key"], leases)\n',
        new="",
        test=f"{_KEYS}::test_{_FORGOTTEN}",
    ),
    Fault(
        what="A session that is there loses its key with an older lease.",
        file="broker/stores/sqlite/presence.sql",
        old="AND session_pubkey = ?2 AND session_pubkey <> '')",
        new="AND session_pubkey = ?2 AND session_pubkey = '')",
        test=f"{_KEYS}::test_{_FORGOTTEN}",
    ),
    Fault(
        what="The transaction trusts what was looked up before it.",
        file="broker/stores/sqlite/accept.py",
        old=("        standing.update(_standing(self._connection, sender.member_id, unknown))\n"),
        new="        del unknown\n",
        test=f"{_ACCEPTS}::test_the_same_id_again_is_a_duplicate_with_the_first_answer_or_a_conflict",
    ),
    Fault(
        what="A key of a member of another mesh is a destination.",
        file="broker/stores/sqlite/accept.sql",
        old="WHERE k.mesh_id = ?1 AND k.pubkey = ?2",
        new="WHERE k.mesh_id > 0 * ?1 AND k.pubkey = ?2",
        test=f"{_ACCEPTS}::test_a_member_of_another_mesh_is_not_there",
    ),
    Fault(
        what="The rows of a post are there, and nobody is told that they wait.",
        file="broker/stores/sqlite/accept.sql",
        old=("SELECT s.member_id, ?1, ?2 FROM topic_subscription AS s\nWHERE s.topic_id = ?3"),
        new=("SELECT s.member_id, ?1, ?2 FROM topic_subscription AS s\nWHERE s.topic_id = -?3"),
        test=f"{_ORACLE}::test_a_store_answers_as_the_oracle_does",
    ),
    Fault(
        what="Whoever replies again is taken to act again.",
        file="broker/stores/sqlite/accept.sql",
        old=" AND d.acted_at IS NULL",
        new="",
        test=f"{_ORACLE}::test_a_store_answers_as_the_oracle_does",
    ),
    Fault(
        what="A message was read when it was last marked, not first.",
        file="broker/stores/sqlite/deliveries.sql",
        old="coalesce(read_at, ?4)",
        new="?4",
        test=f"{_ORACLE}::test_a_store_answers_as_the_oracle_does",
    ),
    Fault(
        what="A subscription begins with all that was ever posted.",
        file="broker/stores/sqlite/topics.py",
        old="(topic_id, one.sender.member_id, history_id))\n        since",
        new="(topic_id, one.sender.member_id, 0))\n        since",
        test=f"{_DELIVERIES}::test_a_subscription_begins_with_the_next_message_and_ends_with_the_last",
    ),
    Fault(
        what="The orphan check does not look for rows whose id is gone.",
        file="broker/stores/sqlite/upkeep.py",
        old='(("rows_without_ids", ()), ("open_without_bits"',
        new='(("open_without_bits"',
        test="tests/contract/broker/test_sqlite_orphans.py::test_a_hole_in_an_accept_is_found",
    ),
    Fault(
        what="A message that is still there passes although its id says that it is gone.",
        file="broker/stores/sqlite/upkeep.sql",
        old="\n    AND d.history_available = 1\n",
        new="\n",
        test="tests/contract/broker/test_sqlite_orphans.py::test_a_hole_in_an_accept_is_found",
    ),
    Fault(
        what="A message that is pushed at once does not say to which session it goes.",
        file="broker/stores/sqlite/accept.py",
        old="(destination.id,), answered, destination.to_session)",
        new="(destination.id,), answered)",
        test="tests/contract/broker/test_delivery_contract.py::test_what_is_pushed_at_once_is_what_the_store_says",
    ),
    Fault(
        what="One recipient's acknowledgement stands for all.",
        file="broker/stores/sqlite/deliveries.sql",
        old=("recipient_id = ?3 AND delivered_at IS NULL\n\n-- name: count_attempts"),
        new=("recipient_id > 0 * ?3 AND delivered_at IS NULL\n\n-- name: count_attempts"),
        test=f"{_DELIVERIES}::test_an_ack_settles_the_members_own_deliveries_and_no_others",
    ),
    Fault(
        what="Whoever was taken over from is still given what waits.",
        file="broker/stores/sqlite/deliveries.py",
        old="if not found or not self._chairs.is_held(seat):",
        new="if not found:",
        test=f"{_SEATS}::test_what_waits_is_for_the_newest_seat_and_for_the_next_newest_when_that_is_left",
    ),
    Fault(
        what="A session is given whatever waits for its member.",
        file="broker/stores/sqlite/chairs.py",
        old="return to_session == seat.session_pubkey",
        new="return True",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="What waits for a session that is gone is nobody's.",
        file="broker/stores/sqlite/chairs.py",
        old="return to_session is None or (seat.sender.member_id, to_session) not in self._delivering",
        new="return to_session is None",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="The password of a store is shown with its address.",
        file="broker/stores/opening.py",
        old="(?:[^@/?#]*@)?([",
        new="([@",
        test="tests/unit/broker/test_opening.py::test_of_a_url_only_where_it_leads_is_shown",
    ),
    Fault(
        what="A mark of a reader ends a delivery that the inbox never got.",
        file="broker/stores/sqlite/deliveries.sql",
        old="SET read_at = coalesce(read_at, ?4)\n",
        new=("SET read_at = coalesce(read_at, ?4), delivered_at = coalesce(delivered_at, ?4)\n"),
        test=f"{_DELIVERIES}::test_a_reply_or_a_mark_before_the_ack_does_not_end_the_delivery",
    ),
    Fault(
        what="Work that nobody can do comes back for ever.",
        file="broker/stores/sqlite/work.py",
        old="if returns >= QUEUE_RETURNS_MAX:",
        new="if returns > 10 * QUEUE_RETURNS_MAX:",
        test=f"{_WORK}::test_what_comes_back_too_often_is_a_dead_letter",
    ),
    Fault(
        what="A step of the wall clock ends a lease.",
        file="broker/stores/sqlite/leaseclock.py",
        old="return self._origin_ms + self._clock.monotonic_ms()",
        new="return self._origin_ms + self._clock.wall_ms()",
        test=f"{_WORK}::test_a_step_of_the_wall_clock_neither_ends_nor_extends_a_lease",
    ),
    Fault(
        what="A restart of the broker gives every lease its whole time again.",
        file="broker/stores/sqlite/leaseclock.py",
        old="database.read_blocking(_read) - clock",
        new="0 - clock",
        test="tests/contract/broker/test_sqlite_leases.py::test_a_lease_keeps_over_a_restart_what_was_left_of_it",
    ),
    Fault(
        what="The check takes an epoch for a gap.",
        file="broker/stores/sqlite/upkeep.sql",
        old="(SELECT coalesce(sum(j.skipped), 0) FROM",
        new="(SELECT coalesce(sum(j.skipped), 0) * 0 FROM",
        test=f"{_UPKEEP}::test_an_epoch_passes_numbers_over_in_every_mesh_and_that_is_no_gap",
    ),
    Fault(
        what="A lease that is taken back and given up at once is noted as a return too.",
        file="broker/stores/sqlite/migrations/0001_broker.sql",
        old=" AND OLD.dead_at IS NULL AND NEW.dead_at IS NULL;",
        new=";",
        test=f"{_JOURNAL}::test_what_is_taken_back_and_given_up_at_once_is_no_return",
    ),
    Fault(
        what="The number of an event is used again once the journal is empty.",
        file="broker/stores/sqlite/migrations/0001_broker.sql",
        old="PRIMARY KEY AUTOINCREMENT,\n  mesh_id INTEGER NOT NULL,\n  history_id",
        new="PRIMARY KEY,\n  mesh_id INTEGER NOT NULL,\n  history_id",
        test=f"{_JOURNAL}::test_old_events_go_with_their_messages_and_no_number_is_used_again",
    ),
    Fault(
        what="Every store has the same id.",
        file="broker/stores/sqlite/migrations/0001_broker.sql",
        old="randomblob(8)",
        new="zeroblob(8)",
        test=f"{_JOURNAL}::test_a_store_has_an_id_of_its_own_for_as_long_as_it_lives",
    ),
    Fault(
        what="An event goes although an older one stays.",
        file="broker/policy.py",
        old="        if not may_go:\n            break",
        new="        if not may_go:\n            continue",
        test=f"{_JOURNAL}::test_what_happened_to_a_message_that_is_kept_stays_and_what_came_after_it_too",
    ),
    Fault(
        what="What a trigger wrote counts as changed.",
        file="broker/stores/sqlite/rows.py",
        old="    connection.execute(statement, values)\n    return connection.changes()\n",
        new="    before = connection.total_changes()\n    connection.execute(statement, values)\n"
        "    return connection.total_changes() - before\n",
        test=f"{_UPKEEP}::test_what_somebody_still_waits_for_is_a_dead_letter_before_it_goes",
    ),
    Fault(
        what="A plan deletes what is young.",
        file="broker/policy.py",
        old="row[1] < page.before_ms and row[2]",
        new="row[2]",
        test=f"{_PLANNED}::test_of_a_plan_goes_what_retention_allows_and_nothing_else",
    ),
    Fault(
        what="A plan deletes another message that has its number.",
        file="broker/policy.py",
        old=" and row[2] == broker_message_id:",
        new=":",
        test=f"{_PLANNED}::test_of_a_plan_goes_what_retention_allows_and_nothing_else",
    ),
    Fault(
        what="A broken line of a plan is passed over.",
        file="broker/planned.py",
        old='raise InvalidRequest(f"line {number} of the plan is not a message of it: {error}") from error',
        new="continue",
        test=f"{_PLANNED}::test_of_a_plan_with_a_broken_line_nothing_is_executed",
    ),
)
