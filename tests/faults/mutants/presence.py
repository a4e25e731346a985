"""Faults of presence, as daemons and command lines have it."""

from tests.requirements import Fault

_ENDS = "tests/unit/daemon/test_session_ends.py"
_ALERTS = "tests/unit/daemon/test_alerts.py"
_HANDSHAKE = "tests/unit/daemon/test_handshake.py"
_NOUNS = "tests/unit/cli/test_nouns.py"
_PRESENCE = "tests/unit/daemon/test_presence.py"
_SESSIONS = "tests/unit/daemon/test_sessions.py"
_TAKEN_OVER = "tests/unit/daemon/test_taken_over.py"
_WATCHDOG = "tests/unit/daemon/test_watchdog.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="One member has the whole broker look up who came and went, as often as it likes at once.",
        file="broker/calls.py",
        old="Operation(PresenceArgs, self._presence, is_heavy=True)",
        new="Operation(PresenceArgs, self._presence)",
        test="tests/unit/broker/test_calls.py::test_calls_that_read_much_are_those_that_take_turns",
    ),
    Fault(
        what="Of what was missed only the first page is asked for.",
        file="daemon/presence.py",
        old="        return not answer.is_last and after is not None and answer.seq > after\n",
        new="        return False\n",
        test=f"{_PRESENCE}::test_what_was_missed_is_asked_for_page_by_page",
    ),
    Fault(
        what="Who missed much gets all of it in one answer.",
        file="broker/presence/herald.py",
        old="max(after, latest - EVENTS_MAX), EVENTS_PAGE)",
        new="max(after, latest - EVENTS_MAX), EVENTS_MAX)",
        test="tests/unit/broker/test_herald.py::test_of_more_than_is_told_at_once_one_learns_the_newest",
    ),
    Fault(
        what="What happens waits without a bound for whoever does not read.",
        file="broker/ws.py",
        old="        if self._telling >= TELLING_MAX:",
        new="        if self._telling < 0:",
        test="tests/integration/test_presence.py::"
        "test_who_does_not_read_what_happens_is_closed_and_asks_for_it_on_its_return",
    ),
    Fault(
        what="Who is revoked stays connected if its leases cannot be ended.",
        file="broker/calls.py",
        old="        except MeshError:  # it is revoked all the same, and its leases run out\n",
        new="        except NotFound:\n",
        test="tests/unit/broker/test_calls.py::"
        "test_who_is_revoked_is_put_out_also_if_its_leases_cannot_be_ended_now",
    ),
    Fault(
        what="A session has another key after a restart of its daemon.",
        file="daemon/sessions.py",
        old="asked.keys or self._member.derive(KEY_PURPOSE + known)",
        new="asked.keys or KeyPair.generate()",
        test=f"{_SESSIONS}::test_a_session_has_its_key_and_instance_again_after_a_restart_by_its_token_alone",
    ),
    Fault(
        what="A session may say more of itself than any broker takes.",
        file="daemon/sessions.py",
        old="if len(msgspec.json.encode(asked.info)) > SESSION_BYTES_MAX:",
        new="if len(msgspec.json.encode(asked.info)) > 3 * SESSION_BYTES_MAX:",
        test=f"{_SESSIONS}::test_what_no_broker_would_take_is_refused_at_once",
    ),
    Fault(
        what="What is said anew of a session is answered before its connection is there.",
        file="daemon/session.py",
        old="        self._again.set()\n        self._move(Status.CONNECTING)\n",
        new="        self._again.set()\n",
        test=f"{_SESSIONS}::test_what_is_said_anew_of_a_session_is_answered_when_the_others_see_it",
    ),
    Fault(
        what="A session that ended while nothing was connected is seen until its lease ends.",
        file="daemon/sessions.py",
        old="            self._untold[session.pubkey] = None\n",
        new="            pass\n",
        test=f"{_ENDS}::test_an_end_that_nobody_could_be_told_of_is_told_on_the_next_connection",
    ),
    Fault(
        what="An event that comes twice is told twice.",
        file="daemon/presence.py",
        old="        elif change.seq > self._cursor:\n",
        new="        elif change.seq <= self._cursor:\n"
        "            await self._store([change], self._cursor)\n        else:\n",
        test=f"{_PRESENCE}::test_what_comes_twice_is_told_once",
    ),
    Fault(
        what="What happened while the connection was away is never told.",
        file="daemon/presence.py",
        old="            await self._catch_up()\n\n    def disconnected",
        new="\n    def disconnected",
        test=f"{_PRESENCE}::test_what_happened_while_the_connection_was_away_is_told_on_return",
    ),
    Fault(
        what="A number is noted although its event found no room.",
        file="daemon/stores/sqlite/inbox.py",
        old="        return [full or _append_comings(connection, one) for one in comings]\n",
        new="        done = [_append_comings(connection, one) for one in comings]\n"
        "        return [full or one for one in done]\n",
        test=f"{_PRESENCE}::test_without_room_neither_the_event_nor_its_number_is_kept",
    ),
    Fault(
        what="A daemon is told of itself.",
        file="daemon/presence.py",
        old=" and (one.pubkey, one.session_pubkey) != self._own]",
        new="]",
        test=f"{_PRESENCE}::test_a_daemon_is_not_told_of_itself_but_counts_it",
    ),
    Fault(
        what="A resuming daemon asks for terms that it has agreed to.",
        file="daemon/handshake.py",
        old="if token is not None and kept.agreed is not None and ack.terms and ack.terms == kept.terms:",
        new="if token is not None and kept.agreed is None:",
        test=f"{_HANDSHAKE}::test_a_daemon_that_comes_back_with_a_token_says_one_thing_and_hears_one",
    ),
    Fault(
        what="Terms that have changed are not looked at.",
        file="daemon/handshake.py",
        old="ack.terms and ack.terms == kept.terms:",
        new="ack.terms:",
        test=f"{_HANDSHAKE}::test_a_broker_whose_offer_has_changed_is_asked_for_it_again",
    ),
    Fault(
        what="A token is shown again after a hello that failed.",
        file="daemon/link.py",
        old="        token, self.token = self.token, None\n",
        new="        token = self.token\n",
        test=f"{_HANDSHAKE}::test_a_token_whose_hello_failed_is_not_shown_again",
    ),
    Fault(
        what="A long connection is resumed with the token of its beginning.",
        file="daemon/link.py",
        old="            self._remembered.token = frame.resume_token\n",
        new="            pass\n",
        test=f"{_HANDSHAKE}::test_the_newest_token_counts_and_only_once",
    ),
    Fault(
        what="A wall clock that was set while the daemon runs keeps it out.",
        file="daemon/handshake.py",
        old="return min(world.clock.wall_ms(), world.steady_ms(), key",
        new="return min(world.clock.wall_ms(), world.clock.wall_ms(), key",
        test=f"{_HANDSHAKE}::test_a_hello_bears_the_time_that_is_nearer_to_the_brokers",
    ),
    Fault(
        what="A ping that cannot get out keeps the watchdog waiting.",
        file="daemon/watchdog.py",
        old="                    pinging = asyncio.get_running_loop().create_task(_ping(connection))\n",
        new="                    await _ping(connection)\n",
        test=f"{_WATCHDOG}::test_a_ping_that_cannot_get_out_does_not_keep_a_dead_connection_alive",
    ),
    Fault(
        what="A daemon hangs up on itself while its inbox is full.",
        file="daemon/watchdog.py",
        old="if connection.signs != signs or is_busy():",
        new="if connection.signs != signs:",
        test=f"{_WATCHDOG}::test_silence_while_we_do_not_read_is_not_the_brokers",
    ),
    Fault(
        what="A hostile name of a session reaches the terminal.",
        file="cli/render.py",
        old='cells = [[escape("-" if cell is None else cell) for cell in row] for row in rows]',
        new='cells = [[str("-" if cell is None else cell) for cell in row] for row in rows]',
        test=f"{_NOUNS}::test_the_sessions_of_a_peer_are_counted_and_named_and_their_names_do_nothing",
    ),
    Fault(
        what="Whoever is away is said to see a message now.",
        file="cli/peer.py",
        old='return "it waits: nobody is there"',
        new='return "now: its daemon is connected"',
        test=f"{_NOUNS}::test_when_a_message_would_be_seen_is_said_in_words",
    ),
    Fault(
        what="For which session a message was is forgotten.",
        file="daemon/http/inbox.py",
        old="        to_session=message.to_session,\n",
        new="        to_session=None,\n",
        test="tests/unit/daemon/test_peers.py::test_a_message_that_was_meant_for_a_session_says_so",
    ),
    Fault(
        what="Whatever goes wrong with one look after the sessions ends the daemon.",
        file="daemon/sessions.py",
        old="                except Exception as error:  # noqa: BLE001  whatever it is, the next turn comes\n",
        new="                except MeshError as error:\n",
        test=f"{_ENDS}::test_whatever_goes_wrong_with_one_look_the_next_one_comes",
    ),
    Fault(
        what="A session is another instance after each restart of its daemon, and its own lease keeps it out.",
        file="daemon/session.py",
        old="instance_id=derive_instance(link.instance_id, keys.pubkey))",
        new="instance_id=world.ids.ulid())",
        test=f"{_SESSIONS}::test_a_session_has_its_key_and_instance_again_after_a_restart_by_its_token_alone",
    ),
    Fault(
        what="A session that has ended is there again.",
        file="daemon/session.py",
        old="            if wait_ms is None or self.status is Status.ENDED:\n",
        new="            if wait_ms is None:\n",
        test=f"{_ENDS}::test_a_session_that_has_said_goodbye_does_not_come_back",
    ),
    Fault(
        what="A session that is ended goes on connecting while another speaks for it.",
        file="daemon/sessions.py",
        old="        try:\n            told = await session.say_goodbye()\n        finally:\n"
        "            await session.stop()  # before others speak for it: it must not be back behind them\n"
        "        told = told or await self._tell(session.pubkey)\n",
        new="        told = await session.say_goodbye() or await self._tell(session.pubkey)\n"
        "        await session.stop()\n",
        test=f"{_ENDS}::test_a_session_that_is_ended_before_its_hello_says_none",
    ),
    Fault(
        what="A hello that is out when its session ends brings it back.",
        file="daemon/session.py",
        old="                while self._is_hello_out:\n                    await self._moved.wait()\n",
        new="",
        test=f"{_ENDS}::test_a_session_that_is_ended_while_its_hello_is_out_says_goodbye_when_it_is_answered",
    ),
    Fault(
        what="A session that was replaced stays so, whoever registers it.",
        file="daemon/session.py",
        old="        if self._task is not None and not self._task.done():\n",
        new="        if self._task is not None:\n",
        test=f"{_SESSIONS}::test_a_session_that_was_to_stay_away_is_back_when_it_is_registered_again",
    ),
    Fault(
        what="Who was taken over under its own instance takes its place back at once, again and again.",
        file="daemon/connector.py",
        old="return closed.code in _AT_THE_CAP or is_taken_over(closed)",
        new="return closed.code in _AT_THE_CAP",
        test=f"{_SESSIONS}::test_a_session_whose_place_was_taken_under_its_own_instance_is_back_after_a_while",
    ),
    Fault(
        what="A stale hello that was judged late locks a daemon out.",
        file="daemon/connector.py",
        old="    return closed.code in _STAY_AWAY\n",
        new="    return closed.code in _STAY_AWAY or is_taken_over(closed)\n",
        test=f"{_TAKEN_OVER}::test_a_daemon_whose_place_was_taken_under_its_own_instance_says_so_and_waits_a_while",
    ),
    Fault(
        what="What waited for a session that comes back is told to nobody.",
        file="daemon/session.py",
        old="                await self._returned(self.pubkey)\n",
        new="",
        test=f"{_ALERTS}::test_a_session_is_alerted_once_each_time_it_comes_back",
    ),
    Fault(
        what="A session is alerted each time it says who it is.",
        file="daemon/session.py",
        old=" and not self._again.is_set()\n",
        new="\n",
        test=f"{_ALERTS}::test_a_session_is_alerted_once_each_time_it_comes_back",
    ),
    Fault(
        what="What waits for one session is told to another.",
        file="daemon/stores/sqlite/inbox.sql",
        old="WHERE to_session = ?1 AND read_at IS NULL;",
        new="WHERE ?1 IS NOT NULL AND to_session IS NOT NULL AND read_at IS NULL;",
        test=f"{_ALERTS}::test_a_session_that_registers_is_told_what_waited_for_it_and_nothing_else",
    ),
    Fault(
        what="A process that shows nothing of itself ends the look after all of them.",
        file="daemon/processes.py",
        old="if len(fields) <= _STARTED or fields[_STATE] in _ENDED:",
        new="if fields[_STATE] in _ENDED:",
        test="tests/unit/daemon/test_processes.py::test_a_process_that_shows_nothing_of_itself_has_ended",
    ),
)
