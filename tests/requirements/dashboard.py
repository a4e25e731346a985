"""The faults that prove C4 of contract 9: the dashboard. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_LOGINS = "tests/unit/dashboard/test_logins.py"
_ATTACKS = "tests/integration/test_dashboard_login.py"
_DATA = "tests/integration/test_dashboard_data.py"
_BROWSER = "tests/browser/test_dashboard"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="A code is good for as long as it is young, however often it is used.",
        file="dashboard/logins.py",
        old="        del self._codes[found[0]]\n",
        new="",
        test=f"{_LOGINS}::test_a_code_is_good_once",
    ),
    Fault(
        what="A code never ends.",
        file="dashboard/logins.py",
        old="for code, until_ms in self._codes.items() if now_ms < until_ms}",
        new="for code, until_ms in self._codes.items() if until_ms}",
        test=f"{_LOGINS}::test_a_code_is_good_for_a_short_while",
    ),
    Fault(
        what="A bearer that is used lives for ever.",
        file="dashboard/logins.py",
        old="min(login.ends_ms, login.idle_until_ms)",
        new="login.idle_until_ms",
        test=f"{_LOGINS}::test_a_bearer_lives_while_it_is_used_and_some_hours_at_most",
    ),
    Fault(
        what="Whoever has a bearer may do all that the daemon does.",
        file="dashboard/door.py",
        old='elif not is_allowed(scope.get("method", ""), scope["path"]):',
        new='elif not scope["path"]:',
        test=f"{_ATTACKS}::test_a_bearer_may_do_what_the_page_needs_and_nothing_else",
    ),
    Fault(
        what="A new local token leaves the old logins in.",
        file="dashboard/app.py",
        old="lambda _: logins.end_all()",
        new="lambda _: None",
        test=f"{_ATTACKS}::test_a_bearer_ends_with_the_local_token_with_a_logout_and_with_the_daemon",
    ),
    Fault(
        what="The stream goes on after its login is over.",
        file="dashboard/door.py",
        old="await self._app(scope, self._until_over(login, receive), send)",
        new="await self._app(scope, receive, send)",
        test=f"{_ATTACKS}::test_the_stream_ends_with_its_login",
    ),
    Fault(
        what="The page may be framed.",
        file="dashboard/files.py",
        old="frame-ancestors 'none'; ",
        new="",
        test="tests/unit/dashboard/test_files.py::test_every_file_forbids_whatever_the_page_does_not_need",
    ),
    Fault(
        what="A decision about the relay is tried again under its key.",
        file="dashboard/relay.py",
        old="    made = _made_under(shown, body.key)\n    if made is None:\n        verb",
        new="    made = None\n    if made is None:\n        verb",
        test=f"{_DATA}::test_a_conflict_is_shown_with_both_values_and_decided_once_for_each_key",
    ),
    Fault(
        what="Pages that ask at once have the relay looked at as often.",
        file="dashboard/relay.py",
        old="if self._seen is None or now_ms >= self._seen[0]:",
        new="if self._seen is None or not self._seen[1].done() or now_ms >= self._seen[0]:",
        test="tests/unit/dashboard/test_relay_view.py::test_all_who_ask_at_once_are_told_what_one_look_found",
    ),
    Fault(
        what="A row that was sent anew is refused to whoever asks again.",
        file="daemon/operate.py",
        old="made = None if mark is None else await self._made(row_id, new_client_id, by, mark, patch)",
        new="made = None",
        test=f"{_DATA}::test_a_row_is_requeued_once_for_each_key",
    ),
    Fault(
        what="What hangs is waited for.",
        file="dashboard/aside.py",
        old="async with asyncio.timeout(within_s):",
        new="async with asyncio.timeout(None if within_s else 0):",
        test="tests/unit/dashboard/test_aside.py::test_whoever_asks_what_hangs_is_told_so_and_the_loop_goes_on",
    ),
    # --- the page, in a real browser ---
    Fault(
        what="The code of a link stays in the address and in the history.",
        file="dashboard/static/router.js",
        old='  history.replaceState(null, "", `${location.pathname}#/`);',
        new="  void 0;",
        test=f"{_BROWSER}_login.py::test_the_link_of_the_command_logs_in_and_its_code_leaves_the_address_at_once",
    ),
    Fault(
        what="A second try is made under a key of its own.",
        file="dashboard/static/act.js",
        old="keys.get(intent) ?? crypto.randomUUID()",
        new="crypto.randomUUID()",
        test=f"{_BROWSER}_actions.py::test_an_answer_that_was_lost_is_asked_for_again_under_the_same_key",
    ),
    Fault(
        what="What is old is shown as if it were true.",
        file="dashboard/static/view.js",
        old='      this.#shell.stale(this.#good, "The daemon does not answer.");\n',
        new="",
        test=f"{_BROWSER}_login.py::test_a_dropped_connection_is_told_with_since_when_and_mends_itself",
    ),
    Fault(
        what="Both values of a conflict are shown as if they were one.",
        file="dashboard/static/conflict.js",
        old="wanted.filter((name) => !isEqual(mine[name], theirs[name]))",
        new="wanted.filter((name) => !isEqual(mine[name], mine[name]))",
        test=f"{_BROWSER}_actions.py::test_a_conflict_shows_both_values_and_marks_where_they_differ",
    ),
    Fault(
        what="Marks that reorder what stands around them are left to do so.",
        file="dashboard/static/text.js",
        old="  return cut.replace(UNSEEN,",
        new="  return cut.replace(/\\0/gu,",
        test=f"{_BROWSER}_hostile.py::test_both_values_of_a_conflict_are_texts",
    ),
    Fault(
        what="What happens is not shown before the page looks again by itself.",
        file="dashboard/static/main.js",
        old="    event: () => view.soon(),",
        new="    event: () => null,",
        test=f"{_BROWSER}_pages.py::test_a_message_shows_by_itself_when_it_comes",
    ),
    Fault(
        what="Where something happens all the time, no page is ever renewed.",
        file="dashboard/static/view.js",
        old="    if (this.#asking !== null) {",
        new="    if (this.#asking === this) {",
        test=f"{_BROWSER}_pages.py::test_what_happens_while_a_page_is_renewed_does_not_keep_it_from_being_renewed",
    ),
    Fault(
        what="A character that ends a line for JavaScript alone ends the event stream.",
        file="dashboard/static/sse.js",
        old="(.*)$/s.exec(line)",
        new="(.*)$/.exec(line)",
        test=f"{_BROWSER}_hostile.py::test_a_hostile_message_that_comes_while_one_looks_leaves_the_page_alive",
    ),
    Fault(
        what="A login that was ended in the page goes on at the daemon.",
        file="dashboard/static/main.js",
        old="  await api.logout().catch(() => null);",
        new="  await null;",
        test=f"{_BROWSER}_login.py::test_logging_out_ends_the_login_at_the_daemon_too",
    ),
)
