"""The daemon's settings: `config.toml` of its state directory, and what the command line said."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from claudemesh.daemon.terms import OutboxLimits
from claudemesh.kernel.rhythm import LEASE_TTL_MS, PING_INTERVAL_MS, STALE_PONG_MS


class Ipc(msgspec.Struct, frozen=True):
    """`[ipc]`: the local surface."""

    tcp: Annotated[bool, Meta(description="Also listen on 127.0.0.1, for callers with the local token.")] = True
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Its port; 0 takes a free one and writes `http.port`.")
    ] = 0
    public_health_check: Annotated[bool, Meta(description="Answer /v1/health on TCP without a token.")] = False
    body_bytes_max: Annotated[
        int, Meta(ge=1 << 16, le=1 << 26, description="The largest request, 64 KiB to 64 MiB; more is 413.")
    ] = 1 << 20
    batch_bytes_max: Annotated[
        int, Meta(ge=1 << 16, le=1 << 26, description="The same for a batch of sends; the SDK makes up to 6 MiB.")
    ] = 8 << 20
    in_flight_max: Annotated[int, Meta(ge=1, description="Requests under way at once; more are 429.")] = 1_024
    streams_max: Annotated[int, Meta(ge=1, description="Event streams open at once; more are 429.")] = 32
    requests_per_s: Annotated[int, Meta(ge=1, description="Requests a second for each TCP token.")] = 100
    burst: Annotated[int, Meta(ge=1, description="How many of them may come at once.")] = 1_000


class Inbox(msgspec.Struct, frozen=True):
    """`[inbox]`: what reached this member."""

    keep_days: Annotated[int, Meta(ge=1, description="How long messages and events are kept here.")] = 30


class Disk(msgspec.Struct, frozen=True):
    """`[disk]`: how much room the daemon's files may take."""

    reserved_bytes: Annotated[
        int, Meta(ge=1 << 20, description="Room for the outbox, and as much again for the inbox.")
    ] = 5 * 1024**3


class Clone(msgspec.Struct, frozen=True):
    """`[clone]`: what to do when the state directory turns up on another host."""

    policy: Annotated[
        Literal["refuse", "warn", "allow"], Meta(description="Refuse to start, warn, or say nothing.")
    ] = "refuse"


class SessionLimits(msgspec.Struct, frozen=True):
    """`[sessions]`: processes that are shown to the others as sessions of this member."""

    max: Annotated[int, Meta(ge=0, le=10_000, description="Sessions registered at once; more are 429.")] = 1_000
    reap_every_s: Annotated[
        float, Meta(gt=0, le=3600, description="How often to see whether their processes still run.")
    ] = 5.0


class Tracing(msgspec.Struct, frozen=True):
    """`[tracing]`: spans of messages, for a collector of OpenTelemetry; the extra `otel` brings what sends them."""

    endpoint: Annotated[
        str,
        Meta(
            pattern=r"^(https?://([^\s/@?#:\[\]]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^\s@?#]*)?)?$",
            description="Where spans go by OTLP over HTTP, as http://127.0.0.1:4318/v1/traces; empty is nowhere.",
        ),
    ] = ""
    share: Annotated[
        float, Meta(ge=0, le=1, description="Which part of all messages; all daemons choose the same ones.")
    ] = 1.0


class Config(msgspec.Struct, frozen=True):
    """The file."""

    outbox: OutboxLimits = OutboxLimits()
    ipc: Ipc = Ipc()
    inbox: Inbox = Inbox()
    disk: Disk = Disk()
    clone: Clone = Clone()
    sessions: SessionLimits = SessionLimits()
    tracing: Tracing = Tracing()


class LiveConfig:
    """The configuration in force: read when it is needed, so that `reload` reaches whoever goes by it."""

    # What is read once, at the start; everything else takes effect with a reload.
    FIXED = ("ipc.", "clone.", "tracing.")

    def __init__(self, config: Config) -> None:
        self.config = config

    def replace(self, config: Config) -> tuple[list[str], list[str]]:
        """Go by another configuration; return what changed at once, and what changes with the next start."""
        before, after = _flat(self.config), _flat(config)
        changed = sorted(name for name in after if before[name] != after[name])
        self.config = config
        fixed = [name for name in changed if name.startswith(self.FIXED)]
        return [name for name in changed if name not in fixed], fixed


def _flat(config: Config) -> dict[str, object]:
    tables: dict[str, dict[str, object]] = msgspec.to_builtins(config)
    return {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a daemon is started with."""

    state_dir: Path
    config: Config = Config()
    tcp: bool = True
    ephemeral_ttl_ms: int | None = None  # a session key for this run only, which ends after this time
    runtime_dir: Path | None = None
    log_to_stderr: bool = False
    in_memory: bool = False  # nothing is kept: for tests of programs that use the mesh
    lease_ttl_ms: int = LEASE_TTL_MS
    ping_interval_ms: int = PING_INTERVAL_MS
    stale_pong_ms: int = STALE_PONG_MS
