"""Planted faults of daemon and broker that belong to no proven requirement. They run as those of `mutants.py` do.

Most are of the classes of bugs that others were bitten by: a lookup before an insert, a key scoped too widely, a
receipt that lies, a retry that burns a budget, a row that blocks its queue for good, a lease without its fence.
"""

from tests.requirements import Fault

_ACCEPTS = "tests/contract/broker/test_accept_contract.py"
_API = "tests/acceptance/test_local_api.py"
_BROKER = "tests/acceptance/test_broker_promises.py"
_BROKERS = "tests/integration/test_two_brokers.py"
_BUS = "tests/contract/broker/test_postgres_bus.py"
_CALLS = "tests/integration/test_broker_calls.py"
_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_DELIVERY = "tests/acceptance/test_delivery.py"
_DRAIN = "tests/unit/daemon/test_drain.py"
_ENGINE = "tests/contract/engine/test_postgres_engine.py"
_HARD = "tests/acceptance/test_hard_cases.py"
_HELLO = "tests/integration/test_broker_hello.py"
_IPC = "tests/integration/test_local_ipc.py"
_LANES = "tests/unit/daemon/test_lanes.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_LIMITER = "tests/contract/broker/test_limiter_contract.py"
_NOTICES = "tests/unit/broker/test_notices.py"
_ORACLE = "tests/contract/broker/test_against_oracle.py"
_OUTBOX = "tests/contract/daemon/test_outbox_store.py"
_PROMISES = "tests/acceptance/test_outbox_promises.py"
_PUMP = "tests/unit/broker/test_deliver.py"
_RACES = "tests/contract/broker/test_postgres_races.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_REDIS = "tests/integration/test_redis_limiter.py"
_REFUSED = "tests/acceptance/test_inbound_refused.py"
_SEATING = "tests/unit/broker/test_seating.py"
_SEATS = "tests/contract/broker/test_seat_contract.py"
_SENDER = "tests/acceptance/test_sender_promises.py"
_SERVICE = "tests/unit/broker/test_service.py"
_SHARED = "tests/contract/broker/test_brokers_contract.py"
_TLS = "tests/integration/test_tls.py"
_TLS_UNIT = "tests/unit/asgi/test_tls.py"
_UPKEEP = "tests/contract/broker/test_upkeep_contract.py"
_WATCHDOGS = "tests/acceptance/test_watchdogs.py"
_WORK = "tests/contract/broker/test_work_contract.py"

MESH_MUTANTS: tuple[Fault, ...] = (
    # --- the limiter and the order within a frame ------------------------------------------------
    Fault(
        what="A retry takes from the budget again.",
        file="broker/limiters/memory.py",
        old="if id_ not in taken and len(taken) >= limit:",
        new="if len(taken) >= limit:",
        test=f"{_LIMITER}::test_a_budget_is_taken_once_for_each_id_and_refused_beyond",
    ),
    Fault(
        what="A denied attempt takes from the budget.",
        file="broker/limiters/memory.py",
        old="        return False\n",
        new="        taken.add(id_)\n        return False\n",
        test=f"{_LIMITER}::test_a_refused_attempt_takes_nothing",
    ),
    Fault(
        what="A step of the wall clock opens a new window.",
        file="broker/limiters/memory.py",
        old="now = self._clock.monotonic_ms()",
        new="now = self._clock.wall_ms()",
        test=f"{_LIMITER}::test_a_step_of_the_wall_clock_opens_no_window",
    ),
    Fault(
        what="A denial does not say when to come back.",
        file="broker/limiters/memory.py",
        old="self._window_ms - now % self._window_ms",
        new="0",
        test=f"{_SERVICE}::test_a_denial_says_when_to_come_back_and_the_same_id_is_free_then",
    ),
    Fault(
        what="After a fail-over the limiter stays with the server that is a replica now.",
        file="broker/limiters/redis.py",
        old="await self._client.connection_pool.disconnect()",
        new="pass",
        test=f"{_REDIS}::test_after_a_fail_over_it_asks_the_server_that_is_found_under_the_name",
    ),
    Fault(
        what="Each call is a round trip of its own.",
        file="broker/limiters/redis.py",
        old="TOGETHER_MAX: Final = 256",
        new="TOGETHER_MAX: Final = 1",
        test=f"{_REDIS}::test_calls_of_one_moment_share_a_round_trip",
    ),
    Fault(
        what="A caller that gives up leaves those who asked with it without an answer.",
        file="broker/limiters/redis.py",
        old="if self.answer.done():",
        new="if self.answer is None:",
        test=f"{_REDIS}::test_a_caller_that_gives_up_leaves_the_others_their_answers",
    ),
    Fault(
        what="A URL with a password is quoted when it is refused.",
        file="broker/app.py",
        old='raise ConfigError(f"limiter begins with none of',
        new='raise ConfigError(f"{settings.limiter} begins with none of',
        test="tests/unit/broker/test_limiter.py::test_what_names_no_limiter_is_refused_without_being_quoted",
    ),
    Fault(
        what="Each frame of a connection asks for its budget by itself.",
        file="broker/service.py",
        old="        await self._consume(identity, items, outcomes)\n",
        new=(
            "        for place in range(len(items)):\n"
            "            one = outcomes[place : place + 1]\n"
            "            await self._consume(identity, items[place : place + 1], one)\n"
            "            outcomes[place] = one[0]\n"
        ),
        test=f"{_SERVICE}::test_frames_that_come_together_ask_for_their_budget_in_one_call",
    ),
    Fault(
        what="What comes behind a message that has to wait overtakes it.",
        file="broker/policy.py",
        old="if isinstance(outcome, MeshError) and is_transient(outcome):",
        new="if isinstance(outcome, MeshError) and not outcome.status:",
        test=f"{_SERVICE}::test_behind_a_refusal_that_may_pass_the_same_destination_waits_and_others_go_on",
    ),
    Fault(
        what="What is refused for good holds up what comes behind it.",
        file="broker/policy.py",
        old="if isinstance(outcome, MeshError) and is_transient(outcome):",
        new="if isinstance(outcome, MeshError):",
        test=f"{_SERVICE}::test_a_refusal_for_good_holds_nobody_up",
    ),
    Fault(
        what="One destination that waits holds back all of them.",
        file="broker/policy.py",
        old="if destination in self._waiting else None",
        new="if self._waiting else None",
        test=f"{_ACCEPTS}::test_a_message_that_breaks_fails_alone_and_only_its_destination_waits",
    ),
    Fault(
        what="Recipients are woken for what was refused.",
        file="broker/service.py",
        old="            if isinstance(outcome, Accepted)\n        ]\n        if fresh:\n",
        new=(
            "            for outcome in [\n"
            "                outcome if isinstance(outcome, Accepted) else Accepted('', 0, (1, 2, 3))\n"
            "            ]\n"
            "        ]\n"
            "        if fresh:\n"
        ),
        test=f"{_SERVICE}::test_recipients_are_woken_after_the_commit_and_only_by_what_was_committed",
    ),
    Fault(
        what="A commit whose sender is gone wakes nobody.",
        file="broker/ws.py",
        old="Sending(house.service, identity, house.spawn,",
        new="Sending(house.service, identity, lambda work: work.close(),",
        test="tests/integration/test_broker_delivery.py::test_a_commit_wakes_its_recipients_also_when_its_sender_is_gone",
    ),
    # --- accept, in the broker's store -----------------------------------------------------------
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
        what="Names that differ in case are different names.",
        file="wire/names.py",
        old='normalize("NFKC", name).casefold())',
        new='normalize("NFKC", name))',
        test="tests/integration/test_broker_http.py::test_an_invite_lets_its_newcomers_in_and_nobody_else",
    ),
    # --- deliveries and receipts -----------------------------------------------------------------
    Fault(
        what="What is told while the store is read is pushed before what the store says.",
        file="broker/deliver.py",
        old="self._has_caught_up = page.upto == after and not self._bell.is_set()",
        new="self._has_caught_up = page.upto == after",
        test="tests/unit/broker/test_deliver.py::test_however_commits_and_looks_interleave_all_is_pushed_once_in_order",
    ),
    Fault(
        what="What was pushed out of the store is pushed again when it is told.",
        file="broker/deliver.py",
        old="        if parcel.history_id <= self._cursor:\n",
        new="        if parcel.history_id <= 0:\n",
        test="tests/unit/broker/test_deliver.py::test_however_commits_and_looks_interleave_all_is_pushed_once_in_order",
    ),
    Fault(
        what="A recipient who does not read has all that is sent to it kept in memory.",
        file="broker/deliver.py",
        old=" or len(self._offered) >= OFFERED_MAX",
        new="",
        test="tests/unit/broker/test_deliver.py::test_what_is_offered_while_nobody_reads_is_left_in_the_store",
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
        what="A message waits since its recipient read it elsewhere.",
        file="broker/policy.py",
        old="since = dict(zip(_TIMED, times, strict=True)).get(state)",
        new="since = max((at for at in times if at is not None), default=None)",
        test=f"{_DELIVERIES}::test_a_hint_and_a_receipt_say_the_same_state_and_since_when",
    ),
    Fault(
        what="A delivery that the store could not read once waits until something else is sent.",
        file="broker/deliver.py",
        old="has_moved, wait_ms = False, RECHECK_MS",
        new="has_moved, wait_ms = False, None",
        test="tests/unit/broker/test_deliver.py::test_after_a_look_that_failed_the_next_comes_without_being_told",
    ),
    Fault(
        what="What a session leaves behind is forgotten if its member is just being looked after.",
        file="broker/deliver.py",
        old="        if self._begun != begun:\n",
        new="        if self._cursor != after:\n",
        test=f"{_PUMP}::test_a_rewind_during_the_first_look_is_not_forgotten",
    ),
    Fault(
        what="A connection that stays is forgotten by whoever sets its cursor back while it looks.",
        file="broker/deliver.py",
        old="        self._cursor = cursor\n        self._begun += 1\n",
        new="        self._cursor = cursor\n",
        test=f"{_PUMP}::test_a_rewind_during_a_look_is_not_forgotten",
    ),
    Fault(
        what="A store that cannot write has all acknowledgements kept in memory, however many come.",
        file="broker/deliver.py",
        old="return WINDOW_COUNT - len(self._window) - len(self._unwritten)",
        new="return WINDOW_COUNT - len(self._window)",
        test=f"{_PUMP}::test_what_is_acknowledged_and_cannot_be_written_down_takes_up_the_window",
    ),
    Fault(
        what="What was acknowledged is pushed again until that is written down.",
        file="broker/deliver.py",
        old=" or id_ in self._unwritten or ",
        new=" or ",
        test=f"{_PUMP}::test_what_is_acknowledged_is_not_pushed_again_while_that_waits_to_be_written_down",
    ),
    Fault(
        what="What was acknowledged while the store was read is pushed again.",
        file="broker/deliver.py",
        old="            self._just_written.update(history_ids)\n",
        new="            self._just_written.clear()\n",
        test=f"{_PUMP}::test_what_is_written_down_during_a_look_that_saw_it_open_is_not_pushed_again",
    ),
    # --- several brokers on a store, and who gets what waits there ---------------------------------
    Fault(
        what="Whoever was taken over from is still given what waits.",
        file="broker/stores/sqlite/deliveries.py",
        old="if not found or not self._seats.is_held(seat):",
        new="if not found:",
        test=f"{_SEATS}::test_what_waits_is_for_the_newest_seat_and_for_the_next_newest_when_that_is_left",
    ),
    Fault(
        what="A session is given whatever waits for its member.",
        file="broker/stores/sqlite/seats.py",
        old="return to_session == seat.session_pubkey",
        new="return True",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="What waits for a session that is gone is nobody's.",
        file="broker/stores/sqlite/seats.py",
        old="return to_session is None or (seat.sender.member_id, to_session) not in self._seats",
        new="return to_session is None",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="What is told at once overtakes what another broker committed before it.",
        file="broker/switchboard.py",
        old="if len(fresh) == 1 and self._bus.is_alone:",
        new="if len(fresh) == 1:",
        test="tests/unit/broker/test_switchboard.py::"
        "test_beside_other_brokers_nothing_is_offered_since_what_comes_before_it_may_not_be_told_yet",
    ),
    Fault(
        what="Two brokers tell each other the same thing for ever.",
        file="broker/switchboard.py",
        old='self._observer.publish(BulletinPassed("heard"))\n        self._apply(bulletin)\n',
        new='self._observer.publish(BulletinPassed("heard"))\n        self._tell(bulletin)\n',
        test="tests/unit/broker/test_switchboard.py::test_what_another_broker_tells_is_passed_on_here_and_not_back",
    ),
    Fault(
        what="What another broker did not get to tell waits until something else is sent.",
        file="broker/app.py",
        old="keeping.append(spawn(board.look_again()))",
        new="pass",
        test=f"{_BROKERS}::test_what_nobody_was_told_of_is_found_all_the_same",
    ),
    Fault(
        what="A member whose session ended at another broker never gets what named it.",
        file="broker/seating.py",
        old="            self._board.rewind(members)",
        new="            pass",
        test=f"{_BROKERS}::test_a_session_at_another_broker_gets_what_names_it_and_leaves_it_to_its_member",
    ),
    Fault(
        what="Whoever is refused takes the deliveries away from the one that stays.",
        file="broker/seating.py",
        old="            await self.leave(seated.seat)\n",
        new="",
        test=f"{_SEATING}::test_who_is_refused_keeps_no_seat_and_those_who_stay_look_again",
    ),
    Fault(
        what="A database that went back in time under a running broker is taken for the one it was.",
        file="storage/postgres/database.py",
        old="        if self._greet is not None:\n",
        new="        if self._greet is not None and not self._pool:\n",
        test="tests/chaos/test_restored_database.py::"
        "test_numbers_that_a_lost_part_of_the_past_used_are_not_given_again_and_nothing_of_it_is_delivered",
    ),
    Fault(
        what="A revoked member keeps its seats, and is delivered to by whoever did not hear of it.",
        file="broker/stores/postgres/directory.sql",
        old="WITH unseated AS (DELETE FROM mesh.seat WHERE member_id = $1)\n",
        new="",
        test=f"{_SHARED}::test_a_revoked_member_has_no_seat_at_any_broker",
    ),
    Fault(
        what="A broker that fell silent keeps a member out who comes to another.",
        file="broker/policy.py",
        old="if is_silent and policy is",
        new="if is_silent and policy is not",
        test=f"{_SHARED}::test_a_silent_brokers_seat_keeps_nobody_out_and_is_gone_when_another_came",
    ),
    Fault(
        what="A seat whose commit was not answered keeps what it was to get for as long as its broker lives.",
        file="broker/seating.py",
        old="        if overdue:\n",
        new="        if overdue and self._board.is_alone:\n",
        test=f"{_SEATING}::test_a_seat_that_is_nobodys_for_long_is_given_up_since_its_commit_was_not_answered",
    ),
    Fault(
        what="A broker that is cut off from the others keeps their daemons from them.",
        file="broker/seating.py",
        old="self._clock.monotonic_ms() - self._beaten_at > BROKER_LEASE_MS",
        new="self._clock.monotonic_ms() - self._beaten_at < 0",
        test=f"{_SEATING}::test_a_broker_that_is_cut_off_for_as_long_as_its_lease_sends_its_connections_to_the_others",
    ),
    Fault(
        what="A seat that was left while the store was away is kept for ever.",
        file="broker/seating.py",
        old="        self._leaving.add(seat.token)\n",
        new="",
        test=f"{_SEATING}::test_a_seat_that_could_not_be_given_up_goes_when_the_store_is_back",
    ),
    Fault(
        what="A connection that lost its seat unheard stays, and gets nothing.",
        file="broker/upkeep.py",
        old='            group.create_task(self._every(LOOK_OVER_EVERY_S, "look over", look_over))\n',
        new="",
        test=f"{_BROKERS}::test_who_never_hears_that_its_seat_is_gone_is_sent_away_to_begin_anew",
    ),
    Fault(
        what="Every broker of a store sweeps it.",
        file="broker/upkeep.py",
        old="                if seating.is_keeper:\n",
        new="                if seating:\n",
        test="tests/unit/broker/test_upkeep.py::"
        "test_only_the_keeper_does_what_is_done_once_and_a_beat_that_fails_ends_nothing",
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
        what="Acknowledgements are forgotten when the store has no room for them.",
        file="broker/deliver.py",
        old=("            except MeshError:\n                await asyncio.sleep(RECHECK_MS / 1000)\n"),
        new=(
            "            except MeshError:\n"
            "                self._ids.clear()\n"
            "                await asyncio.sleep(RECHECK_MS / 1000)\n"
        ),
        test="tests/unit/broker/test_deliver.py::test_acks_that_come_together_are_written_together_and_kept_when_that_fails",
    ),
    Fault(
        what="Of two daemons of a member both get what is told at once.",
        file="broker/hub.py",
        old="connection.set_active(connection is newest)",
        new="connection.set_active(True)",
        test="tests/unit/broker/test_hub.py::test_of_those_who_stay_the_one_with_the_newest_seat"
        "_gets_the_deliveries_in_whatever_order_they_come",
    ),
    Fault(
        what="A newer instance is refused where the newest should win.",
        file="broker/policy.py",
        old="ConnectionPolicy.PREFER_NEWEST: Meeting.SUPERSEDED,",
        new="ConnectionPolicy.PREFER_NEWEST: Meeting.REFUSED,",
        test=f"{_HELLO}::test_another_instance_takes_over_and_only_it_gets_the_deliveries",
    ),
    Fault(
        what="A mark is taken as told before the broker has answered.",
        file="daemon/stores/sqlite/inbox.sql",
        old="WHERE seq = ?1 AND (read_at IS NULL OR read_told = 1)\nRETURNING",
        new="WHERE seq = ?1\nRETURNING",
        test="tests/contract/daemon/test_inbox_store.py::test_a_mark_that_the_broker_does_not_know_yet_keeps_its_message",
    ),
    Fault(
        what="A receipt that was missed is never asked for.",
        file="daemon/receive.py",
        old="await self._unfinished.ask(link)",
        new="pass",
        test=f"{_SENDER}::test_receipts_that_were_missed_are_asked_for_on_the_next_connection",
    ),
    Fault(
        what="After a start nobody asks how far the sends of the last run have come.",
        file="daemon/receive.py",
        old="self._unfinished.hold(reversed(await self._outbox.newest_done(HELD_MAX)))",
        new="await self._outbox.newest_done(HELD_MAX)",
        test=f"{_SENDER}::test_receipts_that_moved_while_the_daemon_was_off_are_asked_for_after_its_start",
    ),
    Fault(
        what="Old rows are asked about one after the other.",
        file="daemon/overdue.py",
        old="asyncio.Semaphore(RETIRES_MAX)",
        new="asyncio.Semaphore(1)",
        test=f"{_DRAIN}::test_many_old_rows_are_asked_about_at_once_but_not_all",
    ),
    Fault(
        what="The search for old rows goes through all that wait.",
        file="daemon/stores/sqlite/outbox.sql",
        old="FROM outbox INDEXED BY outbox_by_age\nWHERE\n    status",
        new="FROM outbox INDEXED BY outbox_open\nWHERE\n    status",
        test=f"{_OUTBOX}::test_what_is_asked_again_and_again_reads_only_the_rows_it_returns",
    ),
    Fault(
        what="A wall clock that is set ahead empties the inbox.",
        file="daemon/sweep.py",
        old="now = world.earliest_ms()",
        new="now = world.clock.wall_ms()",
        test="tests/unit/daemon/test_sweep.py::test_setting_the_wall_clock_sweeps_nothing",
    ),
    Fault(
        what="A clock that was ahead at the start, and was set right, empties the inbox.",
        file="daemon/sweep.py",
        old="now = world.earliest_ms()",
        new="now = world.steady_ms()",
        test="tests/unit/daemon/test_sweep.py::test_a_start_with_a_clock_that_is_ahead_sweeps_nothing_once_it_is_set",
    ),
    Fault(
        what="After every batch the sender claims once more, and finds nothing.",
        file="daemon/drain.py",
        old="has_more = lane in claimed.more or lane in waits",
        new="has_more = True",
        test=f"{_DRAIN}::test_where_a_claim_took_all_none_follows_until_something_new_comes",
    ),
    Fault(
        what="What did not fit into a frame is forgotten.",
        file="daemon/drain.py",
        old="has_more = lane in claimed.more or lane in waits",
        new="has_more = lane in waits",
        test=f"{_DRAIN}::test_what_does_not_fit_into_one_frame_follows_in_the_next",
    ),
    Fault(
        what="A row is stored, and its caller fails, because the sender has stopped.",
        file="daemon/drain.py",
        old="                self._beside = None  #",
        new="                pass  #",
        test=f"{_DRAIN}::test_a_row_that_comes_when_the_sender_has_stopped_is_accepted_all_the_same",
    ),
    Fault(
        what="A new connection does not help a row that the last one left unanswered.",
        file="daemon/drain.py",
        old="        self._overdue_due_ms = 0  # whatever",
        new="        # whatever",
        test=f"{_DRAIN}::test_a_row_that_a_silent_broker_was_asked_about_is_asked_about_again_on_the_next_connection",
    ),
    Fault(
        what="Rows overtake an old one that there was no room to write off.",
        file="daemon/overdue.py",
        old="                waiting.update(row.destination for row, _ in judged)\n",
        new="",
        test=f"{_DRAIN}::test_a_destination_waits_while_there_is_no_room_to_write_its_old_row_off",
    ),
    Fault(
        what="Of old rows that came in the same instant only a page is found.",
        file="daemon/stores/sqlite/outbox.sql",
        old="(enqueued_at, seq) > (?2, ?3)",
        new="enqueued_at > ?2 AND ?3 IS NOT NULL",
        test=f"{_OUTBOX}::test_old_rows_are_found_page_by_page_the_oldest_first",
    ),
    Fault(
        what="An outbox that was full stays full, however much of it is emptied.",
        file="daemon/stores/sqlite/room.py",
        old=' - int(connection.pragma("freelist_count"))',
        new="",
        test=f"{_OUTBOX}::test_rows_that_were_emptied_give_their_room_back",
    ),
    Fault(
        what="After a start the newest sends are the first to be forgotten.",
        file="daemon/receive.py",
        old="self._unfinished.hold(reversed(",
        new="self._unfinished.hold(iter(",
        test=f"{_SENDER}::test_receipts_that_moved_while_the_daemon_was_off_are_asked_for_after_its_start",
    ),
    Fault(
        what="The same hint is told again and again.",
        file="daemon/unfinished.py",
        old="if self._states.get(client_message_id) == state:",
        new="if not client_message_id:",
        test="tests/unit/daemon/test_unfinished.py::test_a_hint_that_is_no_news_is_not_told_again",
    ),
    Fault(
        what="A daemon that stops hangs up on the broker before its callers are answered.",
        file="daemon/app.py",
        old="            await serving.aclose()  #",
        new="            #",
        test=f"{_SENDER}::test_a_request_that_is_under_way_when_the_daemon_stops_gets_its_answer",
    ),
    Fault(
        what="The user's own meta is rewritten, and a number that is no instant makes work unreadable.",
        file="daemon/http/control.py",
        old="    return answer | {name: render_instant(at) for name, at in ours.items() if isinstance(at, int)}",
        new="    return {\n"
        "        name: _dated(value) if isinstance(value, dict)\n"
        '        else render_instant(value) if name.endswith("_at") else value\n'
        "        for name, value in answer.items()\n"
        "    }",
        test="tests/integration/test_sdk_in_memory.py::test_the_meta_of_work_comes_out_as_it_was_put_in",
    ),
    # --- work queues -----------------------------------------------------------------------------
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
    # --- the wire --------------------------------------------------------------------------------
    Fault(
        what="Whoever sits at the broker's address is told everything.",
        file="daemon/link.py",
        old="if not verify(settings.broker_key,",
        new="if settings.broker_key and not welcome_bytes and verify(settings.broker_key,",
        test=f"{_HARD}::test_whoever_took_the_brokers_place_is_told_nothing",
    ),
    Fault(
        what="A caller may go on until it says who it is.",
        file="broker/ws.py",
        old=(
            "        if not isinstance(frame, frames.Hello):\n"
            '            raise Closing(frames.CLOSE_UNAUTHENTICATED, "hello_required")\n'
        ),
        new=(
            "        while not isinstance(frame, frames.Hello):\n"
            "            frame = self._parse(await self._read_text())\n"
        ),
        test=f"{_HELLO}::test_nothing_is_understood_before_the_hello",
    ),
    Fault(
        what="A session speaks for its member for ever.",
        file="broker/hello.py",
        old="if not now_ms < attestation.expires_at <= now_ms",
        new="if not attestation.expires_at <= now_ms",
        test=f"{_HELLO}::test_a_session_speaks_with_its_members_word_and_not_without",
    ),
    Fault(
        what="Whoever names a session need not be vouched for by its member.",
        file="broker/hello.py",
        old=("    if not verify(hello.member_pubkey, attestation_bytes(attestation), attestation.signature):\n"),
        new="    if not attestation.signature:\n",
        test=f"{_BROKER}::test_nobody_vouches_for_a_session_but_its_member",
    ),
    Fault(
        what="A daemon whose place was taken comes back and takes it again.",
        file="daemon/link.py",
        old="_STAY_AWAY: Final = frozenset({frames.CLOSE_REPLACED_BY_NEWER})",
        new="_STAY_AWAY: Final = frozenset({0})",
        test=f"{_HARD}::test_a_daemon_whose_place_was_taken_stays_away_until_somebody_decides",
    ),
    Fault(
        what="A batch whose connection ended is waited for without end.",
        file="daemon/link.py",
        old="            self._fail_all()\n",
        new="            self._replies.clear()\n",
        test=f"{_SENDER}::test_an_answer_that_is_not_final_is_tried_again_under_the_same_id",
    ),
    Fault(
        what="Who is revoked stays connected if the one who did it hangs up at once.",
        file="broker/ws.py",
        old="begin = self._house.spawn if self._house.calls.governs(frame.op) else group.create_task",
        new="begin = group.create_task",
        test=f"{_CALLS}::test_a_member_is_put_out_also_if_whoever_revoked_it_is_gone_before_the_answer",
    ),
    Fault(
        what="A session's key takes over the mesh.",
        file="broker/calls.py",
        old="if operation.governs and identity.session_pubkey is not None:",
        new="if operation.governs and not identity.instance_id:",
        test=f"{_HELLO}::test_a_session_governs_nothing_and_is_closed_when_its_member_vouches_for_it_no_longer",
    ),
    Fault(
        what="A session stays for as long as its socket does.",
        file="broker/ws.py",
        old="                group.create_task(self._until_expired())\n",
        new="",
        test=f"{_HELLO}::test_a_session_governs_nothing_and_is_closed_when_its_member_vouches_for_it_no_longer",
    ),
    # --- the daemon ------------------------------------------------------------------------------
    Fault(
        what="Rows that were refused together are tried again together.",
        file="daemon/drain.py",
        old="derive_backoff_ms(row.attempts + 1, self._roll(), outcome.retry_after_ms)",
        new="derive_backoff_ms(row.attempts + 1, 0.5, outcome.retry_after_ms)",
        test=f"{_SENDER}::test_a_row_that_is_told_when_to_come_back_waits_that_long_and_a_jitter_on_top",
    ),
    Fault(
        what="A row comes back before it was told to.",
        file="daemon/drain.py",
        old="self._roll(), outcome.retry_after_ms)",
        new="self._roll(), None)",
        test=f"{_SENDER}::test_a_row_that_is_told_when_to_come_back_waits_that_long_and_a_jitter_on_top",
    ),
    Fault(
        what="A row waits for its own commit before it is claimed in another.",
        file="daemon/service.py",
        old="        putting = self._outbox.accept(submission)\n        if submission.refusal is None:\n",
        new="        putting = self._outbox.accept(submission)\n"
        "        if submission.refusal is None:\n"
        "            putting.add_done_callback(lambda _: self._outward.queued((submission.destination,)))\n"
        "        if False:\n",
        test=f"{_DRAIN}::test_a_sender_at_rest_claims_a_row_in_the_commit_that_stores_it",
    ),
    Fault(
        what="What is behind a row that the disk had no room to settle is forgotten.",
        file="daemon/drain.py",
        old="                self.queued(lanes)  # those behind them, which found them unsettled\n",
        new="",
        test=f"{_DRAIN}::test_what_stands_behind_a_row_that_could_not_be_settled_follows_when_it_is",
    ),
    Fault(
        what="A connection that is lost while the inbox is behind is never noticed.",
        file="daemon/link.py",
        old="await asyncio.wait({putting, storing}, return_when=asyncio.FIRST_COMPLETED)",
        new="await putting",
        test="tests/unit/daemon/test_link.py::test_a_connection_that_is_lost_while_the_inbox_is_behind_ends",
    ),
    Fault(
        what="Why the broker closed is forgotten, because an acknowledgement could not be written.",
        file="daemon/link.py",
        old="if failed is not None and not isinstance(failed, BrokerUnreachable):",
        new="if failed is not None:",
        test="tests/unit/daemon/test_link.py::test_a_connection_that_is_lost_while_the_inbox_is_behind_ends",
    ),
    Fault(
        what="A daemon waits for ever on a connection that is dead.",
        file="daemon/link.py",
        old="ping_interval=settings.ping_interval_s,",
        new="ping_interval=None,",
        test=f"{_WATCHDOGS}::test_a_daemon_ends_a_connection_over_which_nothing_comes_any_more",
    ),
    Fault(
        what="A broker keeps a member whose connection is dead among those who are there.",
        file="broker/assembly.py",
        old="ping_interval_s=interval_s,",
        new="ping_interval_s=None,",
        test=f"{_WATCHDOGS}::test_a_broker_ends_a_connection_over_which_nothing_comes_any_more",
    ),
    Fault(
        what="A second batch goes out before the first of its destination is answered.",
        file="daemon/lanes.py",
        old="return not self.is_busy and self.has_more and self.not_before_ms",
        new="return self.has_more and self.not_before_ms",
        test=f"{_LANES}::test_a_lane_that_is_out_is_not_taken_again_until_it_is_answered",
    ),
    Fault(
        what="What comes for a destination that waits ends its wait.",
        file="daemon/lanes.py",
        old="            lane.has_more = True\n",
        new="            lane.has_more, lane.not_before_ms = True, 0\n",
        test=f"{_LANES}::test_what_comes_for_a_lane_that_waits_does_not_end_the_wait",
    ),
    Fault(
        what="A claim passes over a row that is out, and takes those behind it.",
        file="daemon/stores/sqlite/outbox.py",
        old="                break  # it is out, and holds back its followers\n",
        new="                continue\n",
        test=f"{_OUTBOX}::test_a_row_that_is_out_holds_back_its_followers",
    ),
    Fault(
        what="A message that is larger than a frame's share is never sent, nor anything behind it.",
        file="daemon/stores/sqlite/outbox.py",
        old="if bytes_left < 0 and claimed:",
        new="if bytes_left < 0:",
        test=f"{_OUTBOX}::test_a_claim_is_bounded_but_its_first_row_goes_however_large",
    ),
    Fault(
        what="A row is requeued although it went out meanwhile.",
        file="daemon/stores/sqlite/outbox.py",
        old="if (found.state, found.attempts) != (row.state, row.attempts):",
        new="if found is None:",
        test=f"{_OUTBOX}::test_a_row_that_moved_meanwhile_is_not_retired",
    ),
    Fault(
        what="An item that has no stored form is taken in all the same, and ends one connection after the other.",
        file="wire/frames.py",
        old="        orjson.dumps(item.meta)  #",
        new="        pass  #",
        test=f"{_REFUSED}::test_an_item_that_nobody_can_store_is_counted_and_holds_back_nothing",
    ),
    Fault(
        what="An item that cannot be read ends the connection with all that came beside it.",
        file="wire/frames.py",
        old="            return sift(_raw_deliver.decode(text).items)\n",
        new="            raise BadFrame(str(error)) from error\n",
        test=f"{_REFUSED}::test_an_item_that_nobody_can_store_is_counted_and_holds_back_nothing",
    ),
    Fault(
        what="A lost inbox that has no room ends its connection, again and again.",
        file="daemon/receive.py",
        old="await link.store(partial(self._inbox.restore, delivered.items, self._world.steady_ms(), upto))",
        new="await self._inbox.restore(delivered.items, self._world.steady_ms(), upto)",
        test=f"{_REFUSED}::test_a_lost_inbox_that_has_no_room_to_come_back_says_so_and_goes_on_when_there_is",
    ),
    Fault(
        what="What nobody told a stream is passed over until something else happens.",
        file="daemon/feed.py",
        old="                self._newest = ()  # the store",
        new="                pass  # the store",
        test="tests/unit/daemon/test_feed.py::test_what_nobody_told_is_found_when_nothing_happens_for_a_while",
    ),
    Fault(
        what="A connection that is to be closed is answered as if it went on.",
        file="asgi/server.py",
        old="or cycle.flow.write_paused or not cycle.keep_alive:",
        new="or cycle.flow.write_paused:",
        test="tests/unit/asgi/test_server.py::test_where_an_answer_needs_more_than_a_write_it_goes_the_long_way",
    ),
    Fault(
        what="A header may bring another line with it.",
        file="asgi/server.py",
        old="if len(lines.splitlines()) != len(headers):",
        new="if not lines and headers:",
        test="tests/unit/asgi/test_server.py::test_a_header_that_would_begin_another_line_is_never_sent",
    ),
    Fault(
        what="The way to answer stays in the scope, so that only the collector frees a request.",
        file="asgi/messages.py",
        old="scope.pop(ANSWER, None)",
        new="scope.get(ANSWER)",
        test="tests/unit/asgi/test_server.py::test_the_way_to_answer_does_not_stay_in_the_scope",
    ),
    Fault(
        what="One request more than fit is let in.",
        file="asgi/limits.py",
        old="elif self.count >= self._limit:",
        new="elif self.count > self._limit:",
        test=f"{_IPC}::test_one_request_more_than_fit_is_a_429_on_both_listeners",
    ),
    Fault(
        what="A body without a length may be as long as it likes.",
        file="asgi/routes.py",
        old="    while more and size <= bytes_max:\n",
        new="    while more:\n",
        test=f"{_IPC}::test_a_body_over_the_limit_in_chunks_is_a_413_while_it_is_sent",
    ),
    Fault(
        what="A token may ask as often as it likes.",
        file="asgi/guard.py",
        old="        if wait_ms:\n",
        new="        if wait_ms < 0:\n",
        test=f"{_IPC}::test_a_token_over_its_rate_is_a_429_and_the_socket_is_not_bound_by_it",
    ),
    Fault(
        what="A symlink may stand in for a private file.",
        file="runtime/home.py",
        old="os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        new="os.O_RDONLY | os.O_NONBLOCK",
        test=f"{_IPC}::test_attack_15_a_token_file_that_is_not_private_refuses_to_start",
    ),
    Fault(
        what="A send is tried again under a fresh id.",
        file="daemon/client/__init__.py",
        old="return self._until_answered(path, body, client_message_id=chosen)",
        new="return self._until_answered(path, {k: v for k, v in body.items() if k != 'client_message_id'})",
        test="tests/unit/daemon/test_client.py::test_a_send_whose_answer_was_lost_is_tried_again_under_the_same_id",
    ),
    Fault(
        what="A conflict looks like any other failure to a script.",
        file="cli/command.py",
        old="        return CONFLICT\n",
        new="        return FAILED\n",
        test="tests/unit/cli/test_main.py::test_a_conflict_is_4_and_its_words_can_be_read",
    ),
    Fault(
        what="A broker that is just being started is not waited for.",
        file="cli/enrol.py",
        old="if not is_refused or not is_loopback(",
        new="if is_refused or not is_loopback(",
        test="tests/unit/cli/test_mesh.py::test_a_broker_that_is_just_being_started_is_waited_for",
    ),
    Fault(
        what="A plain member makes codes that nobody can use.",
        file="cli/mesh.py",
        old="if joined.role not in enrol.INVITERS and not anyway:",
        new="if joined.role not in enrol.INVITERS and anyway:",
        test="tests/unit/cli/test_mesh.py::test_a_plain_member_gets_no_code_that_nobody_could_use_unless_it_knows_better",
    ),
    Fault(
        what="What is known here is shown as if the broker had said it.",
        file="cli/messages.py",
        old='not life.get("is_current", True)',
        new='life.get("is_current", True) is None',
        test="tests/unit/cli/test_messages.py::test_a_trace_says_when_it_is_only_what_is_known_here",
    ),
    Fault(
        what="A link that is not ready is called connected.",
        file="daemon/http/status.py",
        old='"catching up" if status == "connected" and not is_ready else status',
        new="status or str(is_ready)",
        test="tests/unit/cli/test_operator.py::test_a_daemon_whose_link_is_not_ready_is_catching_up",
    ),
    # --- the broker's mesh and its surroundings ----------------------------------------------------
    Fault(
        what="A clock that jumps ahead sweeps what is not old.",
        file="broker/upkeep.py",
        old="now = min(self._steady_ms(), self._clock.wall_ms())",
        new="now = self._clock.wall_ms()",
        test="tests/contract/broker/test_upkeep_contract.py::test_a_clock_that_jumps_ahead_makes_nothing_old",
    ),
    Fault(
        what="Two daemons on copies of one state directory replace each other for ever.",
        file="daemon/link.py",
        old=" or (closed.code, closed.reason) == _REPLACED",
        new="",
        test="tests/acceptance/test_membership.py::"
        "test_of_two_daemons_on_copies_of_one_state_directory_the_older_stays_away",
    ),
    Fault(
        what="Behind a proxy whoever comes makes meshes.",
        file="broker/app.py",
        old="is_reached = settings.public_hosts or not is_loopback(host)",
        new="is_reached = not is_loopback(host)",
        test="tests/integration/test_broker_http.py::test_behind_a_proxy_the_public_name_is_answered_and_no_other",
    ),
    Fault(
        what="One member's expensive calls take all the readers.",
        file="broker/calls.py",
        old="self._turns.setdefault(identity.member.id, asyncio.Lock())",
        new="asyncio.Lock()",
        test="tests/unit/broker/test_calls.py::"
        "test_of_one_members_expensive_calls_one_runs_at_a_time_and_others_need_not_wait",
    ),
    Fault(
        what="A hello that was under way when its member was revoked gets in.",
        file="broker/hub.py",
        old="        if key[0] in self._revoked:\n            raise Revoked\n",
        new="",
        test="tests/unit/broker/test_hub.py::"
        "test_a_member_that_was_revoked_while_it_proved_who_it_is_does_not_get_in",
    ),
    Fault(
        what="A mesh's new budget holds after the next hello only.",
        file="broker/service.py",
        old="self._budgets[budget.mesh] = budget.sends_per_window",
        new="self._budgets.pop(budget.mesh, None)",
        test="tests/integration/test_broker_calls.py::test_a_meshs_own_budget_holds_at_once_and_after_a_restart",
    ),
    # --- the daemon's start, and its cursors -----------------------------------------------------
    Fault(
        what="A clone is warned of where it is allowed.",
        file="daemon/app.py",
        old='if is_elsewhere and policy == "warn":',
        new="if is_elsewhere:",
        test=f"{_LIFE}::test_a_state_directory_of_another_host_is_warned_of_and_counted_unless_it_is_allowed",
    ),
    Fault(
        what="A broker beyond this machine is spoken to in the clear.",
        file="wire/addresses.py",
        old='if scheme == "http" and not is_loopback(host):',
        new='if scheme == "http" and not host:',
        test=f"{_LIFE}::test_a_broker_that_would_be_spoken_to_in_the_clear_keeps_the_daemon_from_starting",
    ),
    Fault(
        what="What is read once, at the start, is said to be in force after a reload.",
        file="daemon/settings.py",
        old='FIXED = ("ipc.", "clone.")',
        new='FIXED = ("ipc.b", "clone.")',
        test=f"{_LIFE}::test_a_reload_applies_what_can_be_applied_and_names_the_rest",
    ),
    Fault(
        what="A cursor of another outbox begins somewhere in this one.",
        file="daemon/http/outbox.py",
        old="parse_cursor(query.cursor, bounds)",
        new='int(query.cursor.rpartition(".")[2])',
        test=f"{_PROMISES}::test_the_outbox_is_read_page_by_page_and_a_cursor_of_elsewhere_is_told_so",
    ),
    # --- the rest of the local API ---------------------------------------------------------------
    Fault(
        what="What a member says of itself is acknowledged and not kept.",
        file="broker/calls.py",
        old="        await self._ports.directory.set_about(identity.sender, args.about)\n",
        new="",
        test=f"{_API}::test_what_a_member_says_of_itself_is_shown_to_the_others_and_outlives_its_broker",
    ),
    Fault(
        what="The daemon's document does not say that TCP needs a token.",
        file="daemon/http/__init__.py",
        old="everywhere=BEFORE_ANY_ROUTE,",
        new="everywhere=(),",
        test=f"{_API}::test_by_tcp_everything_needs_a_token_but_health_where_it_is_made_public",
    ),
    Fault(
        what="The health check is public unless it is asked for.",
        file="daemon/http/__init__.py",
        old='frozenset({"/v1/health"} if ipc.public_health_check else ())',
        new='frozenset({"/v1/health"})',
        test=f"{_API}::test_by_tcp_everything_needs_a_token_but_health_where_it_is_made_public",
    ),
    # --- TLS -------------------------------------------------------------------------------------
    Fault(
        what="A key that everybody can read is used.",
        file="asgi/tls.py",
        old="read_private(self._key)",
        new="self._key.read_bytes()",
        test=f"{_TLS_UNIT}::test_a_key_that_others_may_read_is_refused",
    ),
    Fault(
        what="A reload that fails leaves the server without a key.",
        file="asgi/tls.py",
        old="            self._shown = self._read()\n        except ConfigError",
        new="            self._shown.load_cert_chain(self._chain, self._key)\n        except OSError",
        test=f"{_TLS_UNIT}::test_a_reload_that_fails_shows_what_was_shown_before",
    ),
    Fault(
        what="A certificate that is out of date is not told of.",
        file="asgi/tls.py",
        old="client.load_verify_locations(chain)",
        new="client.verify_mode = ssl.CERT_NONE",
        test=f"{_TLS_UNIT}::test_a_certificate_that_is_out_of_date_is_shown_and_told_of",
    ),
    Fault(
        what="A hangup ends a broker instead of renewing its certificate.",
        file="broker/app.py",
        old="add_signal_handler(signal.SIGHUP, certificate.reload)",
        new="remove_signal_handler(signal.SIGHUP)",
        test=f"{_TLS}::test_a_hangup_renews_the_certificate_and_the_connections_of_before_live_on",
    ),
    Fault(
        what="Who never shakes hands holds a connection for a minute.",
        file="asgi/server.py",
        old="self._limits.handshake_timeout_s if self._tls else None",
        new="60.0 if self._tls else None",
        test=f"{_TLS}::test_who_never_shakes_hands_is_cut_off_like_any_slow_client",
    ),
    Fault(
        what="Whoever has no IPv6 cannot reach [::].",
        file="asgi/sockets.py",
        old="socket.IPV6_V6ONLY, 0)",
        new="socket.IPV6_V6ONLY, 1)",
        test="tests/unit/asgi/test_sockets.py::test_an_open_ipv6_address_is_reached_by_both_families",
    ),
    # --- several brokers on one database ---------------------------------------------------------
    Fault(
        what="A member gets what names a session of its that is connected.",
        file="broker/stores/postgres/deliveries.sql",
        old="SELECT session_pubkey FROM mesh.seat WHERE member_id = $1\n",
        new="SELECT session_pubkey FROM mesh.seat WHERE member_id = -$1\n",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="Attempts are counted for a connection that another took over.",
        file="broker/stores/postgres/deliveries.sql",
        old="AND $5::bigint = (SELECT max(token)",
        new="AND $5::bigint IN (SELECT token",
        test=f"{_DELIVERIES}::test_a_delivery_is_a_dead_letter_after_so_many_attempts",
    ),
    Fault(
        what="A broker that was itself away takes all others for dead.",
        file="broker/stores/postgres/seats.py",
        old="may_reap = now - self._beaten_at < BROKER_LEASE_MS",
        new="may_reap = now >= self._beaten_at",
        test=f"{_SHARED}::test_a_broker_that_was_itself_silent_takes_nobody_for_dead",
    ),
    Fault(
        what="A connection that has to go keeps its seat.",
        file="broker/stores/postgres/seats.py",
        old="        if displaced:\n",
        new="        if not displaced:\n",
        test=f"{_SHARED}::test_a_newer_connection_at_another_broker_gets_what_waits",
    ),
    Fault(
        what="The seats of a broker that died stay.",
        file="broker/stores/postgres/seats.sql",
        old="DELETE FROM mesh.broker AS b USING dead WHERE b.id = dead.id",
        new="UPDATE mesh.broker AS b SET expires_at = b.expires_at FROM dead WHERE b.id = dead.id",
        test=f"{_SHARED}::test_a_broker_that_does_not_beat_loses_its_seats_and_their_members_are_told",
    ),
    Fault(
        what="Two brokers judge at the same time who may be a member.",
        file="broker/stores/postgres/directory.sql",
        old=" ORDER BY id FOR NO KEY UPDATE",
        new=" ORDER BY id",
        test=f"{_PAIR_RACES}::test_an_invite_lets_in_as_many_as_it_says_also_at_two_brokers",
    ),
    Fault(
        what="The check takes an epoch for a gap.",
        file="broker/stores/sqlite/upkeep.sql",
        old="(SELECT coalesce(sum(j.skipped), 0) FROM",
        new="(SELECT coalesce(sum(j.skipped), 0) * 0 FROM",
        test=f"{_UPKEEP}::test_an_epoch_passes_numbers_over_in_every_mesh_and_that_is_no_gap",
    ),
    Fault(
        what="A broker that is alone tells everything to nobody.",
        file="broker/stores/postgres/bus.py",
        old="        if self._others_run:\n",
        new="        if self._others_run is not None:\n",
        test=f"{_BUS}::test_a_broker_that_is_alone_tells_nobody",
    ),
    Fault(
        what="What was published just before a broker left is not told.",
        file="broker/stores/postgres/bus.py",
        old="        if self._gathered:\n",
        new="        if not self._gathered:\n",
        test=f"{_BUS}::test_what_was_published_is_still_told_when_the_bus_stops_at_that_moment",
    ),
    Fault(
        what="A notification is longer than the server takes.",
        file="broker/stores/postgres/notices.py",
        old="if size + len(part) + 1 > bytes_max:",
        new="if size > bytes_max:",
        test=f"{_NOTICES}::test_a_notification_never_is_longer_than_the_server_takes_and_none_is_lost",
    ),
    Fault(
        what="A broker that is just now taken for dead answers a hello with an error of its store's keys.",
        file="broker/stores/postgres/seats.sql",
        old=" WHERE b.id = $1 FOR KEY SHARE",
        new=" WHERE b.id = $1",
        test=f"{_PAIR_RACES}::test_a_broker_that_is_just_now_taken_for_dead_gives_no_seat_and_says_that_it_will",
    ),
    Fault(
        what="Whoever was connected to a broker that fell silent is still shown.",
        file="broker/stores/postgres/seats.sql",
        old="WHERE s.mesh_id = $1 AND b.expires_at > mesh.now_ms()",
        new="WHERE s.mesh_id = $1",
        test=f"{_PAIR_RACES}::test_whoever_is_at_a_broker_that_fell_silent_is_not_present",
    ),
    Fault(
        what="A broker that joins others tells them nothing before its first beat.",
        file="broker/stores/postgres/seats.py",
        old="        self._others_run(await self._database.transact(self._has_others))\n",
        new="",
        test=f"{_BUS}::test_a_broker_that_joins_others_tells_them_from_its_first_moment_on",
    ),
    Fault(
        what="What could not be told is forgotten.",
        file="broker/stores/postgres/bus.py",
        old="                self._gathered.miss()\n                self._bell.set()\n",
        new="                self._bell.set()\n",
        test=f"{_BUS}::test_what_could_not_be_told_is_told_to_be_missed",
    ),
    Fault(
        what="A listener whose server is gone without a word waits for ever.",
        file="broker/stores/postgres/bus.py",
        old='await connection.fetchval(_SQL["probe"])',
        new="pass",
        test=f"{_BUS}::test_a_listener_whose_server_answers_nothing_any_more_listens_on_another_connection",
    ),
    Fault(
        what="An accept notifies in its transaction, and so all accepts commit one after the other.",
        file="broker/stores/postgres/accept.py",
        old="    await _write_rest(connection, taken)\n",
        new='    await _write_rest(connection, taken)\n    await connection.execute("NOTIFY claudemesh")\n',
        test=f"{_BUS}::test_nothing_but_the_bus_notifies_and_it_is_part_of_no_accept",
    ),
    Fault(
        what="A lock is waited for without a bound.",
        file="storage/postgres/connection.py",
        old='        "lock_timeout": str(LOCK_MS),\n',
        new="",
        test=f"{_ENGINE}::test_every_wait_at_the_server_has_an_end",
    ),
    Fault(
        what="A server that answers nothing is waited for without a bound.",
        file="storage/postgres/connection.py",
        old="CALLER_S if seconds is None else seconds",
        new="3600",
        test=f"{_ENGINE}::test_a_server_that_answers_nothing_is_unavailable_in_time",
    ),
    Fault(
        what="Whoever borrows a connection may find itself in somebody else's transaction.",
        file="storage/postgres/database.py",
        old="if self._is_closed or connection.is_in_transaction():",
        new="if self._is_closed:",
        test=f"{_ENGINE}::test_a_connection_that_comes_back_in_a_transaction_is_lent_to_nobody",
    ),
    Fault(
        what="A connection whose caller went away in the middle is lent to the next.",
        file="storage/postgres/database.py",
        old="                connection.terminate()\n                raise\n            finally:\n",
        new="                raise\n            finally:\n",
        test=f"{_ENGINE}::test_a_connection_whose_caller_went_away_in_the_middle_is_lent_to_nobody",
    ),
)
