"""Contract 5: presence."""

from tests.requirements.model import Fault, Requirement

_BROKERS = "tests/contract/broker/test_brokers_contract.py"
_CONTRACT = "tests/contract/broker/test_presence_contract.py"
_ENDS = "tests/unit/daemon/test_session_ends.py"
_SESSIONS = "tests/unit/daemon/test_sessions.py"
_TIMES = "tests/acceptance/test_presence_times.py"
_TOKENS = "tests/integration/test_resume_tokens.py"
_WIRE = "tests/integration/test_presence.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "P1",
        "Any sign of life keeps a lease; a watchdog's terminate is none.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="Being cut for its silence counts as a sign of life.",
                file="broker/ws.py",
                old="silent_ms = self._house.watchdog.bound(self.silent_ms()) if self._is_stale else 0",
                new="silent_ms = 0",
                test=f"{_WIRE}::test_to_be_cut_for_silence_is_no_sign_of_life",
            ),
            Fault(
                what="A pong is no sign of life: only what is said is.",
                file="asgi/server.py",
                old="        self._heard_s = self.loop.time()\n        super().data_received(data)",
                new="        super().data_received(data)",
                test=f"{_WIRE}::test_who_answers_pings_stays_for_as_long_as_it_likes",
            ),
        ),
    ),
    Requirement(
        "P2",
        "A join is announced only when no live lease stands.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A second socket of whoever is there is announced again.",
                file="broker/presence/policy.py",
                old="return What.ONLINE if mine.seat is None else What.SWAPPED",
                new="return What.ONLINE if mine.seat is None else What.JOINED",
                test=f"{_WIRE}::test_a_second_hello_of_the_same_instance_swaps_the_socket_and_nobody_notices",
            ),
            Fault(
                what="The token of a long-lived socket is never renewed.",
                file="broker/ws.py",
                old="frames.LeaseRenewed(self._house.settings.lease_ttl_ms, self._issue_token())",
                new="frames.LeaseRenewed(self._house.settings.lease_ttl_ms, None)",
                test=f"{_WIRE}::test_the_token_of_a_long_lived_socket_is_renewed_in_band",
            ),
        ),
    ),
    Requirement(
        "P3",
        "A closed socket is merely offline until its lease ends.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A lease ends with its socket.",
                file="broker/presence/policy.py",
                old="return now_ms - silent_ms + ttl_ms",
                new="return now_ms - silent_ms",
                test=f"{_WIRE}::test_a_blip_is_invisible_and_what_was_sent_meanwhile_arrives_once_in_order",
            ),
        ),
    ),
    Requirement(
        "P4",
        "A resume swaps the socket, drains in order, renews the token.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A good token is never taken up.",
                file="broker/hello.py",
                old="claim = None if resumable is None else resumable.claim",
                new="claim = None",
                test=f"{_WIRE}::test_a_blip_is_invisible_and_what_was_sent_meanwhile_arrives_once_in_order",
            ),
            Fault(
                what="Whoever resumes gets no new token.",
                file="broker/ws.py",
                old="resume_token=self._issue_token(),",
                new="resume_token=None if self._seated.is_resumed else self._issue_token(),",
                test=f"{_WIRE}::test_a_blip_is_invisible_and_what_was_sent_meanwhile_arrives_once_in_order",
            ),
        ),
    ),
    Requirement(
        "P5",
        "An ended lease is one departure; the next hello is one join.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="Nobody ends the leases that ran out.",
                file="broker/app.py",
                old="spawn(watchdog.run()), spawn(herald.run())]",
                new="spawn(watchdog.run())]",
                test=f"{_WIRE}::test_whoever_comes_is_announced_once_and_whoever_goes_when_the_lease_is_over",
            ),
            Fault(
                what="Who says goodbye has its time of grace all the same.",
                file="broker/calls.py",
                old="self._ports.presence.end(identity.sender, key, Because.GOODBYE, instance)",
                new="self._ports.presence.settle()",
                test=f"{_WIRE}::test_who_says_goodbye_or_is_revoked_is_gone_at_once",
            ),
            Fault(
                what="That somebody said goodbye is told to nobody.",
                file="broker/calls.py",
                old='        self._herald.tell(settled)\n        return {"left": bool(settled.events)}',
                new='        return {"left": bool(settled.events)}',
                test=f"{_WIRE}::test_whoever_goes_at_once_is_told_at_once",
            ),
            Fault(
                what="Of many leases that ran out a page is settled, and the rest at some other time.",
                file="broker/stores/postgres/presence.py",
                old="changes.members, is_done=False)",
                new="changes.members, is_done=len(members) < SETTLE_MAX)",
                test=f"{_CONTRACT}::"
                "test_however_many_leases_run_out_together_one_look_after_the_other_ends_them_all",
            ),
            Fault(
                what="After a backup was restored numbers are given again.",
                file="broker/stores/sqlite/upkeep.py",
                old='        connection.execute(_SQL["jump_presence"], (EPOCH_SKIP,))\n',
                new="",
                test=f"{_CONTRACT}::"
                "test_an_epoch_passes_numbers_of_comings_over_so_that_who_knew_lost_ones_sees_a_gap",
            ),
            Fault(
                what="Who is revoked stays among the peers until its lease is over.",
                file="broker/calls.py",
                old="self._ports.presence.end_all(Sender(member.mesh_id, member.id), Because.REVOKED)",
                new="self._ports.presence.settle()",
                test=f"{_WIRE}::test_who_says_goodbye_or_is_revoked_is_gone_at_once",
            ),
        ),
    ),
    Requirement(
        "P6",
        "A resume token opens nothing when forged, stale, used or stolen.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A token that anybody signed is good.",
                file="broker/presence/tokens.py",
                old="if signer is None or not verify(signer, resume_bytes(text), signature):",
                new="if signer is None:",
                test=f"{_TOKENS}::test_a_token_that_is_no_good_is_as_none_and_the_hello_has_to_prove_itself_in_full",
            ),
            Fault(
                what="A token is good for whoever has it, in whichever mesh.",
                file="broker/presence/tokens.py",
                old="if holder != (mesh_uid, member_pubkey, key) or not",
                new="if not",
                test=f"{_TOKENS}::test_a_token_that_is_no_good_is_as_none_and_the_hello_has_to_prove_itself_in_full",
            ),
            Fault(
                what="A token is good as often as one likes.",
                file="broker/presence/policy.py",
                old="return (standing.uid, standing.token) == (claim.presence_uid, claim.token)",
                new="return standing.uid == claim.presence_uid",
                test=f"{_TOKENS}::test_a_token_is_good_once_also_for_two_at_the_same_instant",
            ),
            Fault(
                what="A token stands for the signature of its hello.",
                file="broker/hello.py",
                old="if not verify(key, hello_bytes(nonce, hello), hello.signature):",
                new="if not (hello.resume_token or verify(key, hello_bytes(nonce, hello), hello.signature)):",
                test=f"{_TOKENS}::test_a_captured_token_opens_nothing_and_the_original_stays",
            ),
            Fault(
                what="Only the newest key is good: a rotation voids what is under way.",
                file="broker/presence/tokens.py",
                old="self._by_kid = {_kid(pair): pair.pubkey for pair in pairs}",
                new="self._by_kid = {_kid(pairs[0]): pairs[0].pubkey}",
                test=f"{_TOKENS}::test_keys_are_kept_over_a_restart_and_rotated_with_an_overlap",
            ),
            Fault(
                what="A hello whose token was used before is taken without the rest of its proof.",
                file="broker/hello.py",
                old="must_resume=unproven is not None",
                new="must_resume=False",
                test=f"{_TOKENS}::test_a_token_is_good_once_also_for_two_at_the_same_instant",
            ),
        ),
    ),
    Requirement(
        "P7",
        "Both sides ping, and end a silent connection in time.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A broker keeps a connection over which nothing comes any more.",
                file="broker/presence/watchdog.py",
                old="            one.cut()\n",
                new="            pass\n",
                test=f"{_WIRE}::test_who_falls_silent_is_cut_and_leaves_a_leases_time_after_the_last_sign",
            ),
        ),
    ),
    Requirement(
        "P8",
        "Messages to an absent peer wait and arrive once on return.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="What names a session in grace goes to its member, and it finds nothing on its return.",
                file="broker/stores/sqlite/chairs.py",
                old="return to_session is None or (seat.sender.member_id, to_session) not in self._delivering",
                new="return to_session is None or (seat.sender.member_id, to_session) not in self._seats",
                test=f"{_WIRE}::test_what_names_a_session_in_grace_waits_for_it_and_after_its_end_is_its_members",
            ),
            Fault(
                what="What named a session that ended is nobody's.",
                file="broker/presence/herald.py",
                old="        if settled.members:\n",
                new="        if not settled.events:\n",
                test=f"{_WIRE}::test_what_names_a_session_in_grace_waits_for_it_and_after_its_end_is_its_members",
            ),
        ),
    ),
    Requirement(
        "P9",
        "Leases outlive a broker; no departure is announced twice.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="A restart leaves what was online as if it were: nobody notices who does not come back.",
                file="broker/app.py",
                old="    await stores.seats.start()\n",
                new="",
                test=f"{_WIRE}::test_a_broker_that_was_killed_leaves_its_leases_to_the_next",
            ),
            Fault(
                what="Time passes for who is in grace while no broker looks.",
                file="broker/stores/postgres/presence.py",
                old='        await connection.execute(_SQL["extend"], looked_at, now_ms - looked_at)\n',
                new="",
                test=f"{_CONTRACT}::test_while_no_broker_runs_no_time_passes_for_who_is_in_grace",
            ),
            Fault(
                what="Who was at a broker that is gone is there for ever.",
                file="broker/stores/postgres/presence.py",
                old="for lease in leases if lease.is_lost and lease.seat}",
                new="for lease in leases if lease.is_lost and not lease.seat}",
                test=f"{_BROKERS}::"
                "test_whoever_was_at_a_broker_that_is_gone_has_one_whole_lease_from_when_another_notices",
            ),
            Fault(
                what="A departure is announced again by whichever broker looks next.",
                file="broker/stores/postgres/presence.sql",
                old="SET seat = NULL, broker_id = NULL, disconnected_at = $3",
                new="SET seat = NULL, broker_id = NULL, disconnected_at = nullif($3::bigint, $3)",
                test=f"{_BROKERS}::test_of_many_leases_that_run_out_each_departure_is_told_to_one_broker",
            ),
            Fault(
                what="A broker that stood still takes that for the silence of others.",
                file="broker/presence/watchdog.py",
                old="            self._standstill.notice()\n",
                new="",
                test="tests/unit/broker/test_watchdog.py::"
                "test_after_we_stood_still_nobody_is_cut_and_every_silence_begins_anew",
            ),
            Fault(
                what="A lease is compared with a clock that ran on while the process did not.",
                file="broker/presence/herald.py",
                old="            self._standstill.notice()  # before the store compares leases with its clock\n",
                new="",
                test="tests/unit/broker/test_herald.py::"
                "test_a_store_that_is_slow_is_no_standstill_and_one_within_its_pages_is",
            ),
        ),
    ),
    Requirement(
        "P10",
        "Sessions register with a fresh attestation and are reaped.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="An attestation of anybody is believed.",
                file="wire/attestation.py",
                old="if not verify(member_pubkey, attestation_bytes(attestation), attestation.signature):",
                new="if not attestation.signature:",
                test=f"{_SESSIONS}::test_what_the_broker_would_refuse_is_refused_at_once",
            ),
            Fault(
                what="A session is dropped when its attestation runs out.",
                file="daemon/sessions.py",
                old="            session.renew_if_due()\n",
                new="            pass\n",
                test=f"{_SESSIONS}::test_an_attestation_is_made_anew_before_it_expires",
            ),
            Fault(
                what="A process that got the number of one that ended keeps its session.",
                file="daemon/processes.py",
                old="return found is not None and found.started == process.started",
                new="return found is not None",
                test="tests/unit/daemon/test_processes.py::test_a_number_that_another_process_has_by_now_is_not_it",
            ),
            Fault(
                what="A session outlives its process.",
                file="daemon/sessions.py",
                old="if not is_alive(session.said.process)]",
                new="if not session.said.process]",
                test=f"{_ENDS}::test_a_session_ends_with_its_process",
            ),
            Fault(
                what="Each registration is another session.",
                file="daemon/sessions.py",
                old="        standing = self._sessions.get(known)\n",
                new='        known += b"" if known not in self._sessions else b"again"\n'
                "        standing = self._sessions.get(known)\n",
                test=f"{_SESSIONS}::test_a_registration_that_is_said_again_is_the_same_session",
            ),
            Fault(
                what="A token is told back.",
                file="daemon/http/sessions.py",
                old="    presence_id: str | None\n    status: Status\n",
                new="    presence_id: str | None\n    status: Status\n    token: str = 's3cret'\n",
                test=f"{_SESSIONS}::test_a_session_is_shown_over_a_connection_of_its_own",
            ),
            Fault(
                what="A session that was replaced takes its key back, again and again.",
                file="daemon/session.py",
                old="            self._move(Status.REPLACED)\n            return None\n",
                new="            self._move(Status.REPLACED)\n            return 0\n",
                test=f"{_SESSIONS}::test_a_session_that_is_to_stay_away_does",
            ),
        ),
    ),
    Requirement(
        "P11",
        "The peer list has one entry per member with a live lease.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="Among a member's sessions stands its own connection, and no session.",
                file="broker/presence/peers.py",
                old="for one in leases if one.session_pubkey is not None]",
                new="for one in leases if one.session_pubkey is None]",
                test=f"{_WIRE}::test_sessions_of_a_member_are_shown_as_such_and_what_is_for_them_goes_to_its_daemon",
            ),
            Fault(
                what="Everybody is listed, there or not.",
                file="broker/presence/peers.py",
                old="if backlogs is not None or member.id in leases",
                new="if backlogs is not None or member.id",
                test=f"{_WIRE}::test_a_peer_entry_says_whether_what_is_sent_now_would_be_seen",
            ),
        ),
    ),
    Requirement(
        "P12",
        "Lease times come from the environment; six scenarios hold.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="The lease of the environment is not read.",
                file="broker/settings.py",
                old='extra={"variable": "LEASE_TTL_MS"},',
                new='extra={"variable": "LEASE_TTL"},',
                test=f"{_TIMES}::test_a_broker_goes_by_the_times_of_its_environment_over_those_of_its_file",
            ),
            Fault(
                what="How often to ping is for the file alone to say.",
                file="broker/settings.py",
                old='            extra={"variable": "PING_INTERVAL_MS"},\n',
                new="",
                test=f"{_TIMES}::test_a_broker_goes_by_the_times_of_its_environment_over_those_of_its_file",
            ),
            Fault(
                what="A daemon goes by times of its own.",
                file="cli/daemon.py",
                old="        stale_pong_ms=timings.stale_pong_ms,\n",
                new="",
                test="tests/unit/cli/test_operator.py::test_a_daemon_goes_by_the_times_of_its_environment",
            ),
            Fault(
                what="A lease ends with its socket: whoever sleeps for a moment is seen to leave.",
                file="broker/presence/policy.py",
                old="    return now_ms - silent_ms + ttl_ms\n",
                new="    return now_ms - silent_ms - ttl_ms\n",
                test="tests/acceptance/test_presence_scenarios.py::"
                "test_a_daemon_that_sleeps_for_less_than_its_lease_is_never_missed_and_resumes",
            ),
        ),
    ),
    Requirement(
        "P13",
        "A full peer entry tells if a send now would be seen.",
        "contract 5",
        "proven",
        faults=(
            Fault(
                what="Whoever is in grace is said to see it now.",
                file="broker/presence/peers.py",
                old='        transport, reach = "offline", "on_return"',
                new='        transport, reach = "offline", "now"',
                test=f"{_WIRE}::test_a_peer_entry_says_whether_what_is_sent_now_would_be_seen",
            ),
            Fault(
                what="Nobody notes when a member last read something.",
                file="broker/stores/sqlite/deliveries.py",
                old='connection.execute(_SQL["note_reading"], (member_id, mark.now_ms))',
                new="pass",
                test=f"{_WIRE}::test_a_peer_entry_says_whether_what_is_sent_now_would_be_seen",
            ),
        ),
    ),
)
