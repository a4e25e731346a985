"""NATS JetStream as its users run it when a power cut must not take anything back: a flush before every ack.

The publishers and the consumers are one process with `nats-py`, its own client.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from benchmarks.messages import SIZE, text
from benchmarks.processes import POLL_S, Node, free_port, server

FETCH = 256
FETCH_S = 10.0

_CONFIG = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""


@contextmanager
def nats_server() -> Iterator[Node]:
    program = Path(sys.executable).with_name("nats-server")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "nats.conf"
        config.write_text(_CONFIG.format(port=port, folder=folder))
        with server(
            [str(program if program.exists() else shutil.which("nats-server")), "-c", str(config)], port
        ) as one:
            yield one


async def measure_deliveries(port: str, messages: int, *, consumers: int, in_flight: int) -> float:
    """Return acked deliveries a second, from the first publish to the last ack that the server has taken in."""
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = f"s{time.monotonic_ns()}"
    try:
        jetstream = connection.jetstream()
        await jetstream.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
        names = [f"c{number}" for number in range(consumers)]
        pulls = [await jetstream.pull_subscribe(f"{stream}.m", durable=name, stream=stream) for name in names]
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for pull in pulls:
                group.create_task(_consume(pull, messages))
            numbers = iter(range(messages))
            for _ in range(in_flight):
                group.create_task(_publish(jetstream, f"{stream}.m", numbers))
        await _until_acked(jetstream, stream, names)
        return messages * consumers / (time.monotonic() - began_s)
    finally:
        await connection.close()


async def measure_publish(port: str, messages: int, *, in_flight: int) -> float:
    return messages / await _time_publishing(port, messages, in_flight)


async def _time_publishing(port: str, messages: int, in_flight: int) -> float:
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = f"s{time.monotonic_ns()}"
    try:
        jetstream = connection.jetstream()
        await jetstream.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
        numbers = iter(range(messages))
        began_s = time.monotonic()
        await asyncio.gather(*(_publish(jetstream, f"{stream}.m", numbers) for _ in range(in_flight)))
        return time.monotonic() - began_s
    finally:
        await connection.close()


async def _publish(jetstream: JetStreamContext, subject: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        await jetstream.publish(subject, text(number, SIZE).encode(), timeout=FETCH_S)


async def _consume(pull: JetStreamContext.PullSubscription, messages: int) -> None:
    left = messages
    while left:
        for message in await pull.fetch(min(FETCH, left), timeout=FETCH_S):
            await message.ack()
            left -= 1


async def _until_acked(jetstream: JetStreamContext, stream: str, names: list[str]) -> None:
    for name in names:
        while (await jetstream.consumer_info(stream, name)).num_ack_pending:  # noqa: ASYNC110  it is the server's
            await asyncio.sleep(POLL_S)
