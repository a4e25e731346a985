"""The limiter in Redis: what a message costs alone, in a batch, and when many connections ask at once.

The Redis writes nothing down, since nobody needs budgets after a crash; a flush for each call would make a
batch look better than it is.
"""

import asyncio
import time
from itertools import islice

from benchmarks.broker import BATCH, run_fast
from benchmarks.daemon import fresh_run
from benchmarks.messages import ids
from benchmarks.redis_peer import redis_server
from benchmarks.report import Figures, measured, say_rate, say_ratio, scaled
from claudemesh.broker.limiters.redis import RedisLimiter

CALLERS = 64
WINDOW_MS = 3_600_000
PLENTY = 1_000_000


async def _measure(url: str, calls: int) -> Figures:
    limiter = RedisLimiter(url, WINDOW_MS)
    try:
        await _ask(limiter, calls=1, batch=1)  # it connects, and its script is loaded
        return {
            "one": await _rate(1, calls * 4, 1, limiter),
            "batch": await _rate(1, calls, BATCH, limiter),
            "many": await _rate(CALLERS, calls // 4, 1, limiter),
        }
    finally:
        await limiter.aclose()


async def _rate(callers: int, calls: int, batch: int, limiter: RedisLimiter) -> float:
    began_s = time.perf_counter()
    await asyncio.gather(*(_ask(limiter, calls=calls, batch=batch) for _ in range(callers)))
    return callers * calls * batch / (time.perf_counter() - began_s)


async def _ask(limiter: RedisLimiter, *, calls: int, batch: int) -> None:
    member = fresh_run()
    fresh = ids(member)
    for _ in range(calls):
        waits = await limiter.consume("mesh", member, [*islice(fresh, batch)], PLENTY)
        assert not any(waits)


def measure(scale: float) -> Figures:
    with redis_server(appendonly="no") as server:
        return run_fast(_measure(f"unix://{server.where}", scaled(400, scale, 8)))


def run(scale: float) -> None:
    found = measured(lambda: measure(scale))
    say_rate("limiter in Redis, one id a call, one call at a time", found["one"], "msg/s")
    say_rate(f"limiter in Redis, {BATCH} ids a call", found["batch"], "msg/s")
    say_rate(f"limiter in Redis, one id a call, {CALLERS} callers", found["many"], "msg/s")
    say_ratio(f"cost of a message, batch {BATCH} / one by one", found.ratio("one", "batch"), at_most=(0.25, 0.12))
    say_ratio(f"cost of a message, {CALLERS} callers / one by one", found.ratio("one", "many"))
