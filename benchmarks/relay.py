"""What a relay costs while its hub is there, how fast it queues while it is not, and how fast it replays.

Writes of 1 KiB, each under a key, by `benchmarks.load` in a process of its own. "Direct" is the same request to
the same hub without the relay; hub, relay and load share the machine's cores. The echo is the daemon's: a bare
server over a Unix socket.
"""

import json
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import apsw

from benchmarks.daemon import ask
from benchmarks.load import Load, Task
from benchmarks.processes import free_port, load, node
from benchmarks.report import Figures, Rounds, measured, say_rate, say_ratio, say_value, scaled

SEVERAL = 64
PATIENCE_S = 120.0


def write(where: str, requests: int, connections: int = SEVERAL) -> Load:
    run = uuid4().hex[:12]
    return load(Task(sock=where, kind="progress", run=run, requests=requests, connections=connections))


def address() -> str:
    return f"127.0.0.1:{free_port()}"


def measure_echo(scale: float) -> Figures:
    with tempfile.TemporaryDirectory() as name, node(Path(name), "echo", Path(name) / "echo") as echo:
        return {"echo": ask(echo.where, scaled(30_000, scale)).rate}


def measure_online(scale: float) -> Figures:
    at_hub, at_relay = address(), address()
    with (
        tempfile.TemporaryDirectory() as name,
        node(Path(name), "hub", Path(name), at_hub) as hub,
        node(Path(name), "relay", Path(name), at_relay, f"http://{at_hub}") as relay,
    ):
        requests, few = scaled(12_000, scale), scaled(1_500, scale)
        direct, direct_1 = write(at_hub, requests), write(at_hub, few, 1)
        cpu_s, hub_cpu_s = relay.cpu_s(), hub.cpu_s()
        relayed = write(at_relay, requests)
        relay_us, hub_us = (
            (node.cpu_s() - before) / requests * 1e6 for node, before in ((relay, cpu_s), (hub, hub_cpu_s))
        )
        relayed_1 = write(at_relay, few, 1)
        return {
            "direct": direct.rate,
            "direct_p50_ms": direct.p50_ms,
            "direct_1_p50_ms": direct_1.p50_ms,
            "relayed": relayed.rate,
            "relayed_p50_ms": relayed.p50_ms,
            "relayed_1_p50_ms": relayed_1.p50_ms,
            "overhead_1_ms": relayed_1.p50_ms - direct_1.p50_ms,
            "relay_us": relay_us,
            "hub_us": hub_us,
        }


def measure_outage(scale: float) -> Figures:
    at_hub, at_relay = address(), address()
    requests = scaled(12_000, scale)
    with (
        tempfile.TemporaryDirectory() as name,
        node(Path(name), "relay", Path(name), at_relay, f"http://{at_hub}") as relay,
    ):
        before, cpu_s = relay.flushes(), relay.cpu_s()
        queued = write(at_relay, requests)
        flushes, queued_us = (relay.flushes() - before) / requests, (relay.cpu_s() - cpu_s) / requests * 1e6
        with node(Path(name), "hub", Path(name), at_hub):
            until_replayed(at_relay)
            rate = replay_rate(Path(name) / "edge" / "outbox.db", requests)
        return {
            "queued": queued.rate,
            "queued_p99_ms": queued.p99_ms,
            "queued_flushes": flushes,
            "queued_us": queued_us,
            "replayed": rate,
        }


def until_replayed(where: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        with urlopen(f"http://{where}/status") as answer:
            if json.load(answer)["pending"] == 0:
                return
        time.sleep(0.05)
    raise AssertionError("not all was replayed in time")


def replay_rate(path: Path, requests: int) -> float:
    """Return how many a second, from the first that went out to the last that was acknowledged."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    row = connection.execute(
        "SELECT min(at) FILTER (WHERE became = 'inflight'), max(at) FILTER (WHERE became = 'done') "
        "FROM envelope_event"
    ).fetchall()[0]
    connection.close()
    return requests / (int(str(row[1])) - int(str(row[0]))) * 1000


def say(found: Rounds) -> None:
    say_rate("the echo, 64 connections", found["echo"], "req/s")
    say_rate(
        "direct to the hub, 64 connections", found["direct"], "writes/s", f"p50 {found['direct_p50_ms']:.2f} ms"
    )
    say_rate(
        "through the relay, 64 connections",
        found["relayed"],
        "writes/s",
        f"p50 {found['relayed_p50_ms']:.2f} ms   a write costs the relay {found['relay_us']:.0f} us of processor, "
        f"the hub {found['hub_us']:.0f} us",
    )
    say_value("direct, 1 connection, p50", f"{found['direct_1_p50_ms']:.2f} ms")
    say_value("through the relay, 1 connection, p50", f"{found['relayed_1_p50_ms']:.2f} ms")
    say_rate(
        "queued while the hub is away, 64 connections",
        found["queued"],
        "writes/s",
        f"p99 {found['queued_p99_ms']:.2f} ms   {found['queued_flushes']:.3f} flushes and "
        f"{found['queued_us']:.0f} us of processor a write",
    )
    say_rate("replayed to the embedded hub", found["replayed"], "envelopes/s")


def run(scale: float) -> None:
    found = measured(lambda: measure_echo(scale) | measure_online(scale) | measure_outage(scale))
    say(found)
    say_ratio("what the relay adds to a write, 1 connection, p50 in ms", found["overhead_1_ms"], at_most=(2, 1))
    say_ratio("through the relay / direct, 64 connections", found.ratio("relayed", "direct"), at_least=(0.35, 0.5))
    say_ratio("queued while offline / the echo", found.ratio("queued", "echo"), at_least=(0.25, 0.35))
    say_ratio("replayed, in 1000 envelopes/s", found["replayed"] / 1000, at_least=(0.5, 1.5))
