"""Contract 4: what the broker accepts and keeps."""

from tests.requirements.model import Fault, Requirement

_ACCEPTS = "tests/contract/broker/test_accept_contract.py"
_BROKER = "tests/acceptance/test_broker_promises.py"
_BROKER_HTTP = "tests/integration/test_broker_http.py"
_LIMITER = "tests/contract/broker/test_limiter_contract.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_RACES = "tests/contract/broker/test_postgres_races.py"
_REDIS = "tests/integration/test_redis_limiter.py"
_UPKEEP = "tests/contract/broker/test_upkeep_contract.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "B0",
        "A retry is answered by the broker's own fingerprint, budget-free.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A retry burns the budget, and is refused when there is none.",
                file="broker/service.py",
                old="for place, outcome in enumerate(outcomes) if outcome is None]",
                new="for place, outcome in enumerate(outcomes)]",
                test=f"{_BROKER}::test_a_retry_is_answered_by_what_was_accepted_before_anything_could_refuse_it",
            ),
            Fault(
                what="What the broker knows of used ids is gone with its process.",
                file="broker/stores/sqlite/__init__.py",
                old="        leases = LeaseClock(clock, database)\n",
                new=(
                    "        forget = 'DELETE FROM client_message_dedupe'\n"
                    "        database.write_blocking(lambda disk, _: [disk.execute(forget).fetchall()], None)\n"
                    "        leases = LeaseClock(clock, database)\n"
                ),
                test=f"{_BROKER}::test_a_retry_is_answered_by_what_was_accepted_before_anything_could_refuse_it",
            ),
            Fault(
                what="While the limiter is away, retries of what was accepted are refused.",
                file="broker/service.py",
                old="        except MeshError as error:  # only theirs",
                new="        except KeyError as error:  # only theirs",
                test="tests/unit/broker/test_service.py::test_a_retry_of_what_was_accepted_is_answered_also_when_the_limiter_is_not",
            ),
            Fault(
                what="The size is judged before the id is looked up.",
                file="broker/service.py",
                old="        stands = standing.get(message.client_message_id)\n",
                new=(
                    "        stands = standing.get(message.client_message_id)\n"
                    "        if (too_large := judge_size(message, self._settings.inline_bytes)) is not None:\n"
                    "            return too_large\n"
                ),
                test=f"{_BROKER}::test_a_retry_is_answered_by_what_was_accepted_before_anything_could_refuse_it",
            ),
            Fault(
                what="The daemon's fingerprint is believed.",
                file="broker/policy.py",
                old="if claimed == message.fingerprint.hex():",
                new="if claimed:",
                test=f"{_BROKER}::test_a_daemon_that_means_something_else_by_the_same_request_is_refused_and_counted",
            ),
            Fault(
                what="On PostgreSQL a retry is not told the number of its message.",
                file="broker/stores/postgres/accept.sql",
                old="coalesce(d.history_id, h.history_id),",
                new="d.history_id,",
                test=f"{_ACCEPTS}::test_the_same_id_again_is_a_duplicate_with_the_first_answer_or_a_conflict",
            ),
        ),
    ),
    Requirement(
        "B1",
        "The rate budget is atomic and idempotent; a denial stores nothing.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="What is beyond the budget is accepted all the same.",
                file="broker/service.py",
                old="            if wait_ms is not None:\n",
                new="            if wait_ms is not None and wait_ms < 0:\n",
                test="tests/acceptance/test_limiter_outage.py::test_a_budget_in_redis_outlives_the_broker_and_a_denial_stores_nothing",
            ),
            Fault(
                what="In Redis a denied attempt takes from the budget.",
                file="broker/limiters/consume.lua",
                old="redis.call('SISMEMBER', key, ARGV[i]) == 1",
                new="redis.call('SADD', key, ARGV[i]) == 0",
                test=f"{_LIMITER}::test_a_refused_attempt_takes_nothing",
            ),
            Fault(
                what="In Redis a retry is denied once the budget is used up.",
                file="broker/limiters/consume.lua",
                old="redis.call('SISMEMBER', key, ARGV[i]) == 1",
                new="false",
                test=f"{_LIMITER}::test_a_budget_is_taken_once_for_each_id_and_refused_beyond",
            ),
            Fault(
                what="In Redis a batch that begins within the budget is taken as a whole.",
                file="broker/limiters/consume.lua",
                old="  if taken < limit then\n",
                new="  if before < limit then\n",
                test=f"{_REDIS}::test_brokers_on_one_redis_share_the_budget_of_a_member",
            ),
            Fault(
                what="What was taken stays in Redis for ever.",
                file="broker/limiters/consume.lua",
                old="if taken > before then",
                new="if taken < before then",
                test=f"{_REDIS}::test_what_was_taken_is_forgotten_after_two_windows",
            ),
            Fault(
                what="The window goes by another clock than that of the server that all brokers share.",
                file="broker/limiters/consume.lua",
                old="redis.call('TIME')",
                new="{os.clock(), 0}",
                test=f"{_REDIS}::test_the_window_is_that_of_the_server_s_clock",
            ),
            Fault(
                what="In Redis the members of all meshes who bear the same id share a budget.",
                file="broker/limiters/redis.py",
                old="{{{mesh}:{sender}}}",
                new="{{{sender}}}",
                test=f"{_LIMITER}::test_members_and_meshes_have_budgets_of_their_own",
            ),
            Fault(
                what="A Redis that was started anew is never told the script again.",
                file="broker/limiters/redis.py",
                old="if any(isinstance(reply, NoScriptError) for reply in replies):",
                new="if not replies:",
                test=f"{_REDIS}::test_a_server_that_has_forgotten_the_script_is_told_it_again",
            ),
            Fault(
                what="A Redis that hangs is waited for without a bound.",
                file="broker/limiters/redis.py",
                old="asyncio.timeout(ANSWER_S)",
                new="asyncio.timeout(None)",
                test=f"{_REDIS}::test_while_redis_is_away_every_call_is_told_so_and_it_goes_on_by_itself",
            ),
        ),
    ),
    Requirement(
        "B2",
        "The dedupe key is claimed first; a bad destination leaves no row.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="Whoever knows a topic's name may post to it.",
                file="broker/stores/sqlite/accept.py",
                old="return found if sender.member_id in found.subscribers else NotSubscribed()",
                new="return found",
                test=f"{_BROKER}::test_a_destination_that_is_refused_leaves_the_id_free_and_its_budget_spent",
            ),
            Fault(
                what="An id is used up by a destination that is not there.",
                file="broker/stores/sqlite/accept.py",
                old=("        if isinstance(destination, MeshError):\n            return destination\n"),
                new=(
                    "        if isinstance(destination, MeshError):\n"
                    "            who, id_ = batch.sender, message.client_message_id\n"
                    "            used = (who.member_id, id_, who.mesh_id, message.fingerprint, 'B', 0, 0, None)\n"
                    "            self._rows.dedupe.append(used)\n"
                    "            return destination\n"
                ),
                test=f"{_BROKER}::test_a_destination_that_is_refused_leaves_the_id_free_and_its_budget_spent",
            ),
            Fault(
                what="A message to a session that ended is for nobody.",
                file="broker/stores/sqlite/accept.sql",
                old="AND k.pubkey = ?2 AND m.revoked_at IS NULL",
                new="AND k.pubkey = ?2 AND k.kind = 'member' AND m.revoked_at IS NULL",
                test=f"{_BROKER}::test_the_key_of_a_session_that_ended_still_leads_to_its_member",
            ),
            Fault(
                what="Two brokers use the ids of their frames in the order of the frames, and wait each for each.",
                file="broker/stores/postgres/accept.sql",
                old='ORDER BY o.sender_id, o.client_message_id COLLATE "C"\n',
                new="",
                test=f"{_RACES}::test_frames_with_the_same_ids_in_opposite_orders_wait_one_for_the_other_and_never_each_for_each",
            ),
        ),
    ),
    Requirement(
        "B3",
        "All rows of an accepted message are in one commit, or none are.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="Mentions are left for somebody else to index.",
                file="broker/stores/sqlite/accept.py",
                old='            ("write_mention", rows.mentions),\n',
                new="",
                test=f"{_BROKER}::test_an_accept_leaves_all_its_rows_and_a_refusal_none",
            ),
            Fault(
                what="The sender of a post is one of its recipients.",
                file="broker/stores/sqlite/accept.sql",
                old="s.member_id <> ?4\n\n-- name: write_delivery",
                new="s.member_id <> 0 * ?4\n\n-- name: write_delivery",
                test=f"{_BROKER}::test_an_accept_leaves_all_its_rows_and_a_refusal_none",
            ),
            Fault(
                what="On PostgreSQL work is accepted that nobody can lease.",
                file="broker/stores/postgres/accept.sql",
                old="destination_id FROM o WHERE kind = 'queue'",
                new="destination_id FROM o WHERE kind = 'none'",
                test=f"{_ACCEPTS}::test_a_new_message_is_accepted_with_an_id_of_the_brokers_and_its_recipients",
            ),
        ),
    ),
    Requirement(
        "B4",
        "History ids are gapless per mesh and in commit order.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A refused message takes a number with it.",
                file="broker/stores/sqlite/accept.py",
                old=("        if isinstance(destination, MeshError):\n            return destination\n"),
                new=(
                    "        if isinstance(destination, MeshError):\n"
                    "            self._next_history_id(batch.sender.mesh_id)\n"
                    "            return destination\n"
                ),
                test=f"{_BROKER}::test_the_numbers_of_a_mesh_have_no_gaps_and_go_on_after_a_restart",
            ),
            Fault(
                what="A start numbers from the beginning.",
                file="broker/stores/sqlite/accept.sql",
                old="SELECT history_id FROM history_counter WHERE mesh_id = ?1",
                new="SELECT 0 FROM history_counter WHERE mesh_id = ?1",
                test=f"{_BROKER}::test_the_numbers_of_a_mesh_have_no_gaps_and_go_on_after_a_restart",
            ),
            Fault(
                what="A backup that was restored goes on with numbers that were given before.",
                file="broker/stores/postgres/upkeep.py",
                old="if await _hold(connection, _SERVER, server) == server:",
                new="if await _hold(connection, _SERVER, server):",
                test="tests/contract/broker/test_postgres_epochs.py::test_on_another_server_or_timeline_the_first_broker_begins_an_epoch_and_the_next_finds_it",
            ),
        ),
    ),
    Requirement(
        "B5",
        "Accepts share a transaction; a bad one fails alone.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A message that is none ends the connection of its neighbours.",
                file="broker/ws.py",
                old="return parse_item_by_item(text) or self._parse(text)",
                new="return self._parse(text)",
                test="tests/integration/test_broker_delivery.py::test_an_item_that_is_no_message_is_refused_by_itself",
            ),
            Fault(
                what="A message that breaks takes all of its frame with it.",
                file="broker/stores/sqlite/accept.py",
                old="outcomes = self._one_by_one(connection, batch)",
                new='outcomes = [MeshError("failed") for _ in batch.messages]',
                test="tests/contract/broker/test_accept_contract.py::test_a_message_that_breaks_fails_alone_and_only_its_destination_waits",
            ),
            Fault(
                what="A refused message answers for the first of its frame too.",
                file="broker/service.py",
                old="                outcomes[place] = outcome\n",
                new=(
                    "                outcomes[place] = outcome\n"
                    "                if isinstance(outcome, MeshError):\n"
                    "                    outcomes[0] = outcome\n"
                ),
                test=f"{_BROKER}::test_many_frames_at_once_are_each_answered_and_a_bad_message_fails_alone",
            ),
            Fault(
                what="On PostgreSQL a refused message takes the id of a later one of its frame with it.",
                file="broker/stores/postgres/accept.py",
                old="    if later:\n",
                new="    if not later:\n",
                test=f"{_ACCEPTS}::test_an_id_that_was_refused_is_free_for_the_next_of_its_batch_and_keeps_the_order",
            ),
        ),
    ),
    Requirement("B6", "Push, audit, index and metrics trail the commit, never lead.", "contract 4", "planned"),
    Requirement(
        "B7",
        "Retention never outruns dedupe or drops an open delivery.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="An id is forgotten together with its message.",
                file="broker/stores/sqlite/upkeep.py",
                old='_SQL["flip_history_available"]',
                new='_SQL["delete_id"]',
                test=f"{_BROKER}::test_old_messages_go_their_ids_stay_and_what_was_waited_for_is_a_dead_letter_first",
            ),
            Fault(
                what="What somebody still waits for is deleted without a trace.",
                file="broker/stores/sqlite/upkeep.py",
                old=(
                    '        if fetch(connection, _SQL["buried_since"], (*key, page.buried_before_ms)):\n'
                    "            continue\n"
                ),
                new="",
                test=f"{_BROKER}::test_old_messages_go_their_ids_stay_and_what_was_waited_for_is_a_dead_letter_first",
            ),
            Fault(
                what="Who copied a message never learns that it went.",
                file="broker/stores/sqlite/upkeep.py",
                old='        connection.execute(_SQL["bury_message"], tombstone)\n',
                new="        del tombstone\n",
                test=f"{_BROKER}::test_old_messages_go_their_ids_stay_and_what_was_waited_for_is_a_dead_letter_first",
            ),
            Fault(
                what="Ids may be forgotten before their messages.",
                file="broker/settings.py",
                old="and self.dedupe_days < self.message_days:",
                new="and self.dedupe_days < 0:",
                test=f"{_BROKER_HTTP}::test_a_retention_that_forgets_ids_before_their_messages_is_refused",
            ),
            Fault(
                what="On PostgreSQL an id does not learn that its message is gone.",
                file="broker/stores/postgres/upkeep.sql",
                old="SET history_available = false, history_id = gone.history_id",
                new="SET history_available = true",
                test=f"{_UPKEEP}::test_an_old_message_goes_and_its_id_still_answers_until_it_expires_too",
            ),
            Fault(
                what="Of two brokers that sweep at once, the ids of the slower one's messages are kept for ever.",
                file="broker/stores/postgres/upkeep.py",
                old='    await _hold(connection, _SWEEP, b"0")  #',
                new="    #",
                test=f"{_PAIR_RACES}::test_ids_of_messages_that_two_brokers_sweep_at_once_are_all_forgotten",
            ),
            Fault(
                what="A sweep holds deliveries before their leases, and workers the other way round.",
                file="broker/stores/postgres/upkeep.py",
                old='    await connection.fetch(_SQL["hold_leases"], page.mesh_id, old)\n',
                new="",
                test=f"{_PAIR_RACES}::test_a_sweep_and_an_ack_of_the_same_work_never_wait_each_for_each",
            ),
        ),
    ),
    Requirement(
        "B8",
        "The orphan check finds any row that lost its partner.",
        "contract 4",
        "proven",
        faults=(
            Fault(
                what="A message without its body passes.",
                file="broker/stores/sqlite/upkeep.sql",
                old="  h.history_id IS NOT NULL AND t.id IS NULL AND q.id IS NULL,",
                new="  h.history_id IS NULL AND t.id IS NULL AND q.id IS NULL,",
                test=f"{_BROKER}::test_a_row_that_lost_its_partner_is_found_and_named_and_the_exit_code_tells",
            ),
            Fault(
                what="A message whose id is free again passes.",
                file="broker/stores/sqlite/upkeep.py",
                old='(("rows_without_ids", ()), ',
                new="(",
                test=f"{_BROKER}::test_a_row_that_lost_its_partner_is_found_and_named_and_the_exit_code_tells",
            ),
            Fault(
                what="A script that checks is told that all is well.",
                file="cli/broker.py",
                old='return 1 if found["violations"] else 0',
                new="return 0",
                test=f"{_BROKER}::test_a_row_that_lost_its_partner_is_found_and_named_and_the_exit_code_tells",
            ),
            Fault(
                what="On PostgreSQL an id without its message passes.",
                file="broker/stores/postgres/upkeep.sql",
                old="    h.history_id IS NULL AS no_history,\n",
                new="    false AS no_history,\n",
                test="tests/contract/broker/test_postgres_orphans.py::test_a_hole_in_an_accept_is_found",
            ),
        ),
    ),
)
