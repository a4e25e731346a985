"""From one daemon to another: three processes and three durable hops, each answered by the next.

How long a message takes at a quiet pace, and what a daemon and its command cost on their own. How many arrive in a
second is measured here too, and said in `peers`, beside those of others.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.broker import run_fast
from benchmarks.daemon import fresh_run
from benchmarks.load import Load, Task
from benchmarks.members import (
    SLUG,
    enrol_members,
    lonely_member,
    pubkey_of,
    until_connected,
    until_depth,
    until_received,
    until_sent,
)
from benchmarks.messages import ids, render_send
from benchmarks.processes import Node, bound_to_us, end, load, node, until_listening
from benchmarks.report import ROUNDS, Figures, Rounds, measured, say_ratio, say_value, scaled
from claudemesh.daemon.client import Client

PACE = 200  # messages a second
CONNECTIONS = 4
IDLE_S = 10.0
COMMAND = (sys.executable, "-P", "-m", "claudemesh.cli.main")


@dataclass(frozen=True)
class Pair:
    """Two daemons and their broker."""

    broker: Node
    alice: Node
    bob: Node
    alice_dir: Path
    bob_dir: Path

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        return self.broker, self.alice, self.bob


@contextmanager
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        folder = Path(name)
        alice_dir, bob_dir = enrol_members(folder, broker.where, "alice", "bob")
        with node(folder, "daemon", alice_dir) as alice, node(folder, "daemon", bob_dir) as bob:
            until_connected(alice_dir)
            until_connected(bob_dir)
            with Client(alice_dir / "sock") as client:
                client.send(pubkey_of(bob_dir), "so that everybody is known")
            until_received(bob_dir, 1)
            yield Pair(broker, alice, bob, alice_dir, bob_dir)


# --- how many ---------------------------------------------------------------------------------------


def measure_end_to_end(requests: int) -> Figures:
    """POST at one daemon; over when the broker has written down that the other's inbox holds the last."""
    with pair() as mesh:
        before = [one.flushes() for one in mesh.nodes]
        found, took_s = _send_and_wait(mesh, requests)
        flushes = [one.flushes() - count for one, count in zip(mesh.nodes, before, strict=True)]
    return {
        "end_to_end": requests / took_s,
        "end_to_end_accepts": found.rate,
        "flushes_broker": flushes[0] / requests,
        "flushes_alice": flushes[1] / requests,
        "flushes_bob": flushes[2] / requests,
    }


def _send_and_wait(mesh: Pair, requests: int) -> tuple[Load, float]:
    task = Task(sock=mesh.alice.where, kind="send", run=fresh_run(), requests=requests, to=pubkey_of(mesh.bob_dir))
    found = load(task)
    until_received(mesh.bob_dir, requests + 1)
    ended_s = until_depth(mesh.broker.where, 0)
    until_sent(mesh.alice_dir)
    return found, ended_s - found.began_s


# --- how long ---------------------------------------------------------------------------------------


def measure_latency(seconds: float) -> Figures:
    with pair() as mesh:
        waits = sorted(run_fast(_pace(mesh, int(PACE * seconds))))
    return {
        "p50_ms": waits[len(waits) // 2] * 1000,
        "p99_ms": waits[int(len(waits) * 0.99)] * 1000,
        "max_ms": waits[-1] * 1000,
    }


async def _pace(mesh: Pair, count: int) -> list[float]:
    """Send at an even pace, whatever was answered; each wait is from when it was due until it is in the stream."""
    chosen = [*islice(ids(fresh_run()), count)]
    reader, writer = await asyncio.open_unix_connection(mesh.bob.where)
    writer.write(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await reader.readuntil(b": here you are")
    arriving = asyncio.create_task(_watch(reader, set(chosen)))
    senders = [await _Sender.open(mesh.alice.where) for _ in range(CONNECTIONS)]
    due_s: dict[str, float] = {}
    began_s = time.monotonic()
    for number, (id_, sender) in enumerate(zip(chosen, cycle(senders), strict=False)):
        due_s[id_] = began_s + number / PACE
        await asyncio.sleep(due_s[id_] - time.monotonic())
        sender.send(render_send(pubkey_of(mesh.bob_dir), id_, number))
    arrived_s = await arriving
    for one in (writer, *(sender.writer for sender in senders)):
        one.close()
    return [arrived_s[id_] - due_s[id_] for id_ in chosen]


@dataclass(frozen=True)
class _Sender:
    writer: asyncio.StreamWriter
    drain: "asyncio.Task[None]"

    @classmethod
    async def open(cls, sock: str) -> "_Sender":
        reader, writer = await asyncio.open_unix_connection(sock)
        return cls(writer, asyncio.create_task(_read_away(reader)))

    def send(self, body: bytes) -> None:
        head = b"POST /v1/send HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.writer.write(head % len(body) + body)


async def _read_away(reader: asyncio.StreamReader) -> None:
    while answers := await reader.read(1 << 16):
        assert b" 202 " in answers, answers[:500]


class _Arrived(msgspec.Struct):
    client_message_id: str


async def _watch(reader: asyncio.StreamReader, expected: set[str]) -> dict[str, float]:
    arrived_s: dict[str, float] = {}
    while len(arrived_s) < len(expected):
        line = await reader.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            id_ = msgspec.json.decode(line[6:], type=_Arrived).client_message_id
            if id_ in expected:
                arrived_s.setdefault(id_, time.monotonic())
    return arrived_s


# --- what it costs ----------------------------------------------------------------------------------


def measure_idle(seconds: float) -> Figures:
    with pair() as mesh:
        time.sleep(1)  # let the start be over
        before = [one.cpu_s() for one in mesh.nodes]
        time.sleep(seconds)
        broker, alice, _ = (one.cpu_s() - cpu_s for one, cpu_s in zip(mesh.nodes, before, strict=True))
        return {
            "daemon_rss": mesh.alice.rss_mib(),
            "broker_rss": mesh.broker.rss_mib(),
            "daemon_cpu": alice / seconds,
            "broker_cpu": broker / seconds,
        }


def measure_start(folder: Path) -> float:
    """Return the seconds from the command to the first answer of its daemon."""
    state_dir = folder / "daemon" / SLUG
    command = bound_to_us(*COMMAND, "daemon", "up", "--foreground", "--quiet", "--no-tcp", "--persistent")
    began_s = time.monotonic()
    process = _start(command, folder)
    try:
        until_listening(state_dir / "sock", poll_s=0.001)
        with Client(state_dir / "sock") as client:
            client.health()
        return time.monotonic() - began_s
    finally:
        end(process)


def measure_command(folder: Path, *words: str) -> float:
    began_s = time.monotonic()
    assert _start([*COMMAND, *words], folder).wait() == 0
    return time.monotonic() - began_s


def _start(command: list[str], home: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "CLAUDEMESH_HOME": str(home)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603  our own


def measure_commands(scale: float) -> Figures:
    times = scaled(10, scale, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "daemon").mkdir(mode=0o700)
        lonely_member(folder / "daemon")
        start_s = _median(lambda: measure_start(folder), times)
        with node(folder, "daemon", folder / "daemon" / SLUG):
            send_s = _median(lambda: measure_command(folder, "send", "b" * 64, "hello"), times)
    return {"start_ms": start_s * 1000, "send_ms": send_s * 1000, "python_ms": _median(_python, times) * 1000}


def _python() -> float:
    """Return what the interpreter alone takes: a command cannot be faster."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", "pass"], check=True)
    return time.monotonic() - began_s


def _median(measure: Callable[[], float], times: int) -> float:
    return median(measure() for _ in range(times))


def say(found: Rounds) -> None:
    for name in ("p50", "p99", "max"):
        say_value(f"POST at one daemon to its event at the other, 200/s, {name}", f"{found[f'{name}_ms']:.2f} ms")
    for name in ("daemon", "broker"):
        say_value(f"idle {name}, connected: resident memory", f"{found[f'{name}_rss']:.1f} MiB")
        say_value(f"idle {name}, connected: of one core", f"{found[f'{name}_cpu']:.2%}")
    say_value("`claudemesh daemon up --foreground` to its first answer", f"{found['start_ms']:.0f} ms")
    say_value("`claudemesh send`, the whole command", f"{found['send_ms']:.0f} ms")
    say_value("`python -c pass` (floor)", f"{found['python_ms']:.0f} ms")


def run(scale: float) -> None:
    seconds = max(5 * scale, 1.0)
    idle = measure_idle(max(IDLE_S * scale, 2.0))
    found = measured(lambda: measure_latency(seconds) | measure_commands(scale / ROUNDS) | idle)
    say(found)
    say_ratio("send to delivered at 200/s, p50, ms", found["p50_ms"], at_most=(4, 2))
    say_ratio("send to delivered at 200/s, p99, ms", found["p99_ms"], at_most=(15, 15))
