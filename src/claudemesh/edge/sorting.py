"""A write, sorted: which rule it falls under, whom it is a write to, what would wait of it, and why it may not.

Nothing here asks anybody. What is needed only of a write that has to wait is worked out when it is asked for.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgspec
import orjson

from claudemesh.edge import door, policy
from claudemesh.edge.keeping import holds_credential
from claudemesh.edge.model import Envelope, Headers, Source
from claudemesh.edge.routing import Part, Policy, RouteClass, Routed, read_path, strip_fields
from claudemesh.kernel.fingerprint import Fingerprint, fingerprint_http_request
from claudemesh.kernel.secrets import find_secret

ONLINE_ONLY: Final = "online_only"
BULK_KEY_CHARS: Final = 200  # of a bulk's key, so that those of its entries are keys too
NOWHERE: Final = Source()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A write as it came through the door: its body is sound JSON, its headers are those that may be passed on."""

    method: str
    path: str
    query: str
    body: Any
    raw: bytes
    headers: Headers
    key: str | None
    if_match: str | None = None
    source: Source = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueable:
    """What becomes one envelope."""

    key: str
    lane: str | None  # its entity
    envelope: Envelope
    is_status_write: bool


class Write:
    """The same, sorted: what it is a write to, and under which key."""

    def __init__(self, asked: Asked, routes: Policy, key: str) -> None:
        self.routed = routes.classify(asked.method, asked.path)
        self.asked = _stripped(asked, self.routed)
        self.key = key
        self._routes = routes

    @cached_property
    def lanes(self) -> list[str]:
        """Return the entities that it is a write to."""
        if self.routed.route_class is RouteClass.BULK:
            return [part.lane for part in self.parts if part.lane is not None]
        routed = self.routed
        entity = routed.entity if routed.rule is not None else self._routes.entity_of(self.asked.path)
        return [] if entity is None else [entity]

    def fingerprint(self) -> Fingerprint:
        asked = self.asked
        return fingerprint_http_request(asked.method, asked.path, asked.query, asked.raw)

    @cached_property
    def parts(self) -> tuple[Queueable, ...]:
        """Return what becomes one envelope each: the write, or of a bulk its entries."""
        rule = self.routed.rule
        if rule is None or self.routed.route_class is not RouteClass.BULK:
            return (_part(self.asked, self.routed, self.key, self.lanes[0] if self.lanes else None),)
        entries = enumerate(self._routes.split(rule, self.asked.body))
        return tuple(_entry(self.asked, part, f"{_short(self.key)}#{n}") for n, part in entries)

    @cached_property
    def why_not(self) -> str | None:
        """Return why it cannot wait; None if it can."""
        asked = self.asked
        if self.routed.route_class is RouteClass.ONLINE_ONLY:
            return ONLINE_ONLY
        if len(asked.raw) > policy.QUEUED_BYTES_MAX:
            return "too_large"
        is_replace = self.routed.route_class is not RouteClass.APPEND
        if is_replace and not all(policy.envelope_expectation(part.envelope) for part in self.parts):
            return "needs_expectation"
        # Of the path only what the caller put into it: the rest is the policy's own.
        told = (*self.routed.params.values(), asked.query, asked.if_match or "")
        if find_secret(asked.body) is not None or any(map(holds_credential, filter(None, told))):
            return "contains_secret"
        return None


def _stripped(asked: Asked, routed: Routed) -> Asked:
    """Return the write as it is sent, now or later: without what is around the JSON or never goes on."""
    raw = asked.raw.strip(b" \t\r\n")
    if raw != asked.raw:
        asked = replace(asked, raw=raw)
    if routed.rule is None or not routed.rule.strip:
        return asked
    body = strip_fields(asked.body, routed.rule.strip)
    return asked if body == asked.body else replace(asked, body=body, raw=orjson.dumps(body))


def _entry(asked: Asked, part: Part, key: str) -> Queueable:
    """Return an entry of a bulk as the write that it is; its id is a part of a path, and judged like one."""
    door.check_path(part.path.encode())
    rule = part.routed.rule
    alone = replace(
        asked,
        method=asked.method if rule is None else rule.method,
        path=part.path,
        query="",
        body=part.body,
        raw=orjson.dumps(part.body),
        if_match=None,
    )
    return _part(alone, part.routed, key, part.routed.entity)


def _part(asked: Asked, routed: Routed, key: str, entity: str | None) -> Queueable:
    rule = routed.rule
    return Queueable(
        key=key,
        lane=entity,
        envelope=Envelope(
            method=asked.method,
            path=asked.path,
            query=asked.query,
            key=key,
            body=msgspec.Raw(asked.raw or b"{}"),
            is_bodiless=not asked.raw,
            if_match=asked.if_match,
            route_class="append" if routed.route_class is RouteClass.APPEND else "replace",
            read=None if rule is None else read_path(rule, routed.params),
            source=asked.source,
        ),
        is_status_write=rule is not None and rule.is_superseding(asked.body),
    )


def _short(key: str) -> str:
    """Return the key, or what stands for it alone where those of a bulk's entries would be too long."""
    if len(key) <= BULK_KEY_CHARS:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{key[: BULK_KEY_CHARS - len(digest) - 1]}~{digest}"
