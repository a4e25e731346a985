"""Errors on the wire: RFC 9457 problem+json, rendered from the tree and parsed back into it.

This is the only translator, in both directions, so an error that crosses a hop is the same class on the other side.
Members besides the RFC's own are `code` (what programs compare), `retry` (what a second try may look like) and the
error's extras under their own names (`conflict`, `fingerprint_prefix`, `retry_after_ms`, …).
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

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
        words = {name: str(extras.pop(name, "")) for name in ("conflict", "fingerprint_prefix")}
        return known(text, **words, **extras)
    return known(text, **extras)


def _unknown(status: int, members: dict[object, object], detail: str, extras: dict[str, Extra]) -> MeshError:
    """Take a newer server's code, or an answer that is no problem at all, for what its status and `retry` say."""
    code = members.get("code")
    kind = _kind(status, may_retry=members.get("retry") in ("same_id", "after"))
    named = f"{code}: {detail}" if isinstance(code, str) else detail
    return kind(named or f"the server answered {status}", **{**extras, "unknown_status": status})


def _kind(status: int, *, may_retry: bool) -> type[MeshError]:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and not may_retry:
        return RequestError
    return DependencyError


def _is_extra(name: object, value: object) -> bool:
    if not isinstance(name, str) or name in _STANDARD:
        return False
    if isinstance(value, list):
        return all(isinstance(element, str) for element in value)
    return value is None or isinstance(value, str | int | bool)


def _all_classes(root: type[MeshError]) -> Iterator[type[MeshError]]:
    yield root
    for child in root.__subclasses__():
        yield from _all_classes(child)


BY_CODE: Final = {error_class.code: error_class for error_class in _all_classes(MeshError)}
