"""Contract 1: the kernel."""

from tests.requirements.model import Fault, Requirement

_ACCEPT = "tests/integration/test_daemon_accept.py"
_ANSWERS = "tests/acceptance/test_accept_promises.py"
_IPC = "tests/integration/test_local_ipc.py"

REQUIREMENTS: tuple[Requirement, ...] = (
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
)
