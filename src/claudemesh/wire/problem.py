"""Errors on the wire: RFC 9457 problem+json, rendered from the tree and parsed back into it.

This is the only translator, in both directions, so an error that crosses a hop is the same class on the other side.
Members besides the RFC's own are `code` (what programs compare), `retry` (what a second try may look like) and the
error's extras under their own names (`conflict`, `fingerprint_prefix`, `retry_after_ms`, …).
"""

from http import HTTPStatus
from typing import Final

from claudemesh.kernel import write_errors  # noqa: F401  for its classes: whoever reads an answer knows them all
from claudemesh.kernel.errors import (
    DependencyError,
    Extra,
    IdempotencyConflict,
    MeshError,
    RateLimited,
    RequestError,
)

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:claudemesh:problem:"

Problem = dict[str, Extra]

# What an unknown code is taken for: an error of ours with the same `retry`.
_BY_RETRY: Final[dict[str, type[MeshError]]] = {
    "no": RequestError,
    "same_id": DependencyError,
    "after": RateLimited,
}

_STANDARD: Final = frozenset({"type", "title", "status", "detail", "instance", "code", "retry"})


def render(error: MeshError, instance: str = "") -> Problem:
    """Return the members of the problem; `instance` names the request, never the caller's data."""
    problem: Problem = {
        "type": TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "retry": error.retry,
    }
    if error.detail:
        problem["detail"] = error.detail
    if instance:
        problem["instance"] = instance
    # An extra can add to the answer, never replace what the contract says.
    return {**error.extras, **problem}


def parse(status: int, problem: object) -> MeshError:
    """Rebuild the error from a problem of any server; an unknown code keeps its kind by the status."""
    members = problem if isinstance(problem, dict) else {}
    code = members.get("code")
    detail = members.get("detail")
    text = detail if isinstance(detail, str) else ""
    extras = {name: value for name, value in members.items() if _is_extra(name, value)}
    known = BY_CODE.get(code) if isinstance(code, str) else None
    if known is None:
        return _unknown(status, members, text, extras)
    if issubclass(known, IdempotencyConflict):
        words = {name: extras.pop(name, "") for name in ("conflict", "fingerprint_prefix")}
        return known(
            text, **{name: word if isinstance(word, str) else "" for name, word in words.items()}, **extras
        )
    return known(text, **extras)


def _unknown(status: int, members: dict[object, object], detail: str, extras: dict[str, Extra]) -> MeshError:
    """Take a newer server's code, or an answer that is no problem at all, for what its `retry` or status says."""
    code, retry = members.get("code"), members.get("retry")
    kind = _BY_RETRY.get(retry if isinstance(retry, str) else "") or _by_status(status)
    named = f"{code}: {detail}" if isinstance(code, str) else detail
    return kind(named or f"the server answered {status}", **{**extras, "unknown_status": status})


def _by_status(status: int) -> type[MeshError]:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY):
        return DependencyError
    is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return RequestError if is_refusal else DependencyError


def _is_extra(name: object, value: object) -> bool:
    if not isinstance(name, str) or name in _STANDARD:
        return False
    if isinstance(value, list):
        return all(isinstance(element, str) for element in value)
    return value is None or isinstance(value, str | int | bool)


BY_CODE: Final = {error_class.code: error_class for error_class in MeshError.family()}
