"""Contract 7, the relay: bugs that somebody could plausibly write, and the tests that notice them."""

from tests.requirements.model import Fault

_ATTACKS = "tests/integration/test_relay_attacks.py"
_BULK = "tests/integration/test_relay_bulk.py"
_KEEPING = "tests/integration/test_relay_keeping.py"
_OPERATORS = "tests/integration/test_relay_operators.py"
_RELAY = "tests/integration/test_relay.py"
_COALESCING = "tests/integration/test_relay_coalescing.py"
_REPLAY = "tests/integration/test_relay_replay.py"
_CANARIES = f"{_ATTACKS}::test_46_no_secret_is_found_on_the_disk_whatever_way_it_came"

R4: tuple[Fault, ...] = (
    Fault(
        what="While the upstream is there, a write overtakes those that wait for its entity.",
        file="edge/service.py",
        old="if not has_open and not any(standing):",
        new="if (not has_open or self._reach.is_online) and not any(standing):",
        test=f"{_RELAY}::test_a_write_to_an_entity_with_queued_ones_waits_behind_them_also_online",
    ),
    Fault(
        what="A replay goes out under a key of its own.",
        file="edge/sorting.py",
        old='            key=key,\n            body=msgspec.Raw(asked.raw or b"{}"),',
        new='            key=key + "x",\n            body=msgspec.Raw(asked.raw or b"{}"),',
        test=f"{_RELAY}::test_a_body_is_replayed_byte_for_byte_under_the_key_of_the_first_try",
    ),
    Fault(
        what="What stands around the JSON is sent the first time, and not the second.",
        file="edge/sorting.py",
        old="    if raw != asked.raw:\n",
        new="    if raw is None:\n",
        test=f"{_RELAY}::test_a_body_is_replayed_byte_for_byte_under_the_key_of_the_first_try",
    ),
    Fault(
        what="A write without a body is replayed with one.",
        file="edge/replay.py",
        old='body=b"" if envelope.is_bodiless else bytes(envelope.body),',
        new="body=bytes(envelope.body),",
        test=f"{_RELAY}::test_a_write_without_a_body_is_replayed_without_one",
    ),
    Fault(
        what="A gateway's 503 is told to the caller, and the write is lost.",
        file="edge/policy.py",
        old="UPSTREAM_AWAY: Final = frozenset({502, 503, 504})",
        new="UPSTREAM_AWAY: Final = frozenset({502, 504})",
        test=f"{_RELAY}::test_a_gateway_without_anybody_behind_it_is_as_good_as_nobody",
    ),
    Fault(
        what="A bulk is done when its first entry is.",
        file="edge/service.py",
        old="        if states:\n",
        new="        if states and rows[0].answer is None:\n",
        test=f"{_BULK}::test_a_bulk_that_is_asked_again_is_done_only_when_all_of_it_is",
    ),
    Fault(
        what="Of a long key only the beginning counts.",
        file="edge/sorting.py",
        old="digest = hashlib.sha256(key.encode()).hexdigest()",
        new="digest = hashlib.sha256(key[:BULK_KEY_CHARS].encode()).hexdigest()",
        test=f"{_BULK}::test_two_bulks_whose_long_keys_begin_alike_are_two",
    ),
    Fault(
        what="Of what is online-only and may have arrived it is said that nothing was sent.",
        file="edge/service.py",
        old="        if may_be_there:\n",
        new="        if may_be_there and not write.lanes:\n",
        test=f"{_RELAY}::test_what_is_online_only_and_may_have_arrived_has_an_unknown_outcome",
    ),
    Fault(
        what="What is online-only overtakes the writes that wait for its entity.",
        file="edge/sorting.py",
        old="else self._routes.entity_of(self.asked.path)",
        new="else None",
        test=f"{_RELAY}::test_what_is_online_only_does_not_overtake_what_waits_for_its_entity",
    ),
    Fault(
        what="An old summary looks like a new one.",
        file="edge/reads.py",
        old='{**shown, "stale": True, "stale_since": since}',
        new='{**shown, "stale_since": since}',
        test=f"{_RELAY}::test_the_summary_may_be_stale_and_then_says_so",
    ),
    Fault(
        what="A request that names a host gets the relay's own pages.",
        file="edge/http.py",
        old=" and TARGET not in scope",
        new="",
        test=f"{_ATTACKS}::test_40_a_request_that_names_a_host_is_refused",
    ),
    Fault(
        what="Only the first address of a name is judged.",
        file="edge/upstream.py",
        old="        for address in found:\n            if wrong",
        new="        for address in found[:1]:\n            if wrong",
        test=f"{_ATTACKS}::test_41_a_name_that_leads_elsewhere_later_is_not_followed_there",
    ),
    Fault(
        what="A redirect is passed on.",
        file="edge/exchange.py",
        old='if name == b"location" and 300 <= status < 400:',
        new='if name == b"refresh" and 300 <= status < 400:',
        test=f"{_ATTACKS}::test_42_a_redirect_is_not_followed",
    ),
    Fault(
        what="A caller says from where it was forwarded.",
        file="edge/door.py",
        old="elif name in _FORWARDED or name.startswith(_FORWARDED_PREFIX):",
        new='elif name in _FORWARDED or name.startswith(b"x-"):',
        test=f"{_ATTACKS}::test_45_what_is_not_the_callers_to_say_is_dropped",
    ),
)

R5: tuple[Fault, ...] = (
    Fault(
        what="With a damaged file the relay does not start.",
        file="edge/app.py",
        old="    except StoreCorrupt as error:\n        world",
        new="    except ConfigError as error:\n        world",
        test=f"{_KEEPING}::test_with_a_damaged_file_nothing_is_queued_and_forwarding_goes_on",
    ),
    Fault(
        what="A file that is damaged while the relay runs is its end.",
        file="edge/app.py",
        old="        except* StoreCorrupt as found:",
        new="        except* ConfigError as found:",
        test=f"{_KEEPING}::test_a_file_that_is_damaged_while_the_relay_runs_keeps_nothing_from_being_forwarded",
    ),
    Fault(
        what="When there is no room left, nothing is sent either, and there never is.",
        file="edge/app.py",
        old="claims_bytes=sys.maxsize)",
        new="claims_bytes=sys.maxsize and limits.reserved_bytes)",
        test=f"{_KEEPING}::test_56_when_there_is_no_room_a_write_is_refused_and_nothing_is_dropped",
    ),
    Fault(
        what="Of a bulk for which there is no room a part is taken.",
        file="edge/service.py",
        old="stood = await self._outbox.accept_all(submissions)",
        new="stood = [await self._outbox.accept(one) for one in submissions]",
        test=f"{_BULK}::test_a_disk_that_is_full_in_the_middle_of_a_bulk_keeps_nothing_of_it",
    ),
    Fault(
        what="What was being sent when the relay ended is taken for sent.",
        file="outbox/stores/sqlite/rows.sql",
        old="attempts = attempts + 1, next_attempt_at = ?1 WHERE status = 'inflight'",
        new="attempts = attempts + 1, next_attempt_at = ?1 WHERE status = 'inflight' AND attempts > 0",
        test=f"{_KEEPING}::test_what_was_being_sent_when_the_relay_ended_is_sent_again_under_its_key",
    ),
    Fault(
        what="A body of any size may wait.",
        file="edge/policy.py",
        old="QUEUED_BYTES_MAX: Final = 256 * 1024",
        new="QUEUED_BYTES_MAX: Final = 512 * 1024",
        test=f"{_RELAY}::test_a_body_that_is_too_large_to_wait_is_forwarded_and_not_queued",
    ),
    Fault(
        what="What was acked is kept for ever.",
        file="edge/app.py",
        old="world.earliest_ms() - days * DAY_MS",
        new="world.earliest_ms() - 2 * days * DAY_MS",
        test=f"{_KEEPING}::test_the_body_of_what_is_acked_goes_after_its_days_and_its_key_stays_known",
    ),
    Fault(
        what="What is imported twice is there twice.",
        file="edge/operate.py",
        old="key=one.idempotency_key,\n            fingerprint",
        new="key=row_id,\n            fingerprint",
        test=f"{_KEEPING}::test_what_waits_can_be_taken_to_another_relay_and_is_done_once",
    ),
)

R6: tuple[Fault, ...] = (
    Fault(
        what="A credential comes in by an import, as a status that was passed.",
        file="edge/operate.py",
        old="*named, *envelope.passed, *(",
        new="*named, *(",
        test="tests/integration/test_relay_imports.py::test_no_credential_comes_in_with_an_import",
    ),
    Fault(
        what="A body that holds a secret waits on the disk.",
        file="edge/sorting.py",
        old="if find_secret(asked.body) is not None or any(",
        new="if any(",
        test=_CANARIES,
    ),
    Fault(
        what="A secret in If-Match waits on the disk.",
        file="edge/sorting.py",
        old='asked.query, asked.if_match or "")',
        new="asked.query)",
        test=_CANARIES,
    ),
    Fault(
        what="A secret in a path is not seen if it is percent-encoded.",
        file="edge/keeping.py",
        old='forms = {text, unquote(text)} if "%" in text else {text}',
        new="forms = {text}",
        test=_CANARIES,
    ),
    Fault(
        what="The headers of an answer are kept, whatever is in them.",
        file="edge/keeping.py",
        old=' and not holds_credential(value.decode("latin-1"))',
        new="",
        test=_CANARIES,
    ),
    Fault(
        what="The body of an answer is kept, whatever is in it.",
        file="edge/keeping.py",
        old="return None if find_secret(parsed) is not None else body",
        new="return body if parsed is not None else None",
        test=_CANARIES,
    ),
    Fault(
        what="What the upstream calls an error is written down and logged, whatever it is.",
        file="edge/policy.py",
        old=" and find_secret_text(code) is None",
        new="",
        test=_CANARIES,
    ),
    Fault(
        what="The row of a conflict is kept, whatever is in it.",
        file="edge/replay.py",
        old="theirs=kept_json(theirs),",
        new="theirs=theirs,",
        test=_CANARIES,
    ),
    Fault(
        what="Who says to have sent it is written down, whatever is said.",
        file="edge/http.py",
        old='return derive_source(given.get(b"x-source-" + name.encode())) or None',
        new='return given.get(b"x-source-" + name.encode()) or None',
        test=_CANARIES,
    ),
    Fault(
        what="A credential is taken for a key.",
        file="edge/http.py",
        old="    if is_credential(key):\n",
        new="    if is_credential(key[:4]):\n",
        test=_CANARIES,
    ),
)

R7: tuple[Fault, ...] = (
    Fault(
        what="A receipt of another relay in between counts as done.",
        file="edge/policy.py",
        old="    if is_receipt(answer):",
        new="    if answer is None:",
        test=f"{_REPLAY}::test_what_may_pass_is_tried_again_under_the_same_key",
    ),
    Fault(
        what="An upstream that refuses the relay is asked again at once, for ever.",
        file="edge/reach.py",
        old="if self.state is State.REFUSED and is_due:",
        new="if self.state is State.REFUSED:",
        test=f"{_REPLAY}::test_a_refusal_of_the_relay_itself_pauses_it_and_alarms",
    ),
    Fault(
        what="Whoever says replay waits for the backoff all the same.",
        file="edge/reach.py",
        old="            listener.hurry()\n",
        new="            listener.upstream_is_there()\n",
        test=f"{_REPLAY}::test_a_wait_that_the_upstream_asks_for_is_kept_until_somebody_says_replay",
    ),
    Fault(
        what="What was tried is replayed until a day after its key may be forgotten.",
        file="edge/replay.py",
        old="max(self.key_expiry_ms - MARGIN_MS, 0)",
        new="max(self.key_expiry_ms + MARGIN_MS, 0)",
        test=f"{_REPLAY}::test_what_was_tried_is_not_replayed_when_its_key_may_be_forgotten_and_what_was_not_is",
    ),
    Fault(
        what="What was never tried is too old to be sent, too.",
        file="edge/replay.py",
        old="only_tried_are_overdue = True",
        new="only_tried_are_overdue = False",
        test=f"{_REPLAY}::test_what_was_tried_is_not_replayed_when_its_key_may_be_forgotten_and_what_was_not_is",
    ),
    Fault(
        what="A write that is under way elsewhere dies.",
        file="edge/policy.py",
        old='if answer.status == 409 and header(answer, b"retry-after"):',
        new="if answer.status == 409 and retry_after_ms(answer):",
        test=f"{_REPLAY}::test_what_may_pass_is_tried_again_under_the_same_key",
    ),
    Fault(
        what="A write whose answer was not kept is dead, and will be done a second time.",
        file="edge/replay.py",
        old="        answer = policy.meant(answer)\n",
        new="",
        test=f"{_REPLAY}::test_an_answer_that_the_upstream_did_not_keep_is_an_ack",
    ),
    Fault(
        what="A turn that came to one who had left is nobody's.",
        file="edge/turns.py",
        old="                self.give_back(name)\n            raise",
        new="                pass\n            raise",
        test="tests/unit/edge/test_turns.py::test_one_who_gives_up_while_it_waits_is_passed_over",
    ),
    Fault(
        what="A status write that may have arrived is coalesced.",
        file="edge/stores/sqlite/outbox.py",
        old="if status != OutboxState.PENDING or attempts or not is_status_write:",
        new="if status != OutboxState.PENDING or not is_status_write:",
        test=f"{_COALESCING}::test_a_status_write_that_may_have_arrived_is_not_coalesced",
    ),
    Fault(
        what="A stale status write goes out on the newer view of another caller.",
        file="edge/stores/sqlite/outbox.py",
        old="if not is_on_same_base(submission.envelope, waiting):",
        new="if waiting is None:",
        test=f"{_COALESCING}::test_a_status_write_by_an_older_view_does_not_go_out_on_the_newer_one_of_another",
    ),
    Fault(
        what="The survivor of coalescing forgets what others of its queue went by.",
        file="edge/policy.py",
        old="passed=_left_by(waiting)[-PASSED_MAX:],",
        new="passed=_left_by(waiting)[PASSED_MAX:],",
        test=f"{_COALESCING}::test_whoever_goes_by_a_status_in_between_is_in_the_same_queue_and_does_not_conflict_with_it",
    ),
    Fault(
        what="After an operator kept ours, those go out on it who have not seen theirs.",
        file="edge/policy.py",
        old="with_expectation(envelope, wanted), was=(), passed=())",
        new="with_expectation(envelope, wanted), passed=())",
        test=f"{_COALESCING}::test_whoever_has_not_seen_what_an_operator_decided_on_does_not_go_out_on_it",
    ),
    Fault(
        what="The survivor of coalescing expects what only the ones before it would have made.",
        file="edge/policy.py",
        old="with_expectation(envelope, envelope_expectation(waiting)),",
        new="with_expectation(envelope, envelope_expectation(envelope)),",
        test=f"{_COALESCING}::test_status_writes_that_never_went_out_become_one_with_the_oldest_expectation",
    ),
    Fault(
        what="A status write takes the place of one before another write.",
        file="edge/stores/sqlite/outbox.sql",
        old="WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict')\nORDER BY seq DESC LIMIT 1;",
        new="WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict') AND is_status_write\n"
        "ORDER BY seq DESC LIMIT 1;",
        test=f"{_COALESCING}::test_a_status_write_is_not_coalesced_across_another_write",
    ),
    Fault(
        what="What cannot be sent at all stops everybody.",
        file="edge/replay.py",
        old="except (InvalidRequest, UnicodeError):",
        new="except UnicodeError:",
        test=f"{_KEEPING}::test_an_imported_envelope_that_is_no_request_dies_alone",
    ),
    Fault(
        what="What waits behind a conflict goes on without it.",
        file="outbox/stores/sqlite/rows.sql",
        old="WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict')\nORDER BY seq LIMIT ?2;",
        new="WHERE destination = ?1 AND status IN ('pending', 'inflight')\nORDER BY seq LIMIT ?2;",
        test=f"{_OPERATORS}::test_a_conflict_holds_both_values_and_only_its_own_entity",
    ),
    Fault(
        what="An append in conflict is never sent again, whatever its operator says.",
        file="edge/operate.py",
        old="return shown.seen.entity or ALONE + shown.seen.id",
        new="return shown.seen.entity or ALONE",
        test=f"{_REPLAY}::test_an_append_that_conflicts_goes_on_when_its_operator_says_so",
    ),
    Fault(
        what="What breaks every connection is tried without a pause.",
        file="edge/replay.py",
        old="wait_ms = derive_backoff_ms(row.attempts + 1, self._roll()) if was_sent else 0",
        new="wait_ms = 0",
        test=f"{_REPLAY}::test_an_envelope_that_breaks_every_connection_waits_longer_and_longer",
    ),
    Fault(
        what="What a conflict shows is written by what cannot write all that it reads.",
        file="edge/replay.py",
        old="theirs = dump_json(outcome.theirs)",
        new="theirs = orjson.dumps(outcome.theirs)",
        test=f"{_REPLAY}::test_a_conflict_with_what_is_nested_as_deeply_as_can_be_read_is_a_conflict_like_any_other",
    ),
)

R8: tuple[Fault, ...] = (
    Fault(
        what="A bulk waits if one of its entries has an expectation.",
        file="edge/sorting.py",
        old="if is_replace and not all(",
        new="if is_replace and not any(",
        test=f"{_BULK}::test_every_entry_of_a_bulk_needs_an_expectation_to_wait",
    ),
    Fault(
        what="A queue conflicts with itself.",
        file="edge/replay.py",
        old="if is_accepted and has_entity else None",
        new="if is_accepted and not has_entity else None",
        test=f"{_REPLAY}::test_writes_that_were_queued_on_one_state_of_a_row_all_land",
    ),
    Fault(
        what="Whatever a write expects, it is rebased on the answer to the one before it.",
        file="edge/policy.py",
        old=" and expected in before else expected",
        new=" else expected",
        test=f"{_REPLAY}::test_a_write_is_not_rebased_over_what_the_one_before_it_did_not_mind",
    ),
    Fault(
        what="Writes are rebased on what somebody else wrote, since it was the same as ours.",
        file="edge/replay.py",
        old='last_error="already_there",',
        new='rebase=policy.derive_rebase(outcome.envelope, answer), last_error="already_there",',
        test=f"{_REPLAY}::test_a_row_that_already_holds_the_values_is_no_conflict_and_moves_nobody_behind_it",
    ),
    Fault(
        what="A precondition that failed is the end of a write.",
        file="edge/policy.py",
        old="if answer.status == 412:",
        new="if answer.status == 428:",
        test=f"{_ATTACKS}::test_57_a_stale_write_that_is_replayed_is_kept_as_a_conflict",
    ),
    Fault(
        what="A replay goes out without its If-Match.",
        file="edge/replay.py",
        old="if envelope.if_match is not None:",
        new='if envelope.if_match is not None and envelope.route_class == "append":',
        test=f"{_ATTACKS}::test_57_a_stale_write_that_is_replayed_is_kept_as_a_conflict",
    ),
    Fault(
        what="Keeping mine overwrites what nobody has seen.",
        file="edge/operate.py",
        old="policy.keep_mine(envelope, wanted)",
        new="policy.with_expectation(envelope, type(wanted)())",
        test=f"{_OPERATORS}::test_keeping_mine_overwrites_what_was_shown_and_nothing_newer",
    ),
    Fault(
        what="What waits behind a conflict goes on waiting when it is decided.",
        file="edge/operate.py",
        old="self._queued([lane])  # what waited behind it may go on",
        new="self._queued([])",
        test=f"{_OPERATORS}::test_what_waits_behind_a_conflict_goes_on_when_it_is_decided",
    ),
)

R10: tuple[Fault, ...] = (
    Fault(
        what="A queued write is answered as a done one.",
        file="edge/service.py",
        old="return Answer(status=202, headers=_JSON, body=orjson.dumps(receipt))",
        new="return Answer(status=200, headers=_JSON, body=orjson.dumps(receipt))",
        test=f"{_RELAY}::test_a_queued_write_is_never_shown_as_done",
    ),
    Fault(
        what="Nothing tells beside a row that writes to it wait.",
        file="edge/reads.py",
        old="or self._outbox is None or not (await",
        new="or self._outbox is None or (await",
        test=f"{_RELAY}::test_a_queued_write_is_never_shown_as_done",
    ),
    Fault(
        what="Conflicts are no failures.",
        file="edge/metrics.py",
        old="_FAILURES = (OutboxEvent.FAILED, OutboxEvent.REFUSED, OutboxEvent.CONFLICTED, OutboxEvent.EXPIRED)",
        new="_FAILURES = (OutboxEvent.FAILED, OutboxEvent.REFUSED, OutboxEvent.EXPIRED)",
        test=f"{_KEEPING}::test_status_and_metrics_tell_what_waits_how_long_and_what_failed",
    ),
    Fault(
        what="The age of what waits is told in minutes.",
        file="edge/metrics.py",
        old="max(now_ms - oldest, 0) // 1000",
        new="max(now_ms - oldest, 0) // 60_000",
        test=f"{_KEEPING}::test_status_and_metrics_tell_what_waits_how_long_and_what_failed",
    ),
    Fault(
        what="An outage never ends.",
        file="edge/recovery.py",
        old="        await outbox.end_outage(outage.id, now)\n",
        new="",
        test=f"{_KEEPING}::test_the_end_of_an_outage_is_told_once_with_its_results",
    ),
    Fault(
        what="An outage is told to have lasted until the relay was started again.",
        file="edge/recovery.py",
        old="        counts = await outbox.counts()\n",
        new="        await outbox.back_online(self._reach.since_ms) if outage.online_at is None else None\n"
        "        counts = await outbox.counts()\n",
        test=f"{_KEEPING}::test_an_outage_over_a_restart_is_one_outage",
    ),
    Fault(
        what="What was coalesced counts as cancelled.",
        file="edge/recovery.py",
        old='results.counts.get("cancelled", 0) - results.coalesced,',
        new='results.counts.get("cancelled", 0),',
        test=f"{_KEEPING}::test_the_end_of_an_outage_is_told_once_with_its_results",
    ),
)
