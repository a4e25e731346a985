"""In what is met from outside: HTTP, wire, command line, SDK."""

from tests.requirements import Fault

_IPC = "tests/integration/test_local_ipc.py"
_LIFE = "tests/acceptance/test_daemon_life.py"
_PIPELINE = "tests/unit/pipeline"
_REFUSED = "tests/acceptance/test_inbound_refused.py"
_TLS = "tests/integration/test_tls.py"
_TLS_UNIT = "tests/unit/asgi/test_tls.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="An extra replaces a member that the contract fixes.",
        file="wire/problem.py",
        old="return {**error.extras, **problem}",
        new="return {**problem, **error.extras}",
        test="tests/unit/wire/test_problem.py::test_an_extra_cannot_replace_what_the_contract_says",
    ),
    Fault(
        what="What a newer server says of a retry is not believed.",
        file="wire/problem.py",
        old='retry if isinstance(retry, str) else ""',
        new='""',
        test="tests/unit/wire/test_problem.py::test_an_answer_of_an_unknown_server_is_judged_by_its_status",
    ),
    Fault(
        what="Names that differ in case are different names.",
        file="wire/names.py",
        old='normalize("NFKC", name).casefold())',
        new='normalize("NFKC", name))',
        test="tests/integration/test_broker_http.py::test_an_invite_lets_its_newcomers_in_and_nobody_else",
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
        what="A broker beyond this machine is spoken to in the clear.",
        file="wire/addresses.py",
        old='if scheme == "http" and not is_loopback(host):',
        new='if scheme == "http" and not host:',
        test=f"{_LIFE}::test_a_broker_that_would_be_spoken_to_in_the_clear_keeps_the_daemon_from_starting",
    ),
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
    Fault(
        what="An audit that finds a changed past replaces what it was found by.",
        file="pipeline/heads.py",
        old="if result.violations > before:",
        new="if result.violations < before:",
        test="tests/spark/test_runner.py::test_an_audit_is_held_against_the_last_one_whose_heads_stay_if_it_fails",
    ),
    Fault(
        what="The search fails when its archive is written, since its summary has no place.",
        file="pipeline/runner.py",
        old="make_private(done.parent)",
        new="pass",
        test=f"{_PIPELINE}/test_runner.py::test_a_job_that_puts_all_it_gives_elsewhere_is_published_too",
    ),
    Fault(
        what="A run on an old cut makes it the newest to whoever watches.",
        file="pipeline/metrics.py",
        old="if cut.number < lake.newest():",
        new="if False:",
        test=f"{_PIPELINE}/test_metrics.py::test_a_run_on_an_older_cut_leaves_what_is_said_of_the_newest",
    ),
    Fault(
        what="A report does not say what it had to leave open.",
        file="pipeline/report/page.py",
        old='if not lag.get("open_transactions"):',
        new='if not lag.get("open"):',
        test=f"{_PIPELINE}/test_report_page.py::test_a_cut_that_is_without_open_transactions_says_so",
    ),
    Fault(
        what="Jobs do not hear how long messages are kept.",
        file="pipeline/work.py",
        old="asked.since, asked.retention_days,",
        new="asked.since, RETENTION_DAYS,",
        test=f"{_PIPELINE}/test_work.py::test_jobs_are_told_what_the_command_was",
    ),
    Fault(
        what="A kind of store that comes later ends the check with a traceback.",
        file="pipeline/catalogue.py",
        old="if kind.marker in named), None)",
        new="if kind.marker in named))",
        test=f"{_PIPELINE}/test_checks.py::test_a_store_that_no_invariant_is_about_changes_no_verdict",
    ),
)
