"""Contract 4: what the broker delivers, and to whom."""

from tests.requirements.handed_over import HANDED_OVER
from tests.requirements.model import Fault, Requirement

_BROKER = "tests/acceptance/test_broker_promises.py"
_CALLS = "tests/integration/test_broker_calls.py"
_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_DELIVERY = "tests/acceptance/test_delivery.py"
_INBOX = "tests/acceptance/test_inbox_promises.py"
_MEMBERS = "tests/acceptance/test_membership.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_RACES = "tests/contract/broker/test_postgres_races.py"
_SEATS = "tests/contract/broker/test_seat_contract.py"
_SHARED = "tests/contract/broker/test_brokers_contract.py"
_STORE = "tests/contract/daemon/test_inbox_store.py"
_WORK = "tests/contract/broker/test_work_contract.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "Q1",
        "A DM reaches one daemon of its member, in order, until acked.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A message is acknowledged before the inbox has it.",
                file="daemon/link.py",
                old="            await self.store(partial(receiver.deliver, items))\n",
                new=(
                    "            await self._write(frames.render(frames.Ack([one.history_id for one in items])))\n"
                    "            await self.store(partial(receiver.deliver, items))\n"
                ),
                test=f"{_INBOX}::test_what_the_inbox_could_not_store_is_not_acknowledged_and_comes_again",
            ),
            Fault(
                what="A message of which the member's inbox knows nothing yet is not open any more.",
                file="broker/stores/sqlite/deliveries.sql",
                old="bits = bits & ~?3 WHERE",
                new="bits = 0 * ?3 WHERE",
                test="tests/integration/test_broker_delivery.py::test_what_was_not_acknowledged_comes_again_on_the_next_connection_and_the_rest_does_not",
            ),
            Fault(
                what="Blocks of messages are pushed with the newest first.",
                file="broker/stores/sqlite/deliveries.sql",
                old="ORDER BY block LIMIT ?3",
                new="ORDER BY block DESC LIMIT ?3",
                test=f"{_BROKER}::test_whoever_comes_back_gets_pages_and_no_more_than_a_window_before_it_acknowledges",
            ),
            Fault(
                what="An ephemeral daemon gets whatever is its member's.",
                file="broker/hub.py",
                old="return self._live.get((member_id, to_session, False), [])",
                new="return self.of(member_id)",
                test="tests/acceptance/test_hard_cases.py::test_a_message_to_a_sessions_key_reaches_that_session_and_later_its_member",
            ),
            Fault(
                what="What named a session that ended waits for it for ever.",
                file="broker/switchboard.py",
                old="            self._apply(Woken([*members]))\n",
                new="            pass\n",
                test="tests/acceptance/test_hard_cases.py::test_a_message_to_a_sessions_key_reaches_that_session_and_later_its_member",
            ),
            Fault(
                what="Being away counts as an attempt.",
                file="broker/policy.py",
                old="return last_life_ms - pushed_at_ms >= ATTEMPT_AFTER_MS",
                new="return last_life_ms <= pushed_at_ms + ATTEMPT_AFTER_MS",
                test=f"{_BROKER}::test_only_a_consumer_that_lives_and_does_not_acknowledge_loses_a_message_in_the_end",
            ),
            Fault(
                what="A full inbox loses what it has no room for.",
                file="broker/deliver.py",
                old=("if not self._is_active or self._is_paused:\n            return False\n        life"),
                new=("if not self._is_active:\n            return False\n        life"),
                test="tests/unit/broker/test_deliver.py::test_an_inbox_that_is_full_gets_nothing_and_counts_nothing",
            ),
            Fault(
                what="What is told after a later message waits for the next connection.",
                file="broker/deliver.py",
                old="            self._window_bytes += len(parcel.payload)\n",
                new=(
                    "            self._window_bytes += len(parcel.payload)\n"
                    "            self._cursor = max(self._cursor, parcel.history_id)\n"
                ),
                test="tests/unit/broker/test_deliver.py::test_what_is_offered_after_a_later_one_is_pushed_too",
            ),
            Fault(
                what="A connection that was taken over by another broker still gets what waits.",
                file="broker/stores/postgres/deliveries.sql",
                old="AND $3::bigint = (\n    SELECT max(token)",
                new="AND $3::bigint IN (\n    SELECT token",
                test=f"{_SEATS}::test_what_waits_is_for_the_newest_seat_and_for_the_next_newest_when_that_is_left",
            ),
            Fault(
                what="Two connections of a member that come to two brokers at once do not see each other.",
                file="broker/stores/postgres/seats.sql",
                old="revoked_at IS NULL FOR NO KEY UPDATE",
                new="revoked_at IS NULL",
                test=f"{_PAIR_RACES}::test_of_two_connections_of_a_member_that_come_at_once_the_second_displaces_the_first",
            ),
            Fault(
                what="Two brokers settle the same deliveries in the order of their acks, and wait each for each.",
                file="broker/stores/postgres/deliveries.sql",
                old="  WHERE d.delivered_at IS NULL\n  ORDER BY d.mesh_id, d.history_id, d.recipient_id\n",
                new="  WHERE d.delivered_at IS NULL\n",
                test=f"{_PAIR_RACES}::test_acks_of_the_same_messages_in_opposite_orders_never_wait_each_for_each",
            ),
        ),
    ),
    Requirement(
        "Q2",
        "An inbox takes each message once; only a new row fires events.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="Every delivery is told, whether or not it was known.",
                file="daemon/stores/sqlite/inbox.sql",
                old=("SELECT 1 FROM inbox WHERE sender_id = ?1 AND client_message_id = ?2\nUNION ALL\n"),
                new="",
                test=f"{_INBOX}::test_what_is_delivered_again_is_stored_once_and_told_once",
            ),
            Fault(
                what="An id is forgotten with its message, and comes again as a new one.",
                file="daemon/stores/sqlite/inbox.sql",
                old=("\nUNION ALL\nSELECT 1 FROM inbox_tombstone WHERE sender_id = ?1 AND client_message_id = ?2;"),
                new=";",
                test=f"{_INBOX}::test_an_id_is_known_longer_than_its_message_is_kept",
            ),
            Fault(
                what="Words of a search are read as its operators.",
                file="storage/sqlite/words.py",
                old="'\"' + word.replace('\"', '\"\"') + '\"'",
                new="word",
                test=f"{_DELIVERY}::test_search_finds_words_and_takes_them_for_nothing_but_words",
            ),
            Fault(
                what="What is fetched again into a lost inbox is not found by its words.",
                file="daemon/stores/sqlite/inbox.py",
                old='_SQL["index_words"], [(seq, item.body) for seq, item in numbered]',
                new='_SQL["index_words"], [(seq, item.body) for seq, item in numbered if kind == "message"]',
                test=f"{_STORE}::test_search_finds_every_message_that_is_kept_and_none_that_was_swept",
            ),
            Fault(
                what="The words of a message outlive it.",
                file="daemon/stores/sqlite/inbox.py",
                old='_SQL["unindex_words"], [(seq, body) for seq, body, _, _ in messages]',
                new='_SQL["unindex_words"], []',
                test=f"{_STORE}::test_the_index_of_words_holds_those_of_the_inbox_and_no_others",
            ),
        ),
    ),
    Requirement(
        "Q3",
        "Queue work is leased with a fencing token to one worker.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="Work is acknowledged under whichever token stands.",
                file="broker/policy.py",
                old="Fence(_owner(claim), claim.token)",
                new="Fence(_owner(claim), held.token)",
                test=f"{_CALLS}::test_work_is_leased_renewed_and_acked_over_the_wire",
            ),
            Fault(
                what="Two workers get the same message.",
                file="broker/stores/sqlite/work.sql",
                old=("WHERE l.queue_id = ?1 AND l.owner_id IS NULL AND l.is_settled = 0\nORDER"),
                new="WHERE l.queue_id = ?1 AND l.is_settled = 0\nORDER",
                test=f"{_WORK}::test_workers_get_the_oldest_message_each_another_one",
            ),
            Fault(
                what="Any member may acknowledge another's work.",
                file="broker/policy.py",
                old="    return str(claim.sender.member_id)\n",
                new="    return str(claim.sender.mesh_id and 3 - 1)\n",
                test=f"{_DELIVERY}::test_work_is_leased_to_one_worker_at_a_time_and_acknowledged_with_its_token",
            ),
            Fault(
                what="Workers at two brokers are given the same message.",
                file="broker/stores/postgres/work.sql",
                old="ORDER BY history_id LIMIT 1\n  FOR UPDATE SKIP LOCKED",
                new="ORDER BY history_id LIMIT 1",
                test=f"{_SHARED}::test_workers_at_two_brokers_never_get_the_same_message",
            ),
            Fault(
                what="Whoever takes back leases waits for each that another broker is working on.",
                file="broker/stores/postgres/work.sql",
                old="OR queue_id = $1)\n  FOR UPDATE SKIP LOCKED",
                new="OR queue_id = $1)\n  FOR UPDATE",
                test=f"{_PAIR_RACES}::test_a_lease_that_ran_out_is_left_to_the_broker_that_is_just_now_working_on_it",
            ),
            *HANDED_OVER,
        ),
    ),
    Requirement(
        "Q4",
        "A slow consumer costs bounded memory and rereads the store.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A consumer that does not read is waited for without end.",
                file="broker/ws.py",
                old="async with asyncio.timeout(self._house.settings.slow_consumer_s):",
                new="async with asyncio.timeout(None):",
                test="tests/integration/test_broker_delivery.py::test_a_consumer_that_stops_reading_is_closed_and_loses_nothing",
            ),
            Fault(
                what="What is pushed as it is told goes beyond the window's count.",
                file="broker/deliver.py",
                old="if len(offered) <= count_max and sum(",
                new="if sum(",
                test="tests/unit/broker/test_deliver.py::test_what_is_offered_fills_the_window_and_no_more",
            ),
            Fault(
                what="What is pushed as it is told goes beyond the window's bytes.",
                file="broker/deliver.py",
                old="if len(offered) <= count_max and sum(len(parcel.payload) for parcel in offered) <= bytes_max:",
                new="if len(offered) <= count_max:",
                test="tests/unit/broker/test_deliver.py::test_what_is_offered_fills_the_window_and_no_more",
            ),
            Fault(
                what="A stream that was busy goes on with what came last, and passes over the rest.",
                file="daemon/feed.py",
                old="after + 1 == self._newest[0].seq",
                new="after < self._newest[0].seq",
                test="tests/unit/daemon/test_feed.py::test_a_stream_that_was_busy_reads_all_that_it_missed_from_the_store_in_order",
            ),
        ),
    ),
    Requirement(
        "Q5",
        "Mass reconnects are spread by jitter and drained by pages.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="Daemons that lost their broker together come back together.",
                file="daemon/connector.py",
                old="return derive_backoff_ms(self._attempts, self._roll())",
                new="return derive_backoff_ms(self._attempts, 0.5)",
                test=f"{_INBOX}::test_daemons_that_lost_their_broker_come_back_at_instants_of_their_own",
            ),
            Fault(
                what="Whoever comes back gets all at once.",
                file="broker/deliver.py",
                old="min(room, PAGE_COUNT)",
                new="room",
                test=f"{_BROKER}::test_whoever_comes_back_gets_pages_and_no_more_than_a_window_before_it_acknowledges",
            ),
        ),
    ),
    Requirement(
        "Q6",
        "A receipt advances only on stored evidence, per recipient.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="What is pushed counts as delivered.",
                file="broker/deliver.py",
                old="            points.reach(BEFORE_PUSH)\n",
                new=(
                    "            ids = [parcel.history_id for parcel in fresh]\n"
                    "            await self._store.ack(self._seat.sender, ids, self._clock.wall_ms())\n"
                ),
                test=f"{_CALLS}::test_receipts_go_from_accepted_to_acted_and_only_by_evidence",
            ),
            Fault(
                what="A message is as far as its most advanced recipient.",
                file="broker/policy.py",
                old="return min(states, key=_ADVANCE.index,",
                new="return max(states, key=_ADVANCE.index,",
                test=f"{_DELIVERIES}::test_a_message_shows_its_least_advanced_recipient_with_counts",
            ),
            Fault(
                what="To list an inbox is to have read it.",
                file="daemon/http/inbox.py",
                old="    found = await inbox.page(wanted, after, size + 1)\n",
                new=(
                    "    found = await inbox.page(wanted, after, size + 1)\n"
                    "    await inbox.mark_read([message.broker_message_id for message in found], 1)\n"
                ),
                test=f"{_DELIVERY}::test_a_read_mark_reaches_the_sender_and_a_reply_shows_that_it_acted",
            ),
        ),
    ),
    Requirement(
        "Q7",
        "Cursors share one form; a stale or early one is told so.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A cursor of an inbox that was lost goes on in the new one.",
                file="daemon/feed.py",
                old="if epoch != bounds.epoch:",
                new="if not epoch:",
                test=f"{_DELIVERY}::test_a_stream_goes_on_after_the_event_that_was_seen_last",
            ),
            Fault(
                what="A cursor from beyond the end waits there silently.",
                file="daemon/feed.py",
                old="if int(text) > bounds.last:",
                new="if int(text) < 0:",
                test=f"{_DELIVERY}::test_a_stream_goes_on_after_the_event_that_was_seen_last",
            ),
            Fault(
                what="Whoever missed something that is no longer kept is not told.",
                file="daemon/feed.py",
                old="if int(text) < bounds.swept_upto:",
                new="if int(text) < 0:",
                test=f"{_INBOX}::test_an_id_is_known_longer_than_its_message_is_kept",
            ),
        ),
    ),
    Requirement(
        "Q8",
        "Members make topics and queues; roles rule, names are unique.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A topic that is there cannot be made again.",
                file="broker/stores/sqlite/topics.sql",
                old="VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                new="VALUES (?1, ?2, ?3, ?4)",
                test=f"{_MEMBERS}::test_any_member_makes_topics_and_queues_once_and_only_while_the_broker_is_there",
            ),
            Fault(
                what="An admin puts an owner out.",
                file="broker/policy.py",
                old="if actor.role is not Role.OWNER and Role.OWNER in (target.role, role):",
                new="if actor.role is Role.MEMBER and Role.OWNER in (target.role, role):",
                test=f"{_CALLS}::test_an_admin_invites_and_revokes_from_the_moment_it_is_one",
            ),
            Fault(
                what="The last owner leaves, and nobody can ever change the mesh again.",
                file="broker/policy.py",
                old="and target.revoked_at is None and owners == 1",
                new="and target.revoked_at is None and owners == 0",
                test=f"{_CALLS}::test_whoever_leaves_is_answered_and_then_closed",
            ),
            Fault(
                what="Whoever was put out stays connected under a session's key.",
                file="broker/hub.py",
                old="        for connection in self.of(member_id):\n",
                new="        for connection in tuple(self._live.get((member_id, None, False), ())):\n",
                test=f"{_CALLS}::test_a_member_who_is_revoked_is_put_out_at_once_and_for_good",
            ),
            Fault(
                what="Keys of a member who was put out are still said to lead somewhere.",
                file="broker/stores/sqlite/directory.sql",
                old="WHERE k.mesh_id = ?1 AND k.pubkey = ?2 AND m.revoked_at IS NULL",
                new="WHERE k.mesh_id = ?1 AND k.pubkey = ?2",
                test=f"{_CALLS}::test_a_member_who_is_revoked_is_put_out_at_once_and_for_good",
            ),
            Fault(
                what="A daemon that was put out asks again and again, and looks well.",
                file="daemon/connector.py",
                old="return (closed.code, closed.reason) == _REVOKED",
                new="return closed.code == 0",
                test=f"{_MEMBERS}::test_a_daemon_whose_member_was_revoked_says_so_keeps_its_rows_and_rarely_asks_again",
            ),
            Fault(
                what="Who was put out can be impersonated under its name.",
                file="broker/stores/sqlite/directory.sql",
                old="WHERE mesh_id = ?1 AND name_folded = ?2\n",
                new="WHERE mesh_id = ?1 AND name_folded = ?2 AND revoked_at IS NULL\n",
                test="tests/contract/broker/test_directory_contract.py::test_a_revoked_member_sends_and_gets_nothing_more_and_what_it_had_stays",
            ),
            Fault(
                what="Invites of an admin who was put out still let people in.",
                file="broker/policy.py",
                old="        return Revoked()\n    return None if actor.role in MANAGERS",
                new="        pass\n    return None if actor.role in MANAGERS",
                test="tests/contract/broker/test_directory_contract.py::test_an_invite_of_a_revoked_admin_lets_nobody_in",
            ),
            Fault(
                what="Whoever was put out goes on until its connection is closed.",
                file="broker/stores/sqlite/directory.py",
                old="return None if row is not None and row[0] else Revoked()",
                new="return None if row is not None else Revoked()",
                test="tests/contract/broker/test_directory_contract.py::test_a_member_who_was_revoked_since_its_hello_changes_nothing",
            ),
            Fault(
                what="Whoever subscribes does not wait for a fan-out that is under way.",
                file="broker/stores/postgres/writers.py",
                old='_SQL["lock_counters"], meshes',
                new='_SQL["lock_counters"].removesuffix("FOR NO KEY UPDATE"), meshes',
                test=f"{_RACES}::test_whoever_subscribes_during_a_fan_out_begins_behind_it",
            ),
        ),
    ),
)
