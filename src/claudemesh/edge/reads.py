"""Reads: those that the policy names are passed on, and the summary is shown as it was while the upstream is away.

What is shown from memory says so, and since when it is old. It is kept in memory only: an answer may hold anything.
"""

from typing import Final

import orjson

from claudemesh.edge.model import Answer, Headers
from claudemesh.edge.ports import LookingStore
from claudemesh.edge.reach import Reach
from claudemesh.edge.routing import Policy
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream
from claudemesh.kernel.errors import DependencyError, NotFound
from claudemesh.runtime.world import World
from claudemesh.wire.instants import render_instant
from claudemesh.wire.json import dump_json

STALE_BYTES_MAX: Final = 1 << 20


class Reading:
    def __init__(
        self, routes: Policy, upstream: Upstream, outbox: LookingStore | None, reach: Reach, world: World
    ) -> None:
        self._routes = routes
        self._upstream = upstream
        self._outbox = outbox
        self._reach = reach
        self._world = world
        self._last: dict[str, tuple[Answer, int]] = {}  # of those few that may be shown as they were

    async def read(self, path: str, query: str, headers: Headers) -> Answer:
        if not self._routes.is_read(path):
            raise NotFound("this read is not one that the relay passes on")
        if self._reach.is_online:
            try:
                answer = await self._upstream.request(
                    Outgoing(method="GET", path=path, query=query, headers=headers)
                )
            except (Unreached, Unanswered) as error:
                self._reach.lost(str(error))
            else:
                self._remember(path, query, answer)
                return await self._with_queued(path, answer)
        return self._as_it_was(path, query)

    def _remember(self, path: str, query: str, answer: Answer) -> None:
        is_whole = answer.status == 200 and not query and len(answer.body) <= STALE_BYTES_MAX  # noqa: PLR2004
        if is_whole and self._routes.is_stale_read(path):
            self._last[path] = answer, self._world.clock.wall_ms()

    def _as_it_was(self, path: str, query: str) -> Answer:
        kept = None if query else self._last.get(path)
        if kept is None:
            raise DependencyError("the upstream cannot be reached")
        answer, since = kept
        told = render_instant(since)
        return answer._replace(
            headers=(*answer.headers, (b"x-relay-stale-since", told.encode())), body=_marked(answer.body, told)
        )

    async def _with_queued(self, path: str, answer: Answer) -> Answer:
        """Say beside a row that writes to it wait: what is shown is what the upstream has, and nothing else."""
        entity = self._routes.entity_of(path)
        if entity is None or self._outbox is None or not (await self._outbox.look(None, entity)).has_open:
            return answer
        return answer._replace(headers=(*answer.headers, (b"x-relay-queued", b"true")))


def _marked(body: bytes, since: str) -> bytes:
    try:
        shown = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    return dump_json({**shown, "stale": True, "stale_since": since}) if isinstance(shown, dict) else body
