"""How long a hook takes, from its start to its end: beside a Python that does nothing, and the command line."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks.report import Figures, measured, say_ratio, say_value, scaled
from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair

PROGRAM = str(Path(sys.executable).with_name("claudemesh"))
BARE = [sys.executable, "-c", "pass"]


def run(scale: float) -> None:
    count = scaled(40, scale, 5)
    with tempfile.TemporaryDirectory(prefix="cm") as folder:
        home = Home(Path(folder) / "h")
        _join(home)
        environment = {**os.environ, "CLAUDEMESH_HOME": str(home.root)}
        _run([PROGRAM, "daemon", "up", "--no-tcp"], environment)
        try:
            rounds = measured(lambda: _round(environment, count))
        finally:
            _run([PROGRAM, "daemon", "down"], environment)
    say_value("a Python that does nothing, p50 (floor)", f"{rounds['bare']:.0f} ms")
    for name, what in (("hook", "a hook, with its daemon"), ("alone", "a hook without a daemon")):
        say_value(f"{what}, p50", f"{rounds[name]:.0f} ms")
        say_value(f"{what}, p95", f"{rounds[name + '95']:.0f} ms")
    say_value("`claudemesh inbox`, p50", f"{rounds['inbox']:.0f} ms")
    for name, what in (("bare", "a Python that does nothing"), ("hook", "a hook"), ("inbox", "`claudemesh inbox`")):
        say_value(f"processor time of {what}, p50", f"{rounds[name + '_cpu']:.0f} ms")
    say_ratio("a hook, p95 / 300 ms", rounds["hook95"] / 300, at_most=(1.0, 0.5))
    say_ratio("a hook, processor time p50 / 300 ms", rounds["hook_cpu"] / 300, at_most=(1.0, 0.5))
    say_ratio("processor time of a hook / a Python that does nothing", rounds.ratio("hook_cpu", "bare_cpu"))
    say_ratio("processor time of a hook / `claudemesh inbox`", rounds.ratio("hook_cpu", "inbox_cpu"))


def _join(home: Home) -> None:
    joined = Joined(
        mesh_id="mesh-demo",
        slug="demo",
        member_id="P1",
        name="ada",
        role="owner",
        broker_key="ab" * 32,
        broker_url="http://127.0.0.1:1",
    )
    identity.store(home.ensure_dir(home.mesh_dir("demo")), KeyPair.generate(), joined)


def _round(environment: dict[str, str], count: int) -> Figures:
    """Take turns, so that a busy moment of the machine falls on all of them."""
    nobody = {**environment, "CLAUDEMESH_HOME": environment["CLAUDEMESH_HOME"] + "-none"}
    commands = {
        "bare": (BARE, environment),
        "hook": ([PROGRAM, "hook", "session-start"], environment),
        "alone": ([PROGRAM, "hook", "prompt-submit"], nobody),
        "inbox": ([PROGRAM, "inbox"], environment),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    worked: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(count):
        for name, (command, variables) in commands.items():
            before_s, began = cpu_s(), time.perf_counter()
            _run(command, variables)
            taken[name].append((time.perf_counter() - began) * 1000)
            worked[name].append((cpu_s() - before_s) * 1000)
    figures = {name: median(values) for name, values in taken.items()}
    figures |= {name + "_cpu": median(values) for name, values in worked.items()}
    return figures | {name + "95": quantiles(values, n=20)[-1] for name, values in taken.items()}


def cpu_s() -> float:
    """Return what all children that have ended took of the processor: others on the machine hardly change that."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str], variables: dict[str, str]) -> None:
    subprocess.run(command, env=variables, input=b"{}", check=True, stdout=subprocess.DEVNULL)  # noqa: S603  our own
