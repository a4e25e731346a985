"""What can be written down, and in which form: pure rules beside the ones that the database keeps."""

import json
from collections.abc import Sequence
from typing import Any, Final

from claudemesh.kernel.errors import CassetteInvalid
from claudemesh.ledger.model import OUTCOMES, SOURCES, STATUSES, Job

INTENT_UNSAID: Final = "unspecified"
JSON_CHARACTERS_MAX: Final = 64 * 1024 * 1024  # what is larger belongs into a file that a payload names
NUMBER_MAX: Final = 2**63 - 1  # of SQLite
TTL_S_MIN: Final = 0.001  # what the ledger's times tell apart
TTL_S_MAX: Final = 366 * 24 * 3600  # a lease beyond a year is a mistake, and ten thousand of them have no date

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def render_json(value: object, what: str) -> str:
    """Return a value in one form, so that the same value is the same text; refuse what JSON has no word for."""
    try:
        text = _ENCODER.encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CassetteInvalid(f"{what} is not JSON: {error}") from error
    if len(text) > JSON_CHARACTERS_MAX:
        raise CassetteInvalid(f"{what} has {len(text)} characters as JSON, and may have {JSON_CHARACTERS_MAX}")
    return text


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON is anything
    """Return what a text says, or the text itself, if SQLite takes it for JSON and Python does not.

    A number of ten thousand digits is such a case. Whoever has to deal with it gets it, and can say that it failed;
    to refuse it would keep all that wait behind it from being claimed.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def parse_jobs(payload: object) -> list[Job]:
    """Return what a payload asks for: its `jobs` with their steps, or itself as one job of one step."""
    if not isinstance(payload, dict):
        raise CassetteInvalid("a payload is a JSON object")
    if "jobs" not in payload:
        return [Job(_intent(payload, INTENT_UNSAID), [render_json(payload, "the payload")])]
    jobs = payload["jobs"]
    if not isinstance(jobs, list) or not jobs:
        raise CassetteInvalid("payload.jobs is a list of jobs, and not an empty one")
    fallback = _intent(payload, INTENT_UNSAID)
    return [_parse_job(job, place, fallback) for place, job in enumerate(jobs, start=1)]


def _parse_job(job: object, place: int, fallback: str) -> Job:
    if not isinstance(job, dict):
        raise CassetteInvalid(f"job {place} is not an object with intent and steps")
    steps = job.get("steps")
    if not isinstance(steps, list) or not steps:
        raise CassetteInvalid(f"job {place} has no list of steps, or an empty one")
    return Job(_intent(job, fallback), [render_json(step, f"a step of job {place}") for step in steps])


def _intent(of: dict[str, Any], fallback: str) -> str:
    intent = of.get("intent", fallback)
    if not isinstance(intent, str) or not intent:
        raise CassetteInvalid("an intent is a text, and not an empty one")
    return intent


def check_text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise CassetteInvalid(f"{what} is a text, not empty and without a zero character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CassetteInvalid(f"{what} holds half a surrogate pair") from error
    return value


def check_source(source: object) -> str:
    return _check_one_of(source, SOURCES, "source")


def check_outcome(outcome: object) -> str:
    return _check_one_of(outcome, OUTCOMES, "outcome")


def check_status(status: object) -> str:
    return _check_one_of(status, STATUSES, "status")


def _check_one_of(value: object, allowed: Sequence[str], what: str) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    raise CassetteInvalid(f"Invalid {what}: {value!r}; it is {', '.join(allowed[:-1])} or {allowed[-1]}")


def check_token(token: object) -> int:
    return check_number(token, "a fencing token")


def check_number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise CassetteInvalid(f"{what} is a whole number of at least 0, and not {value!r}")
    return value


def render_ttl(ttl_seconds: object) -> str:
    """Return a time to live as SQLite's date functions take it."""
    if not isinstance(ttl_seconds, int | float) or isinstance(ttl_seconds, bool):
        raise CassetteInvalid(f"ttl_seconds is a number, not {ttl_seconds!r}")
    if not TTL_S_MIN <= ttl_seconds <= TTL_S_MAX:  # nor is NaN
        raise CassetteInvalid(f"ttl_seconds is above 0 and at most {TTL_S_MAX} (a year), not {ttl_seconds!r}")
    return f"+{ttl_seconds:.3f} seconds"
