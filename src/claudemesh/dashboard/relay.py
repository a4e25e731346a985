"""The relay of the same home: what waits in it, conflicts with both their values, and what is decided about them.

Asked through the operator's desk, so that it makes no difference whether a relay runs. That there is none is an
answer, and so is that it cannot be used.

A decision carries the caller's key, and the key goes into the relay's own record of who decided, in the same commit
as the decision. A second try under the key finds it there, however the first one's answer was lost.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.dashboard.aside import WITHIN_S, Aside
from claudemesh.dashboard.fields import LIMIT_DEFAULT, Id, Key, Limit, Number, clamp
from claudemesh.edge.concerns import Concern, judge
from claudemesh.edge.desk import DAMAGED, Desk, Verb, find_desk
from claudemesh.edge.operate import Keep
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    DependencyError,
    IntegrityError,
    MeshError,
    NotFound,
    StateError,
)
from claudemesh.kernel.write_errors import KeyReused
from claudemesh.wire.instants import render_instant

Json = dict[str, Any]

FRESH_MS: Final = 3_000  # a status is not asked for again before
GLANCE_S: Final = 2.0  # it is part of an overview, which waits no longer
BY: Final = "dashboard"

_UNUSABLE: Final = (DependencyError, DeadlineExceeded)
_INSTANTS: Final = frozenset({"created_at", "updated_at", "next_attempt_at", "acked_at"})
_FIGURES: Final = (
    "upstream",
    "upstream_reachable",
    "pending",
    "blocked",
    "oldest_pending_age_s",
    "conflicts",
    "dead",
)


class _Choice(NamedTuple):
    verb: Verb
    keep: Keep | None = None


Decision = Literal["retry", "cancel", "keep-mine", "keep-theirs"]
_CHOICES: Final[dict[Decision, _Choice]] = {
    "retry": _Choice("retry"),
    "cancel": _Choice("cancel"),
    "keep-mine": _Choice("resolve", "mine"),
    "keep-theirs": _Choice("resolve", "theirs"),
}


class RelayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`none`: nothing was ever relayed here. `stopped`: the figures are those of its file."""

    state: Literal["none", "stopped", "running", "unusable"]
    detail: str | None = None
    upstream: str | None = None
    upstream_reachable: bool | None = None
    concerns: list[Concern] = []
    pending: int = 0
    blocked: int = 0
    oldest_pending_age_s: int = 0
    conflicts: int = 0
    dead: int = 0


class EnvelopesQuery(msgspec.Struct, frozen=True):
    state: Literal["queued", "sending", "acked", "conflict", "dead", "cancelled"] | None = None
    after: Number = 0
    limit: Limit = LIMIT_DEFAULT


class Envelopes(msgspec.Struct, frozen=True):
    state: Literal["none", "stopped", "running", "unusable"]
    items: list[Json]
    next_after: int | None


class EnvelopeQuery(msgspec.Struct, frozen=True):
    id: Id


class DecisionBody(msgspec.Struct, frozen=True):
    id: Id
    key: Key
    decision: Decision


class RelayView:
    """One relay's desk, asked aside."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._aside = Aside("the relay")
        self._seen: tuple[int, asyncio.Task[RelayStatus]] | None = None  # until when it counts, and the look

    async def status(self) -> RelayStatus:
        """Return how it is, as of a moment ago; a relay that does not answer is one that cannot be used.

        Who asks while a look is under way waits for that one: two looks could tell two things at once.
        """
        now_ms = self._clock.monotonic_ms()
        if self._seen is None or now_ms >= self._seen[0]:
            self._seen = (now_ms + FRESH_MS, asyncio.create_task(self._look()))
        return await asyncio.shield(self._seen[1])  # one who waits and gives up takes it from nobody else

    async def _look(self) -> RelayStatus:
        try:
            return _status(await self.ask(lambda desk: desk.status(), GLANCE_S))
        except MeshError as error:
            return RelayStatus(state="unusable", detail=error.detail or error.title)

    async def ask(self, question: Callable[[Desk], Any], within_s: float = WITHIN_S) -> Any:  # noqa: ANN401 - JSON is anything
        try:
            return await self._aside.ask(lambda: question(find_desk(self._folder)), within_s)
        except OSError as error:  # a folder that cannot be read, say
            raise DependencyError(f"the relay cannot be asked: {error.strerror}") from error
        except (ConfigError, IntegrityError) as error:  # it starts just now, or its file is damaged
            raise DependencyError(f"the relay cannot be asked: {error.detail or error.title}") from error

    def forget(self) -> None:
        """Look again next time: something was decided."""
        self._seen = None


def relay_routes(relay: RelayView) -> list[Route]:
    async def envelopes(request: Request) -> Response:
        query: EnvelopesQuery = request.query
        status = await relay.status()
        if status.state in ("none", "unusable"):
            return json_response(Envelopes(status.state, [], None))
        page = await relay.ask(lambda desk: desk.page(query.state, query.after, clamp(query.limit)))
        return json_response(Envelopes(status.state, [_dated(one) for one in page["items"]], page["next_cursor"]))

    async def envelope(request: Request) -> Response:
        return json_response(_dated(await relay.ask(lambda desk: desk.show(request.query.id))))

    async def decide(request: Request) -> Response:
        body: DecisionBody = request.body
        shown, replayed = await relay.ask(lambda desk: _decide(desk, body))
        relay.forget()
        return json_response(_dated(shown) | {"replayed": replayed})

    return [
        Route(
            method="GET",
            path="/v1/dashboard/relay/envelopes",
            handler=envelopes,
            summary="Writes that the relay keeps, oldest first.",
            query=EnvelopesQuery,
            response=Envelopes,
            errors=_UNUSABLE,
        ),
        Route(
            method="GET",
            path="/v1/dashboard/relay/envelope",
            handler=envelope,
            summary="One of them by its id or its key, with both values of a conflict.",
            query=EnvelopeQuery,
            response=Json,
            errors=(NotFound, *_UNUSABLE),
        ),
        Route(
            method="POST",
            path="/v1/dashboard/relay/decide",
            handler=decide,
            summary="Retry one, cancel it, or resolve its conflict; once for each key.",
            request=DecisionBody,
            response=Json,
            errors=(NotFound, StateError, KeyReused, *_UNUSABLE),
        ),
    ]


# --- one decision ------------------------------------------------------------------------------------


def _decide(desk: Desk, body: DecisionBody) -> tuple[Json, bool]:
    """Decide, unless that was done under this key; return the envelope, and whether it had been."""
    shown = desk.show(body.id)
    made = _made_under(shown, body.key)
    if made is None:
        verb, keep = _CHOICES[body.decision]
        try:
            return desk.decide(verb, shown["id"], _record(body.decision, body.key), keep), False
        except StateError:  # perhaps the first try, which came through a moment ago
            shown = desk.show(shown["id"])
            made = _made_under(shown, body.key)
            if made is None:
                raise
    if made != body.decision:
        raise KeyReused(f"the key stands for {made!r} here", conflict="other_decision", fingerprint_prefix="")
    successor = shown["superseded_by"]
    return (desk.show(successor) if successor else shown), True


def _record(decision: Decision, key: str) -> str:
    """Return who decided, as the relay writes it down."""
    return f"{BY} {decision} ({key})"


def _made_under(shown: Json, key: str) -> Decision | None:
    told = [str(event[field]) for event in shown["happened"] for field in ("by", "error") if event[field]]
    return next(
        (decision for decision in _CHOICES for text in told if _record(decision, key) in text),
        None,
    )


# --- what is shown -----------------------------------------------------------------------------------


def _status(told: Json) -> RelayStatus:
    if told["outbox"] == "none" and not told["running"]:
        return RelayStatus(state="none")
    state: Literal["running", "stopped"] = "running" if told["running"] else "stopped"
    concerns = judge(told)
    is_damaged = Concern.DAMAGED in concerns
    return RelayStatus(
        state="unusable" if is_damaged else state,
        detail=DAMAGED if is_damaged else None,
        concerns=concerns,
        **{name: told[name] for name in _FIGURES},
    )


def _dated(shown: Json) -> Json:
    """Write the relay's instants as everywhere on this surface; `mine` and `theirs` are the users' own."""
    dated: Json = {name: _instant(value) if name in _INSTANTS else value for name, value in shown.items()}
    if "happened" in dated:
        dated["happened"] = [event | {"at": _instant(event["at"])} for event in dated["happened"]]
    return dated


def _instant(at: int | None) -> str | None:
    return None if at is None else render_instant(at)
