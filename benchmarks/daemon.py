"""A daemon's accepts, as its callers see them, against a bare echo behind the very same server.

The load is `benchmarks.load` in a process of its own: 1 KiB JSON in, a small JSON out, every answer after its
commit. "Idle" is a daemon whose broker is not there. "Draining" sends all that it accepts to a broker, a third
process; the recipient is away.
"""

import tempfile
from pathlib import Path
from uuid import uuid4

from benchmarks.engine import measure_sync
from benchmarks.load import BATCH, Kind, Load, Task
from benchmarks.members import (
    depth_of,
    enrol_members,
    lonely_member,
    pubkey_of,
    until_connected,
    until_depth,
    until_sent,
)
from benchmarks.processes import Node, load, node
from benchmarks.report import Figures, Rounds, measured, say_rate, say_ratio, say_value, scaled
from claudemesh.daemon.client import Client

BATCH_CONNECTIONS = 4
SEVERAL = 64


def fresh_run() -> str:
    return uuid4().hex[:12]


def ask(sock: str, requests: int, *, kind: Kind = "send", connections: int = SEVERAL, to: str = "b" * 64) -> Load:
    return load(Task(sock=sock, kind=kind, run=fresh_run(), requests=requests, connections=connections, to=to))


def measure_echoes(scale: float) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures["sync_ms"] = measure_sync(folder, scaled(500, scale)) * 1000
        with node(folder, "stock", folder / "stock") as stock:
            figures["stock"] = ask(stock.where, scaled(30_000, scale)).rate
        with node(folder, "echo", folder / "echo") as echo:
            several = ask(echo.where, scaled(40_000, scale))
            figures |= {"echo": several.rate, "echo_busy": several.busy}
            figures["echo_1"] = ask(echo.where, scaled(4_000, scale), connections=1).rate
    return figures


def measure_idle(scale: float) -> Figures:
    with tempfile.TemporaryDirectory() as name, node(Path(name), "daemon", lonely_member(Path(name))) as one:
        several, flushes = ask_counting(one, scaled(24_000, scale))
        alone, flushes_1 = ask_counting(one, scaled(2_500, scale), connections=1)
        batch, flushes_batch = ask_counting(
            one, scaled(500, scale, 20), kind="batch", connections=BATCH_CONNECTIONS
        )
        return {
            "idle": several.rate,
            "idle_p50_ms": several.p50_ms,
            "idle_p99_ms": several.p99_ms,
            "idle_flushes": flushes,
            "idle_1": alone.rate,
            "idle_1_p99_ms": alone.p99_ms,
            "idle_1_flushes": flushes_1,
            "batch": batch.rate * BATCH,
            "batch_flushes": flushes_batch / BATCH,
        }


def ask_counting(
    one: Node, requests: int, *, kind: Kind = "send", connections: int = SEVERAL
) -> tuple[Load, float]:
    """Return the load and how many flushes a request took."""
    before = one.flushes()
    found = ask(one.where, requests, kind=kind, connections=connections)
    return found, (one.flushes() - before) / requests


def measure_single(scale: float) -> Figures:
    """Ask the same daemon with one transaction for each request."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with node(folder, "daemon", lonely_member(folder), "1") as one:
            return {"single": ask(one.where, scaled(4_000, scale)).rate}


def measure_draining(scale: float) -> Figures:
    requests = scaled(16_000, scale)
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        folder = Path(name)
        alice, bob = enrol_members(folder, broker.where, "alice", "bob")
        with node(folder, "daemon", alice) as one:
            until_connected(alice)
            with Client(alice / "sock") as client:
                client.send(pubkey_of(bob), "so that everybody is known")
            until_sent(alice)
            before = one.flushes()
            found = ask(one.where, requests, to=pubkey_of(bob))
            left = requests + 1 - depth_of(broker.where)
            ended_s = until_depth(broker.where, requests + 1)
            until_sent(alice)
            return {
                "draining": found.rate,
                "draining_p99_ms": found.p99_ms,
                "draining_flushes": (one.flushes() - before) / requests,
                "draining_left": left / requests,
                "drained": requests / (ended_s - found.began_s),
            }


def say(found: Rounds) -> None:
    say_value("one append of 1 KiB and its sync (floor)", f"{found['sync_ms']:.3f} ms")
    say_rate("uvicorn as it comes, echo, 64 connections", found["stock"], "req/s")
    busy = f"the load took {found['echo_busy']:.2f} of its core, so it could ask at"
    say_rate(
        "our server, echo, 64 connections (the echo)",
        found["echo"],
        "req/s",
        f"{busy} {found['echo'] / found['echo_busy']:,.0f}",
    )
    say_rate("our server, echo, 1 connection", found["echo_1"], "req/s")
    say_rate(
        "POST /v1/send, idle, 64 connections",
        found["idle"],
        "msg/s",
        f"p50 {found['idle_p50_ms']:.2f} ms   p99 {found['idle_p99_ms']:.2f} ms"
        f"   {found['idle_flushes']:.3f} flushes a message",
    )
    say_rate(
        "POST /v1/send, idle, 1 connection",
        found["idle_1"],
        "msg/s",
        f"p99 {found['idle_1_p99_ms']:.2f} ms   {found['idle_1_flushes']:.3f} flushes a message",
    )
    say_rate(
        f"POST /v1/send/batch of {BATCH}, idle, {BATCH_CONNECTIONS} connections",
        found["batch"],
        "msg/s",
        f"{found['batch_flushes']:.4f} flushes a message",
    )
    say_rate("POST /v1/send, idle, 64 connections, group limit 1", found["single"], "msg/s")
    say_rate(
        "POST /v1/send, draining, 64 connections",
        found["draining"],
        "msg/s",
        f"p99 {found['draining_p99_ms']:.2f} ms   {found['draining_flushes']:.3f} flushes a message"
        f"   {found['draining_left']:.0%} not yet sent at the end",
    )
    say_rate("  from the first POST to the last one stored by the broker", found["drained"], "msg/s")


def run(scale: float) -> None:
    found = measured(
        lambda: measure_echoes(scale) | measure_idle(scale) | measure_single(scale) | measure_draining(scale)
    )
    say(found)
    say_ratio("send, 64 connections, idle / the echo", found.ratio("idle", "echo"), at_least=(0.28, 0.42))
    say_ratio("send, 64 connections, draining / the echo", found.ratio("draining", "echo"), at_least=(0.15, 0.25))
    say_ratio("batch of 100, messages / the echo", found.ratio("batch", "echo"), at_least=(0.7, 1.1))
    say_ratio("send, 64 connections, idle / uvicorn as it comes", found.ratio("idle", "stock"))
    say_ratio("send, 64 connections, draining / uvicorn as it comes", found.ratio("draining", "stock"))
    say_ratio("batch of 100, messages / uvicorn as it comes", found.ratio("batch", "stock"))
    say_ratio("grouped / one transaction a request", found.ratio("idle", "single"), at_least=(3, 5))
    say_ratio("p99 at 64 connections / one sync", found.ratio("idle_p99_ms", "sync_ms"), at_most=(100, 50))
    say_ratio("flushes a message, 64 connections, idle", found["idle_flushes"], at_most=(0.06, 0.03))
    say_ratio("flushes a message, 64 connections, draining", found["draining_flushes"], at_most=(0.10, 0.05))
