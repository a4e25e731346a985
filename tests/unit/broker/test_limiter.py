"""Which limiter the settings name, and what the one of this process remembers."""

import sys

import pytest

from claudemesh.broker.app import make_limiter
from claudemesh.broker.limiters.memory import MemoryLimiter
from claudemesh.broker.settings import BrokerSettings
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.world import real_world
from tests.doubles import ManualClock

WINDOW_MS = 60_000
REDIS = "claudemesh.broker.limiters.redis"


@pytest.mark.req("B1")
async def test_nothing_is_remembered_of_an_older_window() -> None:
    clock = ManualClock()
    limiter = MemoryLimiter(clock, WINDOW_MS)
    for window in range(5):
        await limiter.consume("m", f"{window}", [f"{window}-{n}" for n in range(100)], 100)
        clock.advance(WINDOW_MS)
    await limiter.consume("m", "a", ["one more"], 100)
    assert sum(len(taken) for taken in limiter._taken.values()) == 1


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/1", "rediss://:secret@localhost", "unix://:secret@/run/redis.sock"]
)
async def test_a_url_of_redis_names_a_limiter_that_connects_when_it_is_first_asked(url: str) -> None:
    limiter = make_limiter(BrokerSettings(store="memory:", limiter=url), real_world())
    assert type(limiter).__module__ == REDIS
    await limiter.aclose()


@pytest.mark.parametrize(
    "url", ["", "banana", "http://:secret@localhost", "redis://:secret/@localhost", "redis://localhost:secret"]
)
def test_what_names_no_limiter_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_limiter(BrokerSettings(store="memory:", limiter=url), real_world())
    assert "secret" not in f"{refused.value} {refused.value.extras} {refused.value.__cause__}"


def test_without_the_extra_a_broker_on_redis_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, REDIS, raising=False)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r"claudemesh\[redis\]"):
        make_limiter(BrokerSettings(store="memory:", limiter="redis://localhost"), real_world())
