"""What users would pick instead, on the same machine in the same minutes: each with a flush before its ack.

Ours is asked by `benchmarks.load`, which is faster than any client library, and once through our own library. Redis
is asked by redis-py on uvloop, which is the measure; beside it stand asyncio's own loop, as most users have it, and
the load that asks us.
"""

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.broker import FAN_OUT, measure_fan_out, run_fast
from benchmarks.daemon import ask, fresh_run
from benchmarks.load import Task
from benchmarks.members import SLUG, lonely_member
from benchmarks.mesh import measure_end_to_end
from benchmarks.messages import SIZE, text
from benchmarks.nats_peer import measure_deliveries, measure_publish, nats_server
from benchmarks.processes import load, node
from benchmarks.redis_peer import measure_add, redis_server
from benchmarks.report import Figures, Rounds, measured, say_rate, say_ratio, scaled
from claudemesh.sdk.async_mesh import AsyncMesh
from claudemesh.sdk.find import Place

SEVERAL = 64


def measure_daemon(scale: float) -> Figures:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with node(folder, "daemon", lonely_member(folder)) as one:
            return {
                "send": ask(one.where, scaled(16_000, scale)).rate,
                "send_1": ask(one.where, scaled(2_000, scale), connections=1).rate,
                "sdk": run_fast(_send_by_sdk(folder / SLUG / "sock", scaled(6_000, scale))),
            }


async def _send_by_sdk(sock: Path, messages: int) -> float:
    numbers = iter(range(messages))

    async def send(mesh: AsyncMesh) -> None:
        for number in numbers:
            await mesh.send("b" * 64, text(number, SIZE))

    async with AsyncMesh.at(Place(SLUG, sock)) as mesh:
        began_s = time.monotonic()
        await asyncio.gather(*(send(mesh) for _ in range(SEVERAL)))
        return messages / (time.monotonic() - began_s)


def measure_redis(scale: float) -> Figures:
    with redis_server() as redis:
        task = Task(sock=redis.where, kind="xadd", run=fresh_run(), requests=scaled(12_000, scale))
        return {
            "redis": run_fast(measure_add(redis.where, scaled(8_000, scale), connections=SEVERAL)),
            "redis_1": run_fast(measure_add(redis.where, scaled(2_000, scale), connections=1)),
            "redis_asyncio": asyncio.run(measure_add(redis.where, scaled(8_000, scale), connections=SEVERAL)),
            "redis_asyncio_1": asyncio.run(measure_add(redis.where, scaled(2_000, scale), connections=1)),
            "redis_by_load": load(task).rate,
        }


def measure_nats(scale: float) -> Figures:
    with nats_server() as nats:
        port = nats.where
        return {
            "nats": run_fast(measure_publish(port, scaled(5_000, scale), in_flight=SEVERAL)),
            "nats_1_to_1": run_fast(measure_deliveries(port, scaled(5_000, scale), consumers=1, in_flight=SEVERAL)),
            "nats_1_to_8": run_fast(
                measure_deliveries(port, scaled(2_500, scale), consumers=FAN_OUT, in_flight=4 * SEVERAL)
            ),
        }


def say(found: Rounds) -> None:
    say_rate("daemon, POST /v1/send, 64 connections", found["send"], "msg/s")
    say_rate("daemon, POST /v1/send, 1 connection", found["send_1"], "msg/s")
    say_rate("daemon, through our SDK (asyncio), 64 at once", found["sdk"], "msg/s")
    say_rate("Redis Streams, appendfsync always, redis-py, uvloop, x64", found["redis"], "msg/s")
    say_rate("Redis Streams, appendfsync always, redis-py, uvloop, x1", found["redis_1"], "msg/s")
    say_rate("Redis Streams, appendfsync always, redis-py, asyncio, x64", found["redis_asyncio"], "msg/s")
    say_rate("Redis Streams, appendfsync always, redis-py, asyncio, x1", found["redis_asyncio_1"], "msg/s")
    say_rate("Redis Streams, appendfsync always, by our load, x64", found["redis_by_load"], "msg/s")
    say_rate("NATS JetStream, sync_interval always, nats-py, x64", found["nats"], "msg/s")
    say_rate("NATS JetStream, 1 to 1, acked", found["nats_1_to_1"], "msg/s")
    say_rate("NATS JetStream, 1 to 8, acked", found["nats_1_to_8"], "deliveries/s")
    say_rate(
        "one daemon to the other's inbox, acked (three durable hops)",
        found["end_to_end"],
        "msg/s",
        f"accepted at {found['end_to_end_accepts']:,.0f}/s   flushes a message: sender {found['flushes_alice']:.3f}"
        f", broker {found['flushes_broker']:.3f}, receiver {found['flushes_bob']:.3f}",
    )
    say_rate("our broker, 1 to 8, acked", found["delivered"], "deliveries/s")


def run(scale: float) -> None:
    requests = scaled(10_000, scale)
    found = measured(
        lambda: (
            measure_daemon(scale)
            | measure_redis(scale)
            | measure_end_to_end(requests)
            | measure_nats(scale)
            | measure_fan_out(scale)
        )
    )
    say(found)
    say_ratio("daemon send x64 / Redis Streams x64", found.ratio("send", "redis"), at_least=(1.2, 2))
    say_ratio("daemon send x64 / Redis Streams x64 on asyncio", found.ratio("send", "redis_asyncio"))
    say_ratio("daemon send x1 / Redis Streams x1", found.ratio("send_1", "redis_1"), at_least=(0.55, 0.9))
    say_ratio("daemon send x1 / Redis Streams x1 on asyncio", found.ratio("send_1", "redis_asyncio_1"))
    say_ratio("through our SDK x64 / Redis Streams x64, both on uvloop", found.ratio("sdk", "redis"))
    say_ratio("daemon send x64 / Redis Streams x64 by the same load", found.ratio("send", "redis_by_load"))
    say_ratio("daemon to inbox / NATS 1 to 1", found.ratio("end_to_end", "nats_1_to_1"), at_least=(0.6, 1.2))
    say_ratio("fan-out 1 to 8 / NATS 1 to 8", found.ratio("delivered", "nats_1_to_8"), at_least=(1, 2.5))
