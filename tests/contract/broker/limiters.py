"""The limiters as the contract suite sees them, each on the test's clock. One that joins later adds an entry."""

from collections.abc import Callable, Sequence

import pytest
import redis

from claudemesh.broker.limiters.memory import MemoryLimiter
from claudemesh.broker.limiters.redis import CONSUME, RedisLimiter
from claudemesh.broker.ports import Limiter
from tests.doubles import ManualClock
from tests.services.redis import Redis

# Before the script: what it takes for the server's clock is a key that the test sets.
TURNED = """
local server = redis
local redis = {call = function(command, ...)
  if command ~= 'TIME' then return server.call(command, ...) end
  local ms = server.call('GET', 'now_ms')
  return {math.floor(ms / 1000), ms % 1000 * 1000}
end}
"""


class TurnedRedisLimiter(RedisLimiter):
    """On a server whose clock the test turns; a database of its own, empty at first."""

    def __init__(self, server: Redis, clock: ManualClock, window_ms: int) -> None:
        url = f"{server.url}?db=1"
        super().__init__(url, window_ms, TURNED + CONSUME)
        self._clock = clock
        self.server = redis.Redis.from_url(url, decode_responses=True)
        self.server.flushdb()

    async def consume(
        self, mesh: str, sender: str, client_message_ids: Sequence[str], limit: int
    ) -> list[int | None]:
        self.server.set("now_ms", self._clock.monotonic_ms())
        return await super().consume(mesh, sender, client_message_ids, limit)

    async def aclose(self) -> None:
        self.server.close()
        await super().aclose()


def _in_redis(request: pytest.FixtureRequest, clock: ManualClock, window_ms: int) -> Limiter:
    return TurnedRedisLimiter(request.getfixturevalue("redis_server"), clock, window_ms)


LIMITERS: dict[str, Callable[[pytest.FixtureRequest, ManualClock, int], Limiter]] = {
    "memory": lambda _, clock, window_ms: MemoryLimiter(clock, window_ms),
    "redis": _in_redis,
}
