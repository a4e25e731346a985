"""Settings: every file that is there, and every variable that is meant for it."""

from collections.abc import Iterator
from typing import Final

from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.settings_files import unheard
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import read_timings


@declare(
    "settings",
    "settings",
    "Every settings file can be read, and every name in it, and among the variables of its tables, is known and "
    "has a value that fits.",
    "Correct the line that is named; `claudemesh config show` says what is in force, and where each value "
    "came from.",
)
def settings(scene: Scene) -> Iterator[Finding]:
    for file in scene.files:
        problems = file.loaded.problems
        set_by_hand = [name for name, found in file.loaded.found.items() if found.source.kind != "default"]
        if problems:
            fix = f"correct it in {file.path}, or in the environment; then `claudemesh config show`"
            yield fail("; ".join(problems), fix, file.title)
        elif file.path.exists() or set_by_hand:
            yield ok(f"{len(set_by_hand)} set, the rest by default", file.title)
        else:
            yield absent("no file: all defaults", file.title)


@declare(
    "settings",
    "variables",
    "Every variable of the environment whose name begins with `CLAUDEMESH_` is one that something hears.",
    "Unset the one that is named, or spell it as is proposed: a misspelt `CLAUDEMESH_HOME` is a second home.",
)
def variables(scene: Scene) -> Iterator[Finding]:
    wrong = unheard(scene.home, scene.environment)
    if wrong:
        yield warn("; ".join(wrong), f"`unset {' '.join(one.partition(' ')[0] for one in wrong)}`, or correct it")
    else:
        yield ok("those that begin with CLAUDEMESH_ are heard")


@declare(
    "settings",
    "timings",
    "The variables of the environment that a daemon goes by are numbers within their bounds.",
    "Correct or unset `LEASE_TTL_MS`, `PING_INTERVAL_MS` or `STALE_PONG_THRESHOLD_MS`.",
)
def timings(scene: Scene) -> Iterator[Finding]:
    try:
        read = read_timings(scene.environment)
    except ConfigError as error:
        yield fail(
            error.detail, "correct it, or unset it: `unset LEASE_TTL_MS PING_INTERVAL_MS STALE_PONG_THRESHOLD_MS`"
        )
    else:
        yield ok(f"a lease of {read.lease_ttl_ms} ms, a ping every {read.ping_interval_ms} ms")


CHECKS: Final = (settings, variables, timings)
