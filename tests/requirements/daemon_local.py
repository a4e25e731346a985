"""Contract 2: the daemon's limits, its local API and its identity."""

from tests.requirements.model import Fault, Requirement

_ACCEPT = "tests/integration/test_daemon_accept.py"
_ANSWERS = "tests/acceptance/test_accept_promises.py"
_DISK = "tests/chaos/test_full_disk.py"
_FILE = "tests/unit/storage/test_sqlite_file.py"
_IPC = "tests/integration/test_local_ipc.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_LIMITS = "tests/acceptance/test_local_limits.py"
_TERMS = "tests/acceptance/test_terms_and_tokens.py"

REQUIREMENTS: tuple[Requirement, ...] = (
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
                old='            self._connection.execute("ROLLBACK")\n',
                new=('            self._may_commit = True\n            self._connection.execute("COMMIT")\n'),
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
                old="daemon_routes(parts, extension), observer, body_bytes_max=ipc.body_bytes_max)",
                new="daemon_routes(parts, extension), observer)",
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
                old="(not hosts or hosts[0].lower() not in names.hosts)",
                new="not hosts",
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
                old='if verdict == "differs" and policy == "refuse":',
                new='if verdict == "differs" and policy == "refused":',
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
                file="outbox/stores/sqlite/rows.py",
                old=("        return None if standing.row_id == submission.row_id else standing\n"),
                new=("        return None if standing.state is OutboxState.PENDING else standing\n"),
                test=f"{_ACCEPT}::test_in_a_batch_every_send_has_its_own_outcome",
            ),
        ),
    ),
    Requirement("D18", "Files are shared sealed, bounded and path-safe.", "contract 2", "later"),
    Requirement("D19", "Gapless sender numbers reveal a silently lost WAL tail.", "contract 2", "later"),
)
