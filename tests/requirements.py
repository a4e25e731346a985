"""Every requirement of the contract: its id, what it asks in one line, and how far it is.

The rule: an id is `proven` when a test through a public surface names it with `@pytest.mark.req("F4")`
*and* a planted fault, noted here beside the id, turns that very test red. `planned` is to be built or to
be proven yet (tests may name it already), `later` belongs to a later round and nothing is built for it.

A marker on a test that cannot fail for that reason is a defect, so each fault is planted for real:
`tests/faults/test_planted_faults.py` changes a copy of `src` and runs the named test against it.
`tests/docs/test_requirements.py` checks this table against the tests, both ways; `make trace` prints it.

To move an id to `proven`, set its state and give it a fault:

    Requirement(
        "F4", "ULIDs of one process only go up, ...", "contract 1", "proven",
        faults=(
            Fault(
                what="A clock that steps back takes the next ULID back with it.",
                file="kernel/ids.py",  # under src/claudemesh
                old="if wall_ms > last >> ULID_RANDOM_BITS:",  # exactly once there
                new="if wall_ms >= 0:",
                test="tests/unit/kernel/test_ids.py::test_ids_rise_when_the_clock_steps_back",
            ),
        ),
    )
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["proven", "planned", "later"]


@dataclass(frozen=True)
class Fault:
    """A bug that somebody could plausibly write, and the test that must notice it."""

    what: str  # one sentence on the bug
    file: str  # under src/claudemesh
    old: str  # occurs exactly once in the file
    new: str
    test: str  # pytest node id, path::function, without parameters


@dataclass(frozen=True)
class Requirement:
    id: str
    sentence: str
    source: str  # the section of the contract
    state: State
    faults: tuple[Fault, ...] = ()


# --- where the tests stand ----------------------------------------------------------------------------------

_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_WORK = "tests/contract/broker/test_work_contract.py"
_ACCEPT = "tests/integration/test_daemon_accept.py"
_ACCEPTS = "tests/contract/broker/test_accept_contract.py"
_ANSWERS = "tests/acceptance/test_accept_promises.py"
_BROKER = "tests/acceptance/test_broker_promises.py"
_BROKER_HTTP = "tests/integration/test_broker_http.py"
_CALLS = "tests/integration/test_broker_calls.py"
_DELIVERY = "tests/acceptance/test_delivery.py"
_DRAIN = "tests/unit/daemon/test_drain.py"
_DISK = "tests/chaos/test_full_disk.py"
_FILE = "tests/unit/storage/test_sqlite_file.py"
_HELLO = "tests/integration/test_broker_hello.py"
_INBOX = "tests/acceptance/test_inbox_promises.py"
_IPC = "tests/integration/test_local_ipc.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_LIMITER = "tests/contract/broker/test_limiter_contract.py"
_LIMITS = "tests/acceptance/test_local_limits.py"
_MEMBERS = "tests/acceptance/test_membership.py"
_OUTBOX = "tests/acceptance/test_outbox_promises.py"
_POWER = "tests/powercut/test_outbox_power_cuts.py"
_RACES = "tests/contract/broker/test_postgres_races.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_REDIS = "tests/integration/test_redis_limiter.py"
_SEATS = "tests/contract/broker/test_seat_contract.py"
_SENDER = "tests/acceptance/test_sender_promises.py"
_SHARED = "tests/contract/broker/test_brokers_contract.py"
_STORE = "tests/contract/daemon/test_inbox_store.py"
_TERMS = "tests/acceptance/test_terms_and_tokens.py"
_TLS = "tests/integration/test_tls.py"
_UPKEEP = "tests/contract/broker/test_upkeep_contract.py"


REQUIREMENTS: tuple[Requirement, ...] = (
    # --- 1. The kernel -----------------------------------------------------------------------------
    Requirement(
        "F1",
        "A send has one id: header, body or minted; scoped per sender.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="Where header and body name different ids, the header wins silently.",
                file="kernel/ids.py",
                old="header != body:",
                new="not header:",
                test=f"{_ACCEPT}::test_the_id_is_the_headers_or_the_bodys_or_a_new_one",
            ),
            Fault(
                what="An id may be one character longer than any store was promised.",
                file="kernel/ids.py",
                old="CLIENT_MESSAGE_ID_LENGTH_MAX = 128",
                new="CLIENT_MESSAGE_ID_LENGTH_MAX = 129",
                test=f"{_ACCEPT}::test_an_id_that_is_not_visible_ascii_is_refused_and_nothing_is_stored",
            ),
            Fault(
                what="The inbox knows a message by its id alone, whoever sent it.",
                file="daemon/stores/sqlite/inbox.sql",
                old="SELECT 1 FROM inbox WHERE sender_id = ?1 AND",
                new="SELECT 1 FROM inbox WHERE",
                test=f"{_ANSWERS}::test_members_of_a_mesh_may_use_the_same_ids_and_have_budgets_of_their_own",
            ),
            Fault(
                what="The broker knows an id by its text alone, whoever used it.",
                file="broker/stores/sqlite/accept.sql",
                old="WHERE sender_id = ?1 AND client_message_id IN",
                new="WHERE client_message_id IN",
                test=f"{_ANSWERS}::test_members_of_a_mesh_may_use_the_same_ids_and_have_budgets_of_their_own",
            ),
            Fault(
                what="All members of a mesh share one budget.",
                file="broker/limiters/memory.py",
                old="setdefault((mesh, sender), set())",
                new="setdefault((mesh, mesh), set())",
                test=f"{_ANSWERS}::test_members_of_a_mesh_may_use_the_same_ids_and_have_budgets_of_their_own",
            ),
        ),
    ),
    Requirement(
        "F2",
        "The fingerprint covers every field of a request, byte for byte.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="The priority is left out of the fingerprint.",
                file="kernel/fingerprint.py",
                old="        request.priority,\n",
                new="        Priority.NEXT,\n",
                test="tests/unit/kernel/test_fingerprint.py::test_changing_any_field_changes_the_fingerprint",
            ),
            Fault(
                what="Names are sorted by code point instead of by UTF-16 unit.",
                file="kernel/canonical.py",
                old="sorted(members, key=_utf16_units)",
                new="sorted(members)",
                test="tests/docs/test_vectors.py::test_a_canonical_vector_holds",
            ),
            Fault(
                what="A NUL in meta passes because its escaped form does not break the framing.",
                file="kernel/fingerprint.py",
                old='if b"\\\\u0000" in form and _ESCAPED_NUL.search(form):',
                new='if b"\\0" in form:',
                test="tests/unit/kernel/test_fingerprint.py::test_a_nul_or_a_lone_surrogate_is_refused_in_every_text",
            ),
            Fault(
                what="The fast road is taken although a name beyond the surrogates sorts differently there.",
                file="kernel/canonical.py",
                old="max(names) >= _FIRST_SURROGATE",
                new="max(names) > chr(0x10FFFF)",
                test="tests/unit/kernel/test_canonical.py::test_names_sort_by_utf16_units_and_not_by_code_points",
            ),
            Fault(
                what="Mentions keep the order they came in.",
                file="kernel/fingerprint.py",
                old="[*sorted(mentions)]",
                new="[*mentions]",
                test="tests/unit/kernel/test_fingerprint.py::test_mentions_count_but_their_order_does_not",
            ),
        ),
    ),
    Requirement(
        "F2a",
        "Numbers without a canonical form are refused; the id stays free.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="An integer that no double can hold is written as if it had an exact form.",
                file="kernel/canonical.py",
                old="INTEGER_MAX: Final = 2**53 - 1",
                new="INTEGER_MAX: Final = 2**63 - 1",
                test=f"{_ACCEPT}::test_what_has_no_stored_form_is_a_clear_400_and_nothing_is_stored",
            ),
        ),
    ),
    Requirement(
        "F3",
        "Published vectors cover each canonical branch and each profile.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="The http_request profile forgets the query.",
                file="kernel/fingerprint.py",
                old="_digest(VERSION, method, path, query, _body_hash(body))",
                new='_digest(VERSION, method, path, "", _body_hash(body))',
                test="tests/docs/test_vectors.py::test_an_http_request_vector_holds",
            ),
            Fault(
                what="Large numbers get their exponent one place too early.",
                file="kernel/canonical.py",
                old="_PLAIN_POINT_MAX: Final = 21",
                new="_PLAIN_POINT_MAX: Final = 20",
                test="tests/docs/test_vectors.py::test_a_canonical_vector_holds",
            ),
        ),
    ),
    Requirement(
        "F4",
        "ULIDs of one process only go up, even when the clock steps back.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="A clock that steps back takes the next ULID back with it.",
                file="kernel/ids.py",
                old="if wall_ms > last >> ULID_RANDOM_BITS:",
                new="if wall_ms >= 0:",
                test="tests/unit/runtime/test_ids.py::test_ids_grow_when_the_clock_steps_back_an_hour",
            ),
            Fault(
                what="Each call begins anew instead of from the last id given.",
                file="runtime/ids.py",
                old="next_ulid(self._last,",
                new="next_ulid(0,",
                test="tests/unit/runtime/test_ids.py::test_ids_grow_when_the_clock_steps_back_an_hour",
            ),
        ),
    ),
    Requirement(
        "F5",
        "Retries back off with full jitter and obey Retry-After.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="Everybody who was told the same Retry-After returns at the same instant.",
                file="kernel/retry.py",
                old="return max(retry_after_ms or 0, 0) + int(ceiling_ms * jitter)",
                new="return retry_after_ms if retry_after_ms else int(ceiling_ms * jitter)",
                test="tests/unit/kernel/test_retry.py::test_a_retry_after_is_waited_out_and_the_jitter_comes_on_top",
            ),
            Fault(
                what="Half of the wait is fixed, so that clients come back closer together.",
                file="kernel/retry.py",
                old="int(ceiling_ms * jitter)",
                new="int(ceiling_ms * (1 + jitter) / 2)",
                test="tests/unit/kernel/test_retry.py::test_the_wait_is_spread_over_the_whole_range_below_the_ceiling",
            ),
            Fault(
                what="The cap is forgotten.",
                file="kernel/retry.py",
                old="min(BACKOFF_CAP_MS, BACKOFF_BASE_MS << min(attempts - 1, _DOUBLINGS_MAX))",
                new="BACKOFF_BASE_MS << min(attempts - 1, _DOUBLINGS_MAX)",
                test="tests/unit/kernel/test_retry.py::test_the_ceiling_doubles_from_half_a_second_to_a_minute",
            ),
        ),
    ),
    Requirement("F6", "A clock step neither extends nor kills a lease.", "contract 1", "planned"),
    Requirement(
        "F7",
        "Every error is one problem+json with a stable code and retry.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="A caller is not told what a second try may look like.",
                file="wire/problem.py",
                old='        "retry": error.retry,\n',
                new="",
                test="tests/acceptance/test_errors.py::test_every_refusal_is_a_problem_with_a_code_and_what_a_retry_may_be",
            ),
            Fault(
                what="A refusal is JSON like any other answer.",
                file="wire/problem.py",
                old='"application/problem+json"',
                new='"application/json"',
                test="tests/acceptance/test_errors.py::test_every_refusal_is_a_problem_with_a_code_and_what_a_retry_may_be",
            ),
            Fault(
                what="What nobody expected is told to the caller in full.",
                file="asgi/routes.py",
                old="else MeshError()",
                new="else MeshError(str(error))",
                test=f"{_IPC}::test_an_unexpected_error_tells_the_caller_nothing_and_the_connection_goes_on",
            ),
        ),
    ),
    Requirement("F8", "Priority changes the alert only, never order or fate.", "contract 1", "planned"),
    # --- 2. The daemon -----------------------------------------------------------------------------
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
                file="daemon/stores/sqlite/outbox.py",
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
                file="daemon/stores/sqlite/outbox.py",
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
                file="daemon/stores/sqlite/outbox.py",
                old="    if standing is None:\n        return submission.refusal\n",
                new=(
                    "    if standing is None or submission.refusal is not None:\n"
                    "        return submission.refusal\n"
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
                old="    history_id = coalesce(?9, history_id),\n",
                new=(
                    "    history_id = coalesce(?9, history_id),\n"
                    "    payload = CASE ?3 WHEN 'done' THEN x'' ELSE payload END,\n"
                ),
                test=f"{_ANSWERS}::test_what_was_accepted_stays_byte_for_byte_whatever_becomes_of_it",
            ),
            Fault(
                what="What an operator gives up loses its payload.",
                file="daemon/stores/sqlite/outbox.sql",
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
                file="daemon/stores/sqlite/outbox.sql",
                old="UPDATE outbox SET payload = x'' WHERE seq = ?1 AND",
                new="DELETE FROM outbox WHERE seq = ?1 AND",
                test=f"{_OUTBOX}::test_a_pruned_id_answers_as_before_and_a_dropped_one_never_comes_back",
            ),
            Fault(
                what="Pruning empties rows that still wait for an operator.",
                file="daemon/stores/sqlite/outbox.sql",
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
                old="if not outcome.history_available:",
                new="if outcome.history_available is None:",
                test=f"{_SENDER}::test_what_the_broker_had_but_keeps_no_more_is_done_and_counted",
            ),
            Fault(
                what="A row that is tried again goes behind those that came after it.",
                file="daemon/stores/sqlite/outbox.sql",
                old="IN ('pending', 'inflight')\nORDER BY seq LIMIT ?2;",
                new="IN ('pending', 'inflight')\nORDER BY attempts, seq LIMIT ?2;",
                test="tests/property/test_order_law.py::test_each_destination_gets_its_messages_in_the_order_they_were_accepted",
            ),
            Fault(
                what="One row that the broker cannot take blocks its destination for good.",
                file="daemon/policy.py",
                old="if is_server_failure and server_errors + 1 >= SERVER_ERRORS_MAX:",
                new="if is_server_failure and server_errors < 0:",
                test=f"{_SENDER}::test_a_row_that_the_broker_fails_at_while_it_takes_others_dies_in_the_end",
            ),
            Fault(
                what="A broker that is down kills rows as if they were poison.",
                file="daemon/policy.py",
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
                file="daemon/drain.py",
                old="lanes = [] if link is None else",
                new="lanes = [] if link is None or self._is_giving_up else",
                test=f"{_DRAIN}::test_asking_about_old_rows_keeps_no_other_destination_waiting",
            ),
            Fault(
                what="What is behind a row that is too old is never sent.",
                file="daemon/drain.py",
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
                file="daemon/stores/sqlite/outbox.sql",
                old="SET status = 'pending', attempts = attempts + 1,",
                new="SET status = 'pending', attempts = attempts,",
                test=f"{_ACCEPT}::test_a_restart_takes_up_what_was_out_and_counts_the_try",
            ),
            Fault(
                what="A restart leaves what was out as it was.",
                file="daemon/stores/sqlite/outbox.sql",
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
        ),
    ),
    Requirement(
        "D11",
        "Disk pressure refuses new ids in steps and loses no row.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="Nobody is told that the room is nearly used up.",
                file="daemon/pressure.py",
                old="if pct >= HIGH_PCT and not self._is_high:",
                new="if pct >= 100 * HIGH_PCT:",
                test=f"{_DISK}::test_used_up_room_refuses_new_sends_while_what_was_accepted_is_still_sent",
            ),
            Fault(
                what="New ids are taken until there is no room to send them.",
                file="daemon/pressure.py",
                old="accepts_bytes=reserved * REFUSE_PCT // 100",
                new="accepts_bytes=reserved",
                test=f"{_DISK}::test_used_up_room_refuses_new_sends_while_what_was_accepted_is_still_sent",
            ),
            Fault(
                what="What was accepted cannot be sent, once new ids are refused.",
                file="daemon/pressure.py",
                old="claims_bytes=reserved)",
                new="claims_bytes=reserved // 2)",
                test=f"{_DISK}::test_used_up_room_refuses_new_sends_while_what_was_accepted_is_still_sent",
            ),
            Fault(
                what="An outbox without any room goes on to take more.",
                file="daemon/pressure.py",
                old="claims_bytes=reserved)",
                new="claims_bytes=100 * reserved)",
                test=f"{_DISK}::test_an_outbox_without_any_room_sends_nothing_takes_what_comes_in_and_goes_on_later",
            ),
            Fault(
                what="The inbox takes whatever comes.",
                file="daemon/pressure.py",
                old="self._inbox.limit(reserved)",
                new="self._inbox.limit(100 * reserved)",
                test="tests/acceptance/test_inbound_refused.py::test_a_lost_inbox_that_has_no_room_to_come_back_says_so_and_goes_on_when_there_is",
            ),
        ),
    ),
    Requirement(
        "D12",
        "Migrations only go forward; a newer file is refused.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A file of a newer program is opened all the same.",
                file="storage/migrate.py",
                old="    if not 0 <= version <= len(migrations):",
                new="    if version < 0:",
                test=f"{_ANSWERS}::test_files_of_a_newer_program_keep_the_daemon_from_starting_and_stay_as_they_are",
            ),
            Fault(
                what="A migration that fails leaves half of itself behind.",
                file="storage/sqlite/transactions.py",
                old='                self._connection.execute("ROLLBACK")\n',
                new=(
                    '                self._may_commit = True\n                self._connection.execute("COMMIT")\n'
                ),
                test=f"{_FILE}::test_a_migration_that_fails_leaves_the_file_as_it_was",
            ),
        ),
    ),
    Requirement(
        "D13",
        "Bodies, requests, streams and rates are bounded, as configured.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="The settings' size of a request is passed over.",
                file="daemon/app.py",
                old="daemon_routes(parts), observer, body_bytes_max=ipc.body_bytes_max)",
                new="daemon_routes(parts), observer)",
                test=f"{_LIMITS}::test_requests_and_batches_are_as_large_as_the_settings_say_and_no_larger",
            ),
            Fault(
                what="A batch may be as large as any other request, and no larger.",
                file="daemon/http/sends.py",
                old="body_bytes_max=parts.settings.config.ipc.batch_bytes_max",
                new="body_bytes_max=None",
                test=f"{_LIMITS}::test_requests_and_batches_are_as_large_as_the_settings_say_and_no_larger",
            ),
            Fault(
                what="The server cuts off what the settings allow.",
                file="daemon/app.py",
                old="ServerLimits(request_bytes_max=2 * max(ipc.body_bytes_max, ipc.batch_bytes_max))",
                new="ServerLimits()",
                test=f"{_LIMITS}::test_a_batch_beyond_the_default_is_taken_where_the_settings_allow_it",
            ),
            Fault(
                what="As many requests at once as come.",
                file="daemon/app.py",
                old="app = InFlight(router, observer, ipc.in_flight_max)",
                new="app = InFlight(router, observer)",
                test=f"{_LIMITS}::test_one_request_more_than_the_settings_allow_at_once_is_told_to_come_again",
            ),
            Fault(
                what="As many streams as by default, whatever the settings say.",
                file="daemon/http/events.py",
                old="Streams(parts.settings.config.ipc.streams_max)",
                new="Streams()",
                test=f"{_LIMITS}::test_one_stream_more_than_the_settings_allow_is_told_so",
            ),
            Fault(
                what="A token asks as often as by default, whatever the settings say.",
                file="daemon/app.py",
                old="limit=RateLimit(ipc.requests_per_s, ipc.burst),",
                new="limit=RateLimit(),",
                test=f"{_LIMITS}::test_a_token_is_held_to_the_settings_rate_and_the_socket_is_not",
            ),
            Fault(
                what="The size of a request can be set to nothing at all.",
                file="daemon/settings.py",
                old='int, Meta(ge=1 << 16, le=1 << 26, description="The largest request',
                new='int, Meta(description="The largest request',
                test=f"{_LIMITS}::test_a_limit_that_is_none_keeps_the_daemon_from_starting",
            ),
        ),
    ),
    Requirement("D14", "The rest of the local API is there, authenticated, documented.", "contract 2", "planned"),
    Requirement(
        "D15",
        "Only the owner's processes get in; tokens never reach a log.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="Any name that resolves to this machine gets in.",
                file="asgi/policy.py",
                old="if not hosts or hosts[0].lower() not in names.hosts:",
                new="if not hosts:",
                test=f"{_IPC}::test_attack_4_and_5_a_host_that_is_not_ours_is_a_403",
            ),
            Fault(
                what="Pages of other origins get in.",
                file="asgi/policy.py",
                old="if origins and not (",
                new="if len(origins) > 1 and not (",
                test=f"{_IPC}::test_attack_6_another_origin_is_a_403_and_our_own_is_not",
            ),
            Fault(
                what="A token of the right length will do.",
                file="asgi/tokens.py",
                old="is_current = hmac.compare_digest(presented, self._current)",
                new="is_current = len(presented) == len(self._current)",
                test=f"{_TERMS}::test_tcp_needs_the_token_and_a_new_one_leaves_the_old_a_while",
            ),
            Fault(
                what="A new token ends the old one at once.",
                file="asgi/tokens.py",
                old="GRACE_MS: Final = 60_000",
                new="GRACE_MS: Final = 0",
                test=f"{_TERMS}::test_tcp_needs_the_token_and_a_new_one_leaves_the_old_a_while",
            ),
            Fault(
                what="A token in the query string is passed over.",
                file="asgi/guard.py",
                old="        if is_named or is_ours:\n",
                new="        if is_named and is_ours:\n",
                test=f"{_IPC}::test_attack_3_a_token_in_the_query_is_a_400_and_a_security_event",
            ),
            Fault(
                what="Other users of this machine get in by the socket.",
                file="asgi/server.py",
                old="if _peer_uid(transport) not in (None, house.peer_uid):",
                new="if _peer_uid(transport) == -1:",
                test=f"{_IPC}::test_attack_11_another_user_is_cut_off_before_a_word_is_read",
            ),
            Fault(
                what="The alarm about a token in an address repeats it.",
                file="asgi/guard.py",
                old="TokenExposed(peer, is_ours)",
                new='TokenExposed(scope["query_string"].decode(), is_ours)',
                test=f"{_IPC}::test_tokens_never_reach_a_log",
            ),
        ),
    ),
    Requirement(
        "D16",
        "Identity and exposure follow the host; a clone is refused.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="A copied state directory is used without a word.",
                file="daemon/identity.py",
                old='if policy == "refuse":',
                new='if policy == "refused":',
                test=f"{_LIFE}::test_a_state_directory_of_another_host_is_refused",
            ),
            Fault(
                what="The surroundings win over what was said.",
                file="cli/daemon.py",
                old="around.ephemeral if said.ephemeral is None else said.ephemeral",
                new="around.ephemeral or bool(said.ephemeral)",
                test="tests/unit/cli/test_operator.py::test_a_daemon_is_started_as_the_flags_say_and_else_as_the_surroundings_do",
            ),
            Fault(
                what="Key files can be read by everybody.",
                file="runtime/home.py",
                old="descriptor = os.open(temporary, flags, 0o600)",
                new="descriptor = os.open(temporary, flags, 0o644)",
                test="tests/unit/daemon/test_identity.py::test_what_was_stored_is_loaded_and_signs_as_before",
            ),
            Fault(
                what="An ephemeral daemon speaks with its member's key, and gets its messages.",
                file="daemon/credentials.py",
                old="None if ephemeral_ttl_ms is None else KeyPair.generate()",
                new="None",
                test=f"{_LIFE}::test_an_ephemeral_daemon_sends_as_its_member_and_leaves_its_inbox_alone",
            ),
        ),
    ),
    Requirement(
        "D17",
        "A batch has one outcome per entry; a bad one harms no other.",
        "contract 2",
        "proven",
        faults=(
            Fault(
                what="One entry that cannot be read fails its whole batch.",
                file="daemon/http/sends.py",
                old="        return InvalidRequest(str(error)[:300])\n",
                new="        raise InvalidRequest(str(error)[:300]) from error\n",
                test=f"{_ACCEPT}::test_in_a_batch_every_send_has_its_own_outcome",
            ),
            Fault(
                what="A key of the batch is taken and means nothing.",
                file="daemon/http/sends.py",
                old="        if request.header(KEY_HEADER) is not None:\n",
                new='        if request.header(KEY_HEADER) == "":\n',
                test=f"{_ACCEPT}::test_a_batch_has_no_key_of_its_own_and_at_most_a_thousand_sends",
            ),
            Fault(
                what="Of an id that is twice in a batch the second is answered as the first.",
                file="daemon/stores/sqlite/outbox.py",
                old=("    return None if standing.row_id == submission.row_id else standing\n"),
                new=("    return None if standing.state is OutboxState.PENDING else standing\n"),
                test=f"{_ACCEPT}::test_in_a_batch_every_send_has_its_own_outcome",
            ),
        ),
    ),
    Requirement("D18", "Files are shared sealed, bounded and path-safe.", "contract 2", "later"),
    Requirement("D19", "Gapless sender numbers reveal a silently lost WAL tail.", "contract 2", "later"),
    # --- 3. The wire -------------------------------------------------------------------------------
    Requirement(
        "N1",
        "One main socket speaks the documented tagged JSON frames.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="The fields of a hello are not those of the contract.",
                file="wire/frames.py",
                old='class Hello(Frame, frozen=True, tag="hello", rename="camel"):',
                new='class Hello(Frame, frozen=True, tag="hello"):',
                test="tests/integration/test_broker.py::test_the_frames_are_spelled_as_the_contract_spells_them",
            ),
            Fault(
                what="A frame is tagged with another word.",
                file="wire/frames.py",
                old='tag="send_result"',
                new='tag="sent"',
                test="tests/integration/test_broker.py::test_the_frames_are_spelled_as_the_contract_spells_them",
            ),
            Fault(
                what="What comes before the hello is answered after it.",
                file="broker/ws.py",
                old='            raise Closing(frames.CLOSE_UNAUTHENTICATED, "hello_required")\n        try:\n',
                new=('            raise Closing(frames.CLOSE_BAD_FRAME, "hello_required")\n        try:\n'),
                test=f"{_HELLO}::test_nothing_is_understood_before_the_hello",
            ),
            Fault(
                what="A daemon believes any certificate.",
                file="daemon/link.py",
                old="        proxy=None,\n",
                new=(
                    "        proxy=None,\n"
                    "        ssl=ssl._create_unverified_context() if settings.socket_url[2] == 's' else None,\n"
                ),
                test=f"{_TLS}::test_a_broker_under_another_name_than_its_certificates_is_not_spoken_to",
            ),
            Fault(
                what="Whoever makes or joins a mesh believes any certificate.",
                file="cli/enrol.py",
                old="context=ssl.create_default_context()",
                new="context=ssl._create_unverified_context()",
                test=f"{_TLS}::test_a_mesh_is_not_made_at_a_broker_that_nobody_vouches_for",
            ),
        ),
    ),
    Requirement(
        "N2",
        "Features are negotiated and every parameter is validated.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="A policy that nobody knows ends the connection.",
                file="wire/negotiation.py",
                old="    if policy in POLICIES:\n",
                new=(
                    "    if policy not in POLICIES:\n"
                    "        raise _invalid(CONCURRENT, str(policy))\n"
                    "    if policy:\n"
                ),
                test=f"{_SENDER}::test_a_bad_optional_parameter_is_told_and_the_daemons_own_default_holds",
            ),
            Fault(
                what="A size below the floor is believed.",
                file="wire/negotiation.py",
                old="if _is_whole(offered) and floor.least <= offered",
                new="if _is_whole(offered) and 0 <= offered",
                test=f"{_SENDER}::test_a_bad_optional_parameter_is_told_and_the_daemons_own_default_holds",
            ),
            Fault(
                what="A frame is too small for the largest message that was agreed on.",
                file="broker/offer.py",
                old="inline_bytes * _ESCAPED_BYTES_MAX",
                new="inline_bytes",
                test=f"{_HELLO}::test_the_brokers_offer_is_one_that_a_daemon_takes",
            ),
        ),
    ),
    Requirement(
        "N3",
        "Each way to end a connection has its close code and reaction.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="A daemon that cannot agree with any broker ends as if all were well.",
                file="daemon/app.py",
                old="exit_code = EXIT_FAILED",
                new="exit_code = EXIT_OK",
                test=f"{_TERMS}::test_a_daemon_that_finds_no_terms_at_its_first_connection_ends_and_says_why",
            ),
            Fault(
                what="A daemon ends when a broker's terms get worse, and accepts nothing more.",
                file="daemon/link.py",
                old="if not self._has_agreed:",
                new="if self._has_agreed is not None:",
                test=f"{_TERMS}::test_a_daemon_that_had_terms_before_goes_on_accepting_when_they_get_worse",
            ),
            Fault(
                what="A hello of long ago is as good as one of now.",
                file="broker/hello.py",
                old="if abs(hello.timestamp_ms - now) > CLOCK_SKEW_MAX_MS:",
                new="if hello.timestamp_ms - now > CLOCK_SKEW_MAX_MS:",
                test=f"{_HELLO}::test_a_clock_that_is_too_far_off_is_told_the_right_time",
            ),
            Fault(
                what="A hello that was heard on another connection is taken.",
                file="wire/signing.py",
                old="        nonce,\n",
                new='        "",\n',
                test=f"{_HELLO}::test_a_hello_is_good_once_and_on_its_own_connection",
            ),
            Fault(
                what="A daemon that requires what there is not stays connected.",
                file="broker/ws.py",
                old="        if response.missing_required:\n",
                new="        if not response.supported:\n",
                test=f"{_HELLO}::test_a_daemon_that_requires_what_there_is_not_is_told_and_closed",
            ),
            Fault(
                what="A caller that says nothing may stay.",
                file="broker/ws.py",
                old="async with asyncio.timeout(house.settings.hello_timeout_s):",
                new="async with asyncio.timeout(None):",
                test=f"{_HELLO}::test_a_caller_that_says_nothing_is_closed",
            ),
        ),
    ),
    Requirement("N4", "A second connection of a key follows instance and policy.", "contract 3", "planned"),
    # --- 4. The broker -----------------------------------------------------------------------------
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
                old="return self._live.get((member_id, to_session)) or self._live.get((member_id, None), [])",
                new="return self.of(member_id)",
                test="tests/acceptance/test_hard_cases.py::test_a_message_to_a_sessions_key_reaches_that_session_and_later_its_member",
            ),
            Fault(
                what="What named a session that ended waits for it for ever.",
                file="broker/hub.py",
                old="return self._live.get((member_id, to_session)) or self._live.get((member_id, None), [])",
                new="return self._live.get((member_id, to_session), [])",
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
                old="AND $3::bigint = (SELECT max(token)",
                new="AND $3::bigint IN (SELECT token",
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
                file="daemon/stores/sqlite/inbox.py",
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
                file="daemon/link.py",
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
                new="        for connection in tuple(self._live.get((member_id, None), ())):\n",
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
                file="daemon/link.py",
                old="if (closed.code, closed.reason) == _REVOKED:",
                new="if closed.code == 0:",
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
    # --- 5. Presence -------------------------------------------------------------------------------
    Requirement("P1", "Any sign of life keeps a lease; a watchdog's terminate is none.", "contract 5", "planned"),
    Requirement("P2", "A join is announced only when no live lease stands.", "contract 5", "planned"),
    Requirement("P3", "A closed socket is merely offline until its lease ends.", "contract 5", "planned"),
    Requirement("P4", "A resume swaps the socket, drains in order, renews the token.", "contract 5", "planned"),
    Requirement("P5", "An ended lease is one departure; the next hello is one join.", "contract 5", "planned"),
    Requirement("P6", "A resume token opens nothing when forged, stale, used or stolen.", "contract 5", "planned"),
    Requirement("P7", "Both sides ping, and end a silent connection in time.", "contract 5", "planned"),
    Requirement("P8", "Messages to an absent peer wait and arrive once on return.", "contract 5", "planned"),
    Requirement("P9", "Leases outlive a broker; no departure is announced twice.", "contract 5", "planned"),
    Requirement("P10", "Sessions register with a fresh attestation and are reaped.", "contract 5", "planned"),
    Requirement("P11", "The peer list has one entry per member with a live lease.", "contract 5", "planned"),
    Requirement("P12", "Lease times come from the environment; six scenarios hold.", "contract 5", "planned"),
    Requirement("P13", "A full peer entry tells if a send now would be seen.", "contract 5", "planned"),
    # --- 6. The ledger -----------------------------------------------------------------------------
    Requirement("L1", "Tables, triggers and error words are those callers rely on.", "contract 6", "planned"),
    Requirement("L2", "No raw SQL breaks the ledger; a lost trigger stops writes.", "contract 6", "planned"),
    Requirement("L3", "Claims follow one order, never overlap, and raise the token.", "contract 6", "planned"),
    Requirement("L4", "A wrong completion is refused by name; a right one is atomic.", "contract 6", "planned"),
    Requirement("L5", "A post is idempotent per key; another payload conflicts.", "contract 6", "planned"),
    Requirement("L6", "Verify passes or counts the issues, and exits 0 or 1.", "contract 6", "planned"),
    Requirement("L7", "Version 2 adds requeue and renewal; upgrading is explicit.", "contract 6", "planned"),
    Requirement("L8", "The ledger only records: jobs posted, nothing executed.", "contract 6", "planned"),
    Requirement("L9", "A queue message is posted once and its receipt is the reply.", "contract 6", "planned"),
    Requirement("L10", "A hash chain and a signed head betray any rewrite.", "contract 6", "planned"),
    # --- 7. The edge relay and the hub -------------------------------------------------------------
    Requirement("R1", "The middleware runs a keyed write once and replays its answer.", "contract 7", "planned"),
    Requirement("R2", "The hub serves its resources with revisions and cursors.", "contract 7", "planned"),
    Requirement("R3", "A policy file sorts routes: append, replace or online-only.", "contract 7", "planned"),
    Requirement("R4", "The relay forwards, or queues durably and says it is queued.", "contract 7", "planned"),
    Requirement("R5", "Envelopes keep their states; a corrupt file stops queueing only.", "contract 7", "planned"),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "planned"),
    Requirement("R7", "Replay keeps entity order; a bad envelope blocks its own only.", "contract 7", "planned"),
    Requirement("R8", "A replacing write needs an expectation; a stale one conflicts.", "contract 7", "planned"),
    Requirement("R9", "Operators see, settle and rehearse an outage by command.", "contract 7", "planned"),
    Requirement("R10", "The relay is measured, and a queued write has no side effect.", "contract 7", "planned"),
    # --- 8. The data pipeline ----------------------------------------------------------------------
    Requirement("S1", "Ingest is incremental and exactly once across crashes.", "contract 8", "planned"),
    Requirement("S2", "Each job rebuilds or measures its subject from stored data.", "contract 8", "planned"),
    Requirement("S3", "The history checker proves the promise or shows violations.", "contract 8", "planned"),
    Requirement("S4", "Pipeline commands show progress and write their reports.", "contract 8", "planned"),
    Requirement("S5", "Jobs are expressions and SQL; a Python UDF is the exception.", "contract 8", "planned"),
    Requirement("S6", "The jobs also run on a cluster of several processes.", "contract 8", "planned"),
    # --- 9. Identity, hooks, lifecycle, surfaces ---------------------------------------------------
    Requirement("I1", "Messages are sealed end to end, at accept.", "contract 9", "later"),
    Requirement("I2", "Keys rotate with grace, are backed up, restored and revoked.", "contract 9", "later"),
    Requirement(
        "I3",
        "Creating and redeeming are idempotent; invites work offline.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="A mesh that is asked for again is refused.",
                file="broker/stores/sqlite/directory.py",
                old="else (standing, member)",
                new="else NameTaken()",
                test=f"{_BROKER_HTTP}::test_a_mesh_is_made_once_however_often_it_is_asked_for",
            ),
            Fault(
                what="An invite is never used up.",
                file="broker/policy.py",
                old="if uses_left <= 0:",
                new="if uses_left < 0:",
                test=f"{_BROKER_HTTP}::test_an_invite_lets_its_newcomers_in_and_nobody_else",
            ),
            Fault(
                what="Every member may invite.",
                file="broker/policy.py",
                old="if inviter is None or judge_manager(inviter) is not None:",
                new="if inviter is None:",
                test=f"{_BROKER_HTTP}::test_an_invite_lets_its_newcomers_in_and_nobody_else",
            ),
            Fault(
                what="Any admin token makes meshes.",
                file="broker/http.py",
                old="if admin.identify(presented.strip().encode()) is None:",
                new="if not presented.strip():",
                test=f"{_BROKER_HTTP}::test_with_an_admin_token_only_its_holder_makes_meshes",
            ),
            Fault(
                what="Whoever reaches a broker from elsewhere makes meshes on it.",
                file="broker/app.py",
                old="if is_reached and settings.admin_token_file is None:",
                new="if not host:",
                test=f"{_BROKER_HTTP}::test_beyond_this_machine_a_broker_needs_an_admin_token",
            ),
        ),
    ),
    Requirement("I4", "A member can be renamed, and the others are told.", "contract 9", "later"),
    Requirement("H1", "Hooks run bounded, redacted, scoped and audited.", "contract 9", "later"),
    Requirement("C1", "Four commands share verbs, JSON output and exit codes.", "contract 9", "planned"),
    Requirement(
        "C2",
        "The SDK finds its daemon, sync or async, and has no cold path.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="Of several meshes the first is taken.",
                file="sdk/find.py",
                old="if asked is None and len(joined) == 1:",
                new="if asked is None and joined:",
                test="tests/unit/sdk/test_find.py::test_of_several_meshes_none_is_guessed_and_the_error_names_them",
            ),
            Fault(
                what="A send without a daemon waits for one until its time is up, and names no command.",
                file="daemon/client/connection.py",
                old="is not there: start it with `claudemesh daemon up`",
                new="is not there",
                test="tests/unit/sdk/test_find.py::test_without_a_daemon_every_use_is_an_error_that_names_the_command",
            ),
            Fault(
                what="A mesh in memory leaves its folder behind.",
                file="sdk/memory.py",
                old='Path(stack.enter_context(TemporaryDirectory(prefix="claudemesh-")))',
                new='Path(__import__("tempfile").mkdtemp(prefix="claudemesh-"))',
                test="tests/integration/test_sdk_in_memory.py::test_nothing_is_left_of_a_mesh_that_is_over",
            ),
        ),
    ),
    Requirement("C3", "The MCP tools are few, idempotent, and tell queued from done.", "contract 9", "planned"),
    Requirement("C4", "The dashboard is live, works offline, is inert to any body.", "contract 9", "planned"),
    Requirement("C5", "Doctor names what is wrong and its remedy; top shows it live.", "contract 9", "planned"),
    Requirement("C6", "The daemon installs as a hardened service, not in CI.", "contract 9", "later"),
    Requirement("C7", "Installing into an agent host is idempotent and verifiable.", "contract 9", "planned"),
    Requirement("C8", "One host runs several meshes within a shared budget.", "contract 9", "later"),
    Requirement("O1", "Metrics carry the promised names; logs are structured.", "contract 9", "planned"),
    Requirement(
        "O2",
        "Unknown settings are refused; a reload keeps the connection.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="A setting that nobody knows is passed over.",
                file="runtime/settings.py",
                old="for key in table if key not in part.fields]",
                new="for key in table if not key]",
                test=f"{_ANSWERS}::test_a_reload_keeps_the_connection_and_refuses_what_it_does_not_know",
            ),
            Fault(
                what="A reload begins the connection anew.",
                file="daemon/http/manage.py",
                old="        await parts.pressure.look()\n",
                new=(
                    "        await parts.pressure.look()\n"
                    "        if parts.connector.link is not None:\n"
                    "            await parts.connector.link.close()\n"
                ),
                test=f"{_ANSWERS}::test_a_reload_keeps_the_connection_and_refuses_what_it_does_not_know",
            ),
            Fault(
                what="A setting may go without a word on what it is for.",
                file="runtime/settings.py",
                old="        if not meaning:\n",
                new="        if meaning is None:\n",
                test="tests/unit/runtime/test_settings.py::test_a_setting_that_does_not_say_what_it_is_for_is_a_mistake",
            ),
        ),
    ),
    Requirement("T1", "The threat model names attackers, defaults and its limits.", "contract 9", "planned"),
)
