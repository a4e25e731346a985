"""A broker with thousands of sessions that say nothing, one that comes back, and all that come back at once.

The sessions are in a process of their own (`benchmarks.sessions`). What a resume takes is held against a WebSocket
handshake with the same broker that nothing follows; what a herd costs against the accepts of a sender beside it, in
as many seconds without one.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from benchmarks.broker import run_fast
from benchmarks.daemon import fresh_run
from benchmarks.members import enrol_members, pubkey_of
from benchmarks.messages import ids, render_wire_item
from benchmarks.processes import ROOT, bound_to_us, node
from benchmarks.report import Figures, Rounds, measured, say_rate, say_ratio, say_value, scaled
from benchmarks.wire import FRAME, Sink, linked
from claudemesh.kernel.fingerprint import Kind

SESSIONS = 5_000
HERD = 500
RESUMES = 300
SETTLE_S = 4.0
CALM_S = 4.0  # of sending before the herd drops
HERD_S = 3.0  # and after
WATCH_S = 60.0
MEMORY_MB_MAX = 400.0
CORE_SHARE_MAX = 0.10
RESUME_EXTRA_MS_MAX = 3.0


class Sessions:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def finish(self) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return msgspec.json.decode(self.line(), type=Figures)

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()


@contextmanager
def sessions(member: Path, mode: str, count: int) -> Iterator[Sessions]:
    command = bound_to_us(sys.executable, "-m", "benchmarks.sessions", str(member), mode, str(count))
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    found = Sessions(process)
    try:
        said = found.line()
        assert said.startswith("connected"), said
        yield found
    finally:
        process.kill()
        process.wait()


# --- idle ----------------------------------------------------------------------------------------------


def measure_idle(count: int, watch_s: float) -> Figures:
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        [member] = enrol_members(Path(name), broker.where, "alice")
        with sessions(member, "idle", 50):  # what is made once is made
            pass
        time.sleep(1)
        before = broker.rss_mib()
        with sessions(member, "idle", count):
            time.sleep(SETTLE_S)
            memory = broker.rss_mib()
            cpu, began = broker.cpu_s(), time.monotonic()
            time.sleep(watch_s)
            share = (broker.cpu_s() - cpu) / (time.monotonic() - began)
            return {
                "memory_mb": max(memory, broker.rss_mib()) * 1.048576,
                "each_kib": (memory - before) * 1024 / count,
                "share": share,
            }


# --- one that comes back ---------------------------------------------------------------------------------


def measure_resume(count: int) -> Figures:
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        [member] = enrol_members(Path(name), broker.where, "alice")
        with sessions(member, "resume", count) as found:
            return found.finish()


# --- all at once -----------------------------------------------------------------------------------------


async def accepts(state_dir: Path, to: str, crowd: Sessions) -> tuple[list[tuple[float, int]], float]:
    """Send without a pause and have the herd drop in the middle; return what was accepted when, and when it did."""
    accepted: list[tuple[float, int]] = []
    async with linked(state_dir, Sink()) as link:
        began = time.monotonic()

        async def send() -> None:
            while time.monotonic() < began + CALM_S + HERD_S:
                fresh = enumerate(islice(ids(fresh_run()), FRAME))
                answer = await link.send([render_wire_item(Kind.DM, to, id_, number) for number, id_ in fresh])
                outcomes = await answer
                accepted.append((time.monotonic(), sum(outcome.status == 201 for outcome in outcomes)))  # noqa: PLR2004

        sending = asyncio.gather(*(send() for _ in range(4)))
        await asyncio.sleep(CALM_S)
        crowd.say("drop")
        dropped = time.monotonic()
        await sending
        return accepted, dropped


def rate(accepted: list[tuple[float, int]], begins: float, ends: float) -> float:
    return sum(count for at, count in accepted if begins <= at < ends) / (ends - begins)


def measure_herd(count: int) -> Figures:
    """Hold the accepts while the herd comes back against those of as many seconds before."""
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        alice, bob = enrol_members(Path(name), broker.where, "alice", "bob")
        with sessions(alice, "herd", count) as crowd:
            accepted, dropped = run_fast(accepts(bob, pubkey_of(alice), crowd))
            found = crowd.finish()
            back_s = found["all_back_s"]
            return {
                "before": rate(accepted, dropped - back_s, dropped),
                "during": rate(accepted, dropped, dropped + back_s),
                **found,
            }


# --- together --------------------------------------------------------------------------------------------


def run(scale: float) -> None:
    found = measure_idle(scaled(SESSIONS, scale, 200), WATCH_S if scale >= 1 else 5.0)
    say_value("idle sessions", f"{scaled(SESSIONS, scale, 200):,}")
    say_value("memory of the broker", f"{found['memory_mb']:.0f} MB")
    say_value("memory of one session", f"{found['each_kib']:.1f} KiB")
    say_value("processor for keep-alive, of a core", f"{found['share']:.1%}")
    say_ratio("memory / 400 MB", found["memory_mb"] / MEMORY_MB_MAX, at_most=(1.0, 0.5))
    say_ratio("processor / a tenth of a core", found["share"] / CORE_SHARE_MAX, at_most=(1.0, 0.25))
    resumed: Rounds = measured(lambda: measure_resume(scaled(RESUMES, scale, 20)))
    say_value("a bare WebSocket handshake, p50", f"{resumed['bare_ms']:.2f} ms")
    say_value("a resume, handshake and all, p50", f"{resumed['resume_ms']:.2f} ms")
    extra = resumed["resume_ms"] - resumed["bare_ms"]
    say_ratio("what a resume adds / 3 ms", extra / RESUME_EXTRA_MS_MAX, at_most=(1.0, 0.5))
    herd: Rounds = measured(lambda: measure_herd(scaled(HERD, scale, 50)))
    say_rate("accepts beside sessions that are still", herd["before"], "/s")
    say_rate("accepts while all of them come back", herd["during"], "/s")
    say_value("all are back after", f"{herd['all_back_s']:.2f} s")
    say_ratio("accepts during / before", herd.ratio("during", "before"), at_least=(0.5, 0.8))
