"""Contract 2: what the daemon accepts, keeps and sends."""

from tests.requirements.model import Fault, Requirement

_ACCEPT = "tests/integration/test_daemon_accept.py"
_ANSWERS = "tests/acceptance/test_accept_promises.py"
_DRAIN = "tests/unit/daemon/test_drain.py"
_LOST = "test_whoever_lost_the_answer_that_a_row_had_arrived_is_given_it_again_and_nobody_else"
_INBOX = "tests/acceptance/test_inbox_promises.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_OUTBOX = "tests/acceptance/test_outbox_promises.py"
_POWER = "tests/powercut/test_outbox_power_cuts.py"
_SENDER = "tests/acceptance/test_sender_promises.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "D1",
        "A send or post is answered only once its row is durable.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="The files are synced only at checkpoints, as most programs have it.",
                file="storage/sqlite/connection.py",
                old='"synchronous": ("full", 2)',
                new='"synchronous": ("normal", 1)',
                test=f"{_POWER}::test_no_power_cut_loses_or_doubles_a_send_that_was_answered",
            ),
            Fault(
                what="A send is answered while its row is still being written.",
                file="outbox/stores/sqlite/rows.py",
                old="        return self._database.write(self._accept, submission)\n",
                new=(
                    "        import asyncio\n"
                    "\n"
                    "        task = self._database.write(self._accept, submission)\n"
                    "        self.early = (getattr(self, 'early', None), task)\n"
                    "        return asyncio.sleep(0)\n"
                ),
                test=f"{_POWER}::test_no_power_cut_loses_or_doubles_a_send_that_was_answered",
            ),
            Fault(
                what="A send is answered as soon as its row is queued for the writer.",
                file="outbox/stores/sqlite/rows.py",
                old="        return self._database.write(self._accept, submission)\n",
                new=(
                    "        import asyncio\n"
                    "\n"
                    "        task = self._database.write(self._accept, submission)\n"
                    "        self.early = (getattr(self, 'early', None), task)\n"
                    "        return asyncio.sleep(0)\n"
                ),
                test=f"{_ANSWERS}::test_nobody_is_answered_before_the_commit_that_keeps_the_row",
            ),
        ),
    ),
    Requirement(
        "D2",
        "A known id answers before any check that could refuse it.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A retry meets the checks of today first.",
                file="outbox/stores/sqlite/rows.py",
                old="        if standing is None:\n            return submission.refusal\n",
                new=(
                    "        if standing is None or submission.refusal is not None:\n"
                    "            return submission.refusal\n"
                ),
                test=f"{_ACCEPT}::test_a_retry_is_answered_before_any_check_that_a_new_send_meets",
            ),
            Fault(
                what="A name that is not in the directory is refused without asking the broker.",
                file="daemon/service.py",
                old=("            if not self._conditions.is_online:\n                raise\n"),
                new="            raise\n",
                test=f"{_SENDER}::test_a_name_that_the_directory_has_not_is_asked_for_once",
            ),
            Fault(
                what="A retry is judged by whom the name means now.",
                file="daemon/policy.py",
                old="if standing.to_asked == submission.asked.to and",
                new="if standing.to_asked != submission.asked.to and",
                test=f"{_ANSWERS}::test_a_retry_by_name_goes_to_whom_the_first_try_meant",
            ),
        ),
    ),
    Requirement(
        "D3",
        "Accept follows the table of row state and fingerprint.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A retry of a dead id is told that it is queued.",
                file="kernel/outbox.py",
                old='(_S.DEAD, _SAME): Conflict("outbox_dead_fingerprint_match")',
                new='(_S.DEAD, _SAME): Busy("queued")',
                test=f"{_ACCEPT}::test_the_same_id_again_is_answered_by_the_table_and_changes_no_row",
            ),
            Fault(
                what="Same id, other body: the last one wins.",
                file="daemon/stores/sqlite/outbox.sql",
                old="ON CONFLICT (client_message_id) DO NOTHING",
                new="ON CONFLICT (client_message_id) DO UPDATE SET payload = excluded.payload",
                test=f"{_ACCEPT}::test_the_same_id_again_is_answered_by_the_table_and_changes_no_row",
            ),
            Fault(
                what="Of callers who come at once with one id all but the first get an error of the store.",
                file="daemon/stores/sqlite/outbox.sql",
                old="\nON CONFLICT (client_message_id) DO NOTHING",
                new="",
                test=f"{_ACCEPT}::test_of_many_callers_with_one_id_one_row_comes",
            ),
        ),
    ),
    Requirement(
        "D4",
        "A 409 names its conflict and prefix and changes no row.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A conflict shows the fingerprint that stands instead of the one that was presented.",
                file="daemon/policy.py",
                old="fingerprint_prefix=prefix(presented)",
                new="fingerprint_prefix=prefix(standing.fingerprint)",
                test=f"{_ACCEPT}::test_the_same_id_again_is_answered_by_the_table_and_changes_no_row",
            ),
            Fault(
                what="Whoever conflicts with a message that arrived is not told which.",
                file="daemon/policy.py",
                old=('        extras["broker_message_id"] = standing.broker_message_id\n'),
                new='        extras["history_id"] = None\n',
                test=f"{_ACCEPT}::test_the_same_id_again_is_answered_by_the_table_and_changes_no_row",
            ),
        ),
    ),
    Requirement(
        "D5",
        "Fingerprint and payload of an outbox row are frozen at accept.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A payload is dropped as soon as the broker has it.",
                file="daemon/stores/sqlite/outbox.sql",
                old="    broker_message_id = coalesce(?9, broker_message_id),\n",
                new=(
                    "    broker_message_id = coalesce(?9, broker_message_id),\n"
                    "    payload = CASE ?3 WHEN 'done' THEN x'' ELSE payload END,\n"
                ),
                test=f"{_ANSWERS}::test_what_was_accepted_stays_byte_for_byte_whatever_becomes_of_it",
            ),
            Fault(
                what="What an operator gives up loses its payload.",
                file="outbox/stores/sqlite/rows.sql",
                old="SET status = 'aborted',",
                new="SET status = 'aborted', payload = x'',",
                test=f"{_ANSWERS}::test_what_was_accepted_stays_byte_for_byte_whatever_becomes_of_it",
            ),
        ),
    ),
    Requirement(
        "D6",
        "A used id stays used: pruning leaves a tombstone that answers.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="Pruning deletes rows, and their ids are free again.",
                file="outbox/stores/sqlite/rows.sql",
                old="UPDATE outbox SET payload = x'' WHERE seq = ?1 AND",
                new="DELETE FROM outbox WHERE seq = ?1 AND",
                test=f"{_OUTBOX}::test_a_pruned_id_answers_as_before_and_a_dropped_one_never_comes_back",
            ),
            Fault(
                what="Pruning empties rows that still wait for an operator.",
                file="outbox/stores/sqlite/rows.sql",
                old="AND status IN ('done', 'aborted') AND payload",
                new="AND status NOT IN ('pending', 'inflight') AND payload",
                test=f"{_OUTBOX}::test_a_pruned_id_answers_as_before_and_a_dropped_one_never_comes_back",
            ),
        ),
    ),
    Requirement(
        "D7",
        "The sender sorts answers rightly and keeps destination order.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A row that met the rate limit is given up, because 429 is a 4xx.",
                file="kernel/outbox.py",
                old="frozenset({408, 425, 429})",
                new="frozenset({408, 425})",
                test=f"{_SENDER}::test_an_answer_that_is_not_final_is_tried_again_under_the_same_id",
            ),
            Fault(
                what="No answer is taken for a refusal.",
                file="kernel/outbox.py",
                old="    if status is None:\n        return OutboxEvent.FAILED\n",
                new="    if status is None:\n        return OutboxEvent.REFUSED\n",
                test=f"{_SENDER}::test_an_answer_that_is_not_final_is_tried_again_under_the_same_id",
            ),
            Fault(
                what="What the broker will never take is tried for ever.",
                file="kernel/outbox.py",
                old="        return OutboxEvent.REFUSED\n",
                new="        return OutboxEvent.FAILED\n",
                test=f"{_SENDER}::test_an_answer_that_says_never_ends_the_row_and_holds_nobody_up",
            ),
            Fault(
                what="Nobody learns that the broker keeps a message no more.",
                file="daemon/drain.py",
                old="and not outcome.history_available:",
                new="and outcome.history_available is None:",
                test=f"{_SENDER}::test_what_the_broker_had_but_keeps_no_more_is_done_and_counted",
            ),
            Fault(
                what="A row that is tried again goes behind those that came after it.",
                file="outbox/stores/sqlite/rows.sql",
                old="IN ('pending', 'inflight', 'conflict')\nORDER BY seq LIMIT ?2;",
                new="IN ('pending', 'inflight', 'conflict')\nORDER BY attempts, seq LIMIT ?2;",
                test="tests/property/test_order_law.py::test_each_destination_gets_its_messages_in_the_order_they_were_accepted",
            ),
            Fault(
                what="One row that the broker cannot take blocks its destination for good.",
                file="outbox/reading.py",
                old="if is_server_failure and server_errors + 1 >= SERVER_ERRORS_MAX:",
                new="if is_server_failure and server_errors < 0:",
                test=f"{_SENDER}::test_a_row_that_the_broker_fails_at_while_it_takes_others_dies_in_the_end",
            ),
            Fault(
                what="A broker that is down kills rows as if they were poison.",
                file="outbox/reading.py",
                old="status >= 500 and others_pass",
                new="status >= 500",
                test=f"{_SENDER}::test_a_row_that_the_broker_fails_at_while_it_takes_others_dies_in_the_end",
            ),
        ),
    ),
    Requirement(
        "D8",
        "A row past its maximum age dies and is never sent late.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A row is sent up to the very end of the time in which its id is known.",
                file="kernel/retention.py",
                old="return MaxAge(window_hours - margin_hours, reason)",
                new="return MaxAge(window_hours, reason)",
                test=f"{_OUTBOX}::test_a_row_that_is_too_old_dies_and_is_never_sent",
            ),
            Fault(
                what="A row that was tried dies as if it could not have arrived.",
                file="daemon/overdue.py",
                old="if row.attempts == 0:",
                new="if row.attempts >= 0:",
                test=f"{_OUTBOX}::test_a_row_that_was_tried_dies_by_the_brokers_word_or_with_its_outcome_unknown",
            ),
            Fault(
                what="A wall clock that is set ahead makes rows too old.",
                file="runtime/clock.py",
                old="return lambda: clock.monotonic_ms() + ahead_ms",
                new="return clock.wall_ms",
                test=f"{_DRAIN}::test_setting_the_wall_clock_makes_no_row_too_old",
            ),
            Fault(
                what="A row that is accepted after the wall clock was set back is too old at once.",
                file="daemon/service.py",
                old="enqueued_at=self._world.steady_ms()",
                new="enqueued_at=self._world.clock.wall_ms()",
                test=f"{_DRAIN}::test_setting_the_wall_clock_makes_no_row_too_old",
            ),
            Fault(
                what="At the start a row that was tried is judged before the broker can be asked.",
                file="daemon/overdue.py",
                old="max(came_of_age, self._started) + WAIT_FOR_BROKER_MS",
                new="came_of_age + WAIT_FOR_BROKER_MS",
                test=f"{_DRAIN}::test_a_row_that_was_tried_waits_at_the_start_until_the_broker_can_be_asked",
            ),
            Fault(
                what="A row that was tried waits for the broker for ever.",
                file="daemon/overdue.py",
                old='return self._given_up(row, "outcome_unknown") if is_late else None',
                new="return None",
                test=f"{_DRAIN}::test_a_row_that_waited_for_the_broker_for_an_hour_dies_with_its_outcome_unknown",
            ),
            Fault(
                what="Sending stands still while the broker is asked about old rows.",
                file="outbox/sender.py",
                old="lanes = [] if link is None else",
                new="lanes = [] if link is None or self._is_giving_up else",
                test=f"{_DRAIN}::test_asking_about_old_rows_keeps_no_other_destination_waiting",
            ),
            Fault(
                what="What is behind a row that is too old is never sent.",
                file="outbox/sender.py",
                old="for destination in self._stuck - waiting:",
                new="for destination in self._stuck & waiting:",
                test=f"{_DRAIN}::test_asking_about_old_rows_keeps_no_other_destination_waiting",
            ),
            Fault(
                what="An age is accepted that outlives what the broker remembers.",
                file="kernel/retention.py",
                old="if override_hours > limit_hours:",
                new="if override_hours > 2 * limit_hours:",
                test=f"{_LIFE}::test_an_age_beyond_the_brokers_window_keeps_the_daemon_from_starting",
            ),
        ),
    ),
    Requirement(
        "D9",
        "A start recovers inflight rows, names corruption, needs no broker.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A restart does not count the try that it cut short.",
                file="outbox/stores/sqlite/rows.sql",
                old="SET status = 'pending', attempts = attempts + 1,",
                new="SET status = 'pending', attempts = attempts,",
                test=f"{_ACCEPT}::test_a_restart_takes_up_what_was_out_and_counts_the_try",
            ),
            Fault(
                what="A restart leaves what was out as it was.",
                file="outbox/stores/sqlite/rows.sql",
                old="SET status = 'pending', attempts = attempts + 1,",
                new="SET attempts = attempts + 1,",
                test=f"{_ACCEPT}::test_a_restart_takes_up_what_was_out_and_counts_the_try",
            ),
            Fault(
                what="A damaged file is opened all the same.",
                file="storage/sqlite/schema.py",
                old='if found[0][0] != "ok":',
                new='if found[0][0] == "":',
                test=f"{_LIFE}::test_a_damaged_outbox_keeps_the_daemon_from_starting_and_names_the_way_out",
            ),
            Fault(
                what="What is restored is told as if it had just come.",
                file="daemon/stores/sqlite/inbox.py",
                old='restoration.received_at, "restored")',
                new='restoration.received_at, "message")',
                test=f"{_INBOX}::test_what_is_restored_into_a_lost_inbox_is_told_to_nobody",
            ),
        ),
    ),
    Requirement(
        "D10",
        "Requeue supersedes a row without making a second message.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A row that was tried is sent anew without asking whether it arrived.",
                file="daemon/operate.py",
                old="if row.attempts > 0:",
                new="if row.attempts > 99:",
                test=f"{_OUTBOX}::test_a_row_that_the_broker_has_is_done_and_one_that_it_has_not_is_sent_anew",
            ),
            Fault(
                what="The broker says that it has not got the message, and takes a late one after all.",
                file="broker/stores/sqlite/accept.py",
                old='_SQL["retire"], values)',
                new='"SELECT ?, ?, ?, ?, ?", values).fetchall()',
                test=f"{_OUTBOX}::test_a_row_that_the_broker_has_is_done_and_one_that_it_has_not_is_sent_anew",
            ),
            Fault(
                what="A row is given up although the broker could not be asked.",
                file="daemon/operate.py",
                old="            if force:\n",
                new="            if not force:\n",
                test=f"{_ACCEPT}::test_a_row_that_was_tried_is_not_given_up_without_the_brokers_word",
            ),
            Fault(
                what="Whatever is asked under the new id of an earlier requeue is a replay of that.",
                file="daemon/operate.py",
                old="        if presented != successor.fingerprint:\n",
                new="        if len(presented) != len(successor.fingerprint):\n",
                test=f"{_ACCEPT}::test_a_requeue_under_the_same_new_id_is_a_replay_only_of_the_same_message",
            ),
            Fault(
                what="Whoever lost the answer that a row had arrived is refused when asking again.",
                file="daemon/operate.py",
                old="            decision=mark,\n",
                new="",
                test=f"{_OUTBOX}::{_LOST}",
            ),
            Fault(
                what="Anybody who decides on a row that is done is told to have decided it before.",
                file="daemon/operate.py",
                old="row.status is OutboxState.DONE and row.decision == mark",
                new="row.status is OutboxState.DONE",
                test=f"{_OUTBOX}::{_LOST}",
            ),
            Fault(
                what="After a prune a requeue that is asked again is refused.",
                file="daemon/operate.py",
                old="return patch == Patch()",
                new="return False",
                test=f"{_ACCEPT}::test_a_requeue_of_a_row_that_was_emptied_since_answers_as_before",
            ),
        ),
    ),
)
