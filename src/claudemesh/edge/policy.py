"""The relay's own rules, without any IO: what may wait, what an answer means, and what follows from one.

Routes are sorted in `routing`; what a body may hold is for `door`; the table of states is `kernel.outbox`.
"""

import re
from typing import Any, Final

import msgspec
import orjson

from claudemesh.edge.model import Answer, Envelope, Expectation, Rebase
from claudemesh.kernel.secrets import find_secret_text
from claudemesh.wire.json import dump_json

QUEUED_BYTES_MAX: Final = 256 * 1024  # of a body that may wait

UPSTREAM_AWAY: Final = frozenset({502, 503, 504})  # a gateway says it: nobody is behind it
REFUSES_US: Final = frozenset({401, 403})

PASSED_MAX: Final = 8  # statuses in between that the survivor of many status writes remembers
WAS_MAX: Final = 8  # expectations of late that a rebased envelope remembers, beside its first

EXPECTED_UPDATED_AT: Final = "expected_updated_at"
EXPECTED_STATUS: Final = "expected_status"
ANYTHING: Final = "*"  # an If-Match that any row meets: nothing was seen of it
EXPECTATIONS: Final = (EXPECTED_UPDATED_AT, EXPECTED_STATUS)

Json = dict[str, Any]


_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


# --- expectations ------------------------------------------------------------------------------------


def expectation_of(body: Any, if_match: str | None) -> Expectation:  # noqa: ANN401  JSON is anything
    """Read what a write takes its row to be."""
    fields = body if isinstance(body, dict) else {}
    return Expectation(
        if_match=None if if_match == ANYTHING else if_match,
        updated_at=_text(fields, EXPECTED_UPDATED_AT),
        status=_text(fields, EXPECTED_STATUS),
    )


def _text(fields: Json, name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


_envelopes: Final = msgspec.json.Decoder(Envelope)


def read_envelope(payload: bytes) -> Envelope | None:
    """Return the envelope of a row; None of one that was emptied."""
    return _envelopes.decode(payload) if payload else None


def body_of(envelope: Envelope) -> Any:  # noqa: ANN401  JSON is anything
    return orjson.loads(bytes(envelope.body))


def envelope_expectation(envelope: Envelope) -> Expectation:
    return expectation_of(body_of(envelope), envelope.if_match)


def with_expectation(envelope: Envelope, wanted: Expectation) -> Envelope:
    """Return the envelope with another expectation, and with that one only."""
    body = body_of(envelope)
    if not isinstance(body, dict):  # then its expectation is in the header
        return msgspec.structs.replace(envelope, if_match=wanted.if_match)
    fields = {name: value for name, value in body.items() if name not in EXPECTATIONS}
    if wanted.updated_at is not None:
        fields[EXPECTED_UPDATED_AT] = wanted.updated_at
    if wanted.status is not None:
        fields[EXPECTED_STATUS] = wanted.status
    return msgspec.structs.replace(envelope, body=msgspec.Raw(dump_json(fields)), if_match=wanted.if_match)


def derive_rebase(envelope: Envelope, answer: Answer) -> Rebase | None:
    """Return how the writes behind an acknowledged one go on from its answer; None if the answer shows no row."""
    row = _row_in(answer)
    after = expectation_in(row, answer)
    if not after:
        return None
    previous = row.get("previous")
    states = [*envelope.was, envelope_expectation(envelope)]
    states += [Expectation(status=status) for status in envelope.passed]
    if isinstance(previous, dict):
        states.append(expectation_in(previous, None))
    return Rebase(before=tuple(states), after=after)


def rebase(standing: Expectation, by: Rebase) -> Expectation:
    """Return what a waiting write expects after the one before it was applied.

    Each part of it changes only if it names a state that the write before was applied to: then nothing but our own
    write lies between. Whatever else it names stays, and the upstream judges it.
    """
    return Expectation(
        if_match=_rebased(standing.if_match, {state.if_match for state in by.before}, by.after.if_match),
        updated_at=_rebased(standing.updated_at, {state.updated_at for state in by.before}, by.after.updated_at),
        status=_rebased(standing.status, {state.status for state in by.before}, by.after.status),
    )


def rebased(envelope: Envelope, wanted: Expectation) -> Envelope:
    """Return the envelope with what it expects now; what it expected first, and of late, is remembered."""
    was = (*envelope.was, envelope_expectation(envelope))
    return msgspec.structs.replace(with_expectation(envelope, wanted), was=was[:1] + was[1:][-WAS_MAX:])


def adopt(envelope: Envelope, waiting: Envelope) -> Envelope:
    """Return a write as it joins another that waits for the same row.

    Its caller may not know of acknowledged writes that the other was rebased on: what the other expected before
    them, and this one still does, is for both what the other expects now.
    """
    standing, now = envelope_expectation(envelope), envelope_expectation(waiting)
    wanted = rebase(standing, Rebase(before=waiting.was, after=now))
    return envelope if wanted == standing else rebased(envelope, wanted)


def is_on_same_base(envelope: Envelope, waiting: Envelope) -> bool:
    """Say whether a write goes by the row as one that waits takes it to be, or as our own writes will leave it.

    If so, nothing that anybody else wrote lies between the two for its caller, and it may take the other's place.
    """
    standing, states = envelope_expectation(envelope), (*waiting.was, envelope_expectation(waiting))
    return (
        standing.if_match in {None, *(state.if_match for state in states)}
        and standing.updated_at in {None, *(state.updated_at for state in states)}
        and standing.status in {None, *_left_by(waiting), *(state.status for state in states)}
    )


def take_place(envelope: Envelope, waiting: Envelope) -> Envelope:
    """Return a status write in the place of one that waits, with the expectation of that: what was before both."""
    return msgspec.structs.replace(
        with_expectation(envelope, envelope_expectation(waiting)),
        was=waiting.was,
        passed=_left_by(waiting)[-PASSED_MAX:],
    )


def _left_by(waiting: Envelope) -> tuple[str, ...]:
    """Return what the row's status was to be by this write, and by those whose place it took."""
    body = body_of(waiting)
    left = _text(body, "status") if isinstance(body, dict) else None
    return waiting.passed if left is None else (*waiting.passed, left)


def keep_mine(envelope: Envelope, wanted: Expectation) -> Envelope:
    """Return the write of a conflict as it goes over what stands there, which an operator has seen.

    What it expected before is forgotten: whoever still goes by that has not seen what the operator did.
    """
    return msgspec.structs.replace(with_expectation(envelope, wanted), was=(), passed=())


def _rebased(expected: str | None, before: set[str | None], after: str | None) -> str | None:
    return after if expected is not None and after is not None and expected in before else expected


def expectation_in(row: Json, answer: Answer | None) -> Expectation:
    """Return the expectation that names this row as it is."""
    etag = header(answer, b"etag") if answer is not None else None
    revision = row.get("revision")
    if etag is None and isinstance(revision, int):
        etag = f'"{revision}"'
    return Expectation(if_match=etag, updated_at=_text(row, "updated_at"), status=_text(row, "status"))


def on_theirs(mine: Expectation, theirs: Json) -> Expectation:
    """Return an expectation of the same kinds that is met by what stands there now."""
    now = expectation_in(theirs, None)
    return Expectation(
        if_match=now.if_match if mine.if_match is not None else None,
        updated_at=now.updated_at if mine.updated_at is not None else None,
        status=now.status if mine.status is not None else None,
    )


def holds(theirs: Any, envelope: Envelope) -> bool:  # noqa: ANN401  JSON is anything
    """Say whether the row there already has every value that the write would give it."""
    body = body_of(envelope)
    fields = body if isinstance(body, dict) else {}
    written = {name: value for name, value in fields.items() if name not in EXPECTATIONS}
    return (
        isinstance(theirs, dict)
        and bool(written)
        and all(name in theirs and theirs[name] == value for name, value in written.items())
    )


# --- answers -----------------------------------------------------------------------------------------


def header(answer: Answer, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in answer.headers if name == wanted), None)


def is_conflict(answer: Answer) -> bool:
    """Say whether the upstream refused because the row is no longer what the write expected."""
    if answer.status == 412:  # noqa: PLR2004  HTTP's own number: a precondition failed
        return True
    return answer.status == 409 and problem_code(answer) == "revision_conflict"  # noqa: PLR2004


def problem_code(answer: Answer) -> str | None:
    code = _row_in(answer).get("code")
    return code if isinstance(code, str) and _CODE.fullmatch(code) and find_secret_text(code) is None else None


def retry_after_ms(answer: Answer) -> int | None:
    """Read Retry-After in seconds; a date is an offer that nobody makes to a program."""
    text = header(answer, b"retry-after") or ""
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) <= 6 else None  # noqa: PLR2004


def is_receipt(answer: Answer) -> bool:
    """Say whether the answer is that a write waits somewhere, which is no word that it was done."""
    return answer.status == 202 and _row_in(answer).get("queued") is True  # noqa: PLR2004  accepted, not done


def outcome_status(answer: Answer) -> int:
    """Return the status by which the shared table reads an answer."""
    if is_receipt(answer):  # of another relay in between: it waits there, and is not done
        return 425
    if 200 <= answer.status < 300:  # noqa: PLR2004  HTTP's own range
        return 200
    if answer.status == 409 and header(answer, b"retry-after"):  # noqa: PLR2004  the same write is under way
        return 425
    if answer.status in REFUSES_US:  # our credential is wrong, not the write
        return 425
    return answer.status


def meant(answer: Answer) -> Answer:
    """Return what an answer stands for: one that was not kept under its key is known by its status alone."""
    if answer.status != 409 or problem_code(answer) != "answer_not_kept":  # noqa: PLR2004
        return answer
    status = _row_in(answer).get("status_code")
    return Answer(status=status) if isinstance(status, int) and 200 <= status < 500 else answer  # noqa: PLR2004


def current_in(answer: Answer) -> Any:  # noqa: ANN401  JSON is anything
    """Return the row that a conflict's answer shows, if it does."""
    return _row_in(answer).get("current")


def _row_in(answer: Answer) -> Json:
    try:
        found = orjson.loads(answer.body) if answer.body else {}
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
