"""In the daemon."""

from tests.requirements import Fault

_API = "tests/acceptance/test_local_api.py"
_DRAIN = "tests/unit/daemon/test_drain.py"
_HARD = "tests/acceptance/test_hard_cases.py"
_LANES = "tests/unit/outbox/test_lanes.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_OUTBOX = "tests/contract/daemon/test_outbox_store.py"
_PROMISES = "tests/acceptance/test_outbox_promises.py"
_REFUSED = "tests/acceptance/test_inbound_refused.py"
_SENDER = "tests/acceptance/test_sender_promises.py"
_WATCHDOGS = "tests/acceptance/test_watchdogs.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="What stands behind rows that were written down one by one waits until something new comes.",
        file="outbox/sender.py",
        old="self.queued(lanes)  # a claim that came in between",
        new="# a claim that came in between",
        test=f"{_DRAIN}"
        "::test_an_answer_that_cannot_be_written_down_costs_its_own_row_a_backoff_and_nobody_else_anything",
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
        file="outbox/stores/sqlite/rows.sql",
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
        file="outbox/sender.py",
        old="has_more = lane in more or lane in waits",
        new="has_more = True",
        test=f"{_DRAIN}::test_where_a_claim_took_all_none_follows_until_something_new_comes",
    ),
    Fault(
        what="What did not fit into a frame is forgotten.",
        file="outbox/sender.py",
        old="has_more = lane in more or lane in waits",
        new="has_more = lane in waits",
        test=f"{_DRAIN}::test_what_does_not_fit_into_one_frame_follows_in_the_next",
    ),
    Fault(
        what="A row is stored, and its caller fails, because the sender has stopped.",
        file="outbox/sender.py",
        old="                self._beside = None  #",
        new="                pass  #",
        test=f"{_DRAIN}::test_a_row_that_comes_when_the_sender_has_stopped_is_accepted_all_the_same",
    ),
    Fault(
        what="A new connection does not help a row that the last one left unanswered.",
        file="outbox/sender.py",
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
        file="outbox/stores/sqlite/rows.sql",
        old="(enqueued_at, seq) > (?2, ?3)",
        new="enqueued_at > ?2 AND ?3 IS NOT NULL",
        test=f"{_OUTBOX}::test_old_rows_are_found_page_by_page_the_oldest_first",
    ),
    Fault(
        what="An outbox that was full stays full, however much of it is emptied.",
        file="storage/sqlite/room.py",
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
    Fault(
        what="Whoever sits at the broker's address is told everything.",
        file="daemon/handshake.py",
        old="if not verify(settings.broker_key,",
        new="if settings.broker_key and not welcome_bytes and verify(settings.broker_key,",
        test=f"{_HARD}::test_whoever_took_the_brokers_place_is_told_nothing",
    ),
    Fault(
        what="A daemon whose place was taken comes back and takes it again.",
        file="daemon/connector.py",
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
        file="outbox/sender.py",
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
        file="daemon/watchdog.py",
        old="if now_ms - heard_ms >= self._rhythm.stale_pong_ms:",
        new="if now_ms < heard_ms:",
        test=f"{_WATCHDOGS}::test_a_daemon_ends_a_connection_over_which_nothing_comes_any_more",
    ),
    Fault(
        what="A second batch goes out before the first of its destination is answered.",
        file="outbox/lanes.py",
        old="return not self.is_busy and self.has_more and self.not_before_ms",
        new="return self.has_more and self.not_before_ms",
        test=f"{_LANES}::test_a_lane_that_is_out_is_not_taken_again_until_it_is_answered",
    ),
    Fault(
        what="What comes for a destination that waits ends its wait.",
        file="outbox/lanes.py",
        old="            lane.has_more = True\n",
        new="            lane.has_more, lane.not_before_ms = True, 0\n",
        test=f"{_LANES}::test_what_comes_for_a_lane_that_waits_does_not_end_the_wait",
    ),
    Fault(
        what="A claim passes over a row that is out, and takes those behind it.",
        file="outbox/stores/sqlite/rows.py",
        old="                    break  # it is out, or in conflict, and holds back its followers\n",
        new="                    continue\n",
        test=f"{_OUTBOX}::test_a_row_that_is_out_holds_back_its_followers",
    ),
    Fault(
        what="A message that is larger than a frame's share is never sent, nor anything behind it.",
        file="outbox/stores/sqlite/rows.py",
        old="if bytes_left < 0 and claimed:",
        new="if bytes_left < 0:",
        test=f"{_OUTBOX}::test_a_claim_is_bounded_but_its_first_row_goes_however_large",
    ),
    Fault(
        what="A row is requeued although it went out meanwhile.",
        file="outbox/stores/sqlite/rows.py",
        old="if found is None or (found.state, found.attempts) != (row.state, row.attempts):",
        new="if found is None:",
        test=f"{_OUTBOX}::test_a_row_that_moved_meanwhile_is_not_retired",
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
        what="A send is tried again under a fresh id.",
        file="daemon/client/__init__.py",
        old="return self._until_answered(path, body, client_message_id=chosen)",
        new="return self._until_answered(path, {k: v for k, v in body.items() if k != 'client_message_id'})",
        test="tests/unit/daemon/test_client.py::test_a_send_whose_answer_was_lost_is_tried_again_under_the_same_id",
    ),
    Fault(
        what="A link that is not ready is called connected.",
        file="daemon/http/status.py",
        old='"catching up" if status == "connected" and not is_ready else status',
        new="status or str(is_ready)",
        test="tests/unit/cli/test_operator.py::test_a_daemon_whose_link_is_not_ready_is_catching_up",
    ),
    Fault(
        what="Two daemons on copies of one state directory replace each other for ever.",
        file="daemon/connector.py",
        old="if is_revoked(closed) or is_taken_over(closed):",
        new="if is_revoked(closed):",
        test="tests/acceptance/test_membership.py::"
        "test_of_two_daemons_on_copies_of_one_state_directory_the_older_gives_way_and_says_so",
    ),
    Fault(
        what="A clone is warned of where it is allowed.",
        file="daemon/app.py",
        old='if is_elsewhere and policy == "warn":',
        new="if is_elsewhere:",
        test=f"{_LIFE}::test_a_state_directory_of_another_host_is_warned_of_and_counted_unless_it_is_allowed",
    ),
    Fault(
        what="What is read once, at the start, is said to be in force after a reload.",
        file="daemon/settings.py",
        old='FIXED = ("ipc.", ',
        new='FIXED = ("ipc.b", ',
        test=f"{_LIFE}::test_a_reload_applies_what_can_be_applied_and_names_the_rest",
    ),
    Fault(
        what="A cursor of another outbox begins somewhere in this one.",
        file="daemon/http/outbox.py",
        old="parse_cursor(query.cursor, bounds)",
        new='int(query.cursor.rpartition(".")[2])',
        test=f"{_PROMISES}::test_the_outbox_is_read_page_by_page_and_a_cursor_of_elsewhere_is_told_so",
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
    Fault(
        what="What fails as nobody expected while rows are carried ends the daemon.",
        file="outbox/sender.py",
        old="        except Exception as error:  # noqa: BLE001  whatever it is, all",
        new="        except MemoryError as error:  # whatever it is, all",
        test=f"{_DRAIN}::test_an_answer_that_nobody_expected_costs_its_own_row_a_backoff_and_nobody_else_anything",
    ),
    Fault(
        what="A row whose answer nobody could read is tried again at once.",
        file="outbox/sender.py",
        old="wait_ms = derive_backoff_ms(row.attempts + 1, self._roll())\n        return",
        new="wait_ms = 0\n        return",
        test=f"{_DRAIN}::test_an_answer_that_nobody_expected_costs_its_own_row_a_backoff_and_nobody_else_anything",
    ),
    Fault(
        what="A warning quotes the other side.",
        file="outbox/sender.py",
        old="{type(error).__name__}{place}",
        new="{error!r}{place}",
        test=f"{_DRAIN}::test_an_answer_that_nobody_expected_costs_its_own_row_a_backoff_and_nobody_else_anything",
    ),
    Fault(
        what="An answer that cannot be written down ends the daemon.",
        file="outbox/sender.py",
        old="        except Exception as error:  # noqa: BLE001  as above",
        new="        except MemoryError as error:  # as above",
        test=f"{_DRAIN}::test_an_answer_that_cannot_be_written_down_costs_its_own_row_a_backoff_and_nobody_else_anything",
    ),
    Fault(
        what="One answer that cannot be written down puts the whole batch back.",
        file="outbox/sender.py",
        old="if len(rows) > 1:  # only",
        new="if len(rows) > 99:  # only",
        test=f"{_DRAIN}::test_an_answer_that_cannot_be_written_down_costs_its_own_row_a_backoff_and_nobody_else_anything",
    ),
    Fault(
        what="What a store says of itself is taken for an answer that cannot be written down.",
        file="outbox/sender.py",
        old="        except MeshError:\n            raise\n",
        new="",
        test=f"{_DRAIN}::test_what_a_store_says_of_itself_ends_the_sender",
    ),
    Fault(
        what="A lane that is there already does not wait although it is noted to.",
        file="outbox/lanes.py",
        old="max(lane.not_before_ms, not_before_ms)",
        new="lane.not_before_ms",
        test=f"{_LANES}::test_a_lane_that_is_noted_to_wait_waits_also_if_it_was_there",
    ),
)
