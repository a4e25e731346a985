"""In the broker, apart from its stores."""

from tests.requirements import Fault

_ACCEPTS = "tests/contract/broker/test_accept_contract.py"
_API = "tests/acceptance/test_local_api.py"
_BROKER = "tests/acceptance/test_broker_promises.py"
_BROKERS = "tests/integration/test_two_brokers.py"
_CALLS = "tests/integration/test_broker_calls.py"
_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_HELLO = "tests/integration/test_broker_hello.py"
_LIMITER = "tests/contract/broker/test_limiter_contract.py"
_PUMP = "tests/unit/broker/test_deliver.py"
_REDIS = "tests/integration/test_redis_limiter.py"
_SEATING = "tests/unit/broker/test_seating.py"
_SERVICE = "tests/unit/broker/test_service.py"
_SHARED = "tests/contract/broker/test_brokers_contract.py"
_TLS = "tests/integration/test_tls.py"
_WATCHDOGS = "tests/acceptance/test_watchdogs.py"

MUTANTS: tuple[Fault, ...] = (
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
        file="broker/desk.py",
        old="Sending(house.service, identity, house.spawn,",
        new="Sending(house.service, identity, lambda work: work.close(),",
        test="tests/integration/test_broker_delivery.py::test_a_commit_wakes_its_recipients_also_when_its_sender_is_gone",
    ),
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
        what="What was offered before or during a pause goes out after it, to a member who was revoked since too.",
        file="broker/deliver.py",
        old="        self._set_back(self._cursor)\n        self.wake()\n",
        new="        self._set_back(self._cursor)\n        self._bell.set()\n",
        test=f"{_PUMP}::test_what_was_offered_during_a_pause_is_pushed_on_the_stores_word_alone",
    ),
    Fault(
        what="A look that is under way when an inbox says that it is full pushes what it finds.",
        file="broker/deliver.py",
        old="        self._set_back(self._cursor)\n        self.wake()\n",
        new="        self.wake()\n",
        test=f"{_PUMP}::test_what_a_look_finds_that_was_under_way_when_a_pause_began_waits_for_its_end",
    ),
    Fault(
        what="What was acknowledged while the store was read is pushed again.",
        file="broker/deliver.py",
        old="            self._just_written.update(history_ids)\n",
        new="            self._just_written.clear()\n",
        test=f"{_PUMP}::test_what_is_written_down_during_a_look_that_saw_it_open_is_not_pushed_again",
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
        what="Who stays when a newer connection at another broker has left never gets what that one did not take.",
        file="broker/seating.py",
        old="            self._board.rewind(members)",
        new="            pass",
        test=f"{_BROKERS}::test_of_two_that_both_stay_the_older_one_gets_the_messages_once_the_newer_has_left",
    ),
    Fault(
        what="Whoever is refused takes the deliveries away from the one that stays.",
        file="broker/seating.py",
        old="            await self.leave(Departure(seated.seat.token))\n",
        new="",
        test=f"{_SEATING}::test_who_is_refused_keeps_no_seat_and_those_who_stay_look_again",
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
        old="        self._leaving[departure.seat] = (departure, self._clock.monotonic_ms())\n",
        new="",
        test=f"{_SEATING}::test_a_seat_that_could_not_be_given_up_goes_when_the_store_is_back_with_its_silence_counted_on",
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
        file="wire/attestation.py",
        old="if not now_ms < attestation.expires_at <= now_ms",
        new="if not attestation.expires_at <= now_ms",
        test=f"{_HELLO}::test_a_session_speaks_with_its_members_word_and_not_without",
    ),
    Fault(
        what="Whoever names a session need not be vouched for by its member.",
        file="wire/attestation.py",
        old="    if not verify(member_pubkey, attestation_bytes(attestation), attestation.signature):\n",
        new="    if not attestation.signature:\n",
        test=f"{_BROKER}::test_nobody_vouches_for_a_session_but_its_member",
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
    Fault(
        what="A broker asks nobody whether it is there.",
        file="broker/presence/watchdog.py",
        old="            one.renew()\n",
        new="            pass\n",
        test="tests/integration/test_presence.py::test_who_answers_pings_stays_for_as_long_as_it_likes",
    ),
    Fault(
        what="A clock that jumps ahead sweeps what is not old.",
        file="broker/upkeep.py",
        old="return min(self._steady_ms(), self._clock.wall_ms())",
        new="return self._clock.wall_ms()",
        test="tests/contract/broker/test_upkeep_contract.py::test_a_clock_that_jumps_ahead_makes_nothing_old",
    ),
    Fault(
        what="Behind a proxy whoever comes makes meshes.",
        file="broker/app.py",
        old="is_reached = settings.public_hosts or not address.is_loopback",
        new="is_reached = not address.is_loopback",
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
    Fault(
        what="What a member says of itself is acknowledged and not kept.",
        file="broker/calls.py",
        old="        await self._ports.directory.set_about(identity.sender, args.about)\n",
        new="",
        test=f"{_API}::test_what_a_member_says_of_itself_is_shown_to_the_others_and_outlives_its_broker",
    ),
    Fault(
        what="A hangup ends a broker instead of renewing its certificate.",
        file="broker/app.py",
        old="add_signal_handler(signal.SIGHUP, certificate.reload)",
        new="remove_signal_handler(signal.SIGHUP)",
        test=f"{_TLS}::test_a_hangup_renews_the_certificate_and_the_connections_of_before_live_on",
    ),
)
