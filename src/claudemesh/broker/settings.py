"""The settings of a broker, each with what it is for. Read by `runtime.settings`, or built by the command line."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from claudemesh.kernel.retention import WINDOW_DAYS_MIN
from claudemesh.kernel.rhythm import (
    LEASE_TTL_MS,
    LEASE_TTL_MS_MIN,
    PING_INTERVAL_MS,
    STALE_PONG_MS,
    TIME_MS_MAX,
    TIME_MS_MIN,
)
from claudemesh.wire.names import SENDS_PER_WINDOW_MAX
from claudemesh.wire.negotiation import INLINE_BYTES_DEFAULT, PAYLOAD_BYTES_MIN

LISTEN_DEFAULT: Final = "127.0.0.1:7450"
RETENTION_DAYS_DEFAULT: Final = 365
DAYS_MAX: Final = 36_500  # a hundred years; for longer there is the permanent mode


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    sends_per_window: Annotated[
        int,
        Meta(ge=1, le=SENDS_PER_WINDOW_MAX, description="How many new messages a member may send in one window."),
    ] = 6_000
    window_s: Annotated[int, Meta(ge=1, description="The length of that window, in seconds.")] = 60
    inline_bytes: Annotated[
        int, Meta(ge=PAYLOAD_BYTES_MIN, description="The largest body of a message, in bytes of UTF-8.")
    ] = INLINE_BYTES_DEFAULT


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    message_days: Annotated[int, Meta(ge=1, le=DAYS_MAX, description="How long messages are kept.")] = (
        RETENTION_DAYS_DEFAULT
    )
    dedupe_days: Annotated[
        int,
        Meta(ge=WINDOW_DAYS_MIN, le=DAYS_MAX, description="How long ids are known; never less than the messages."),
    ] = RETENTION_DAYS_DEFAULT
    mode: Annotated[
        Literal["retention_scoped", "permanent"],
        Meta(description="Whether ids are forgotten after dedupe_days, or never."),
    ] = "retention_scoped"
    sweep_every_s: Annotated[int, Meta(ge=1, description="How often the sweep runs, in seconds.")] = 3_600

    def __post_init__(self) -> None:
        if self.mode == "retention_scoped" and self.dedupe_days < self.message_days:
            raise ValueError(
                f"dedupe_days = {self.dedupe_days} would forget ids before their messages "
                f"(message_days = {self.message_days}), and a retry would be accepted twice"
            )

    @property
    def ids_days(self) -> int | None:
        return None if self.mode == "permanent" else self.dedupe_days


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """The variables are the daemon's too, so that both agree without a file."""

    lease_ttl_ms: Annotated[
        int,
        Meta(
            ge=LEASE_TTL_MS_MIN,
            le=TIME_MS_MAX,
            description="How long somebody counts as present after the last sign of life.",
            extra={"variable": "LEASE_TTL_MS"},
        ),
    ] = LEASE_TTL_MS
    ping_interval_ms: Annotated[
        int,
        Meta(
            ge=TIME_MS_MIN,
            le=TIME_MS_MAX,
            description="How often a silent connection is pinged.",
            extra={"variable": "PING_INTERVAL_MS"},
        ),
    ] = PING_INTERVAL_MS
    stale_pong_ms: Annotated[
        int,
        Meta(
            ge=TIME_MS_MIN,
            le=TIME_MS_MAX,
            description="How long a connection may be silent before it is ended.",
            extra={"variable": "STALE_PONG_THRESHOLD_MS"},
        ),
    ] = STALE_PONG_MS


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    hello_timeout_s: Annotated[float, Meta(gt=0, description="How long a caller has to say who it is.")] = 5.0
    slow_consumer_s: Annotated[
        float, Meta(gt=0, description="How long one frame may take to be read before the connection is ended.")
    ] = 30.0
    connections_max: Annotated[int, Meta(ge=1, description="How many connections are open at once.")] = 16_384


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """Of a store on a server; a file needs none of it."""

    pool_max: Annotated[
        int, Meta(ge=1, description="How many connections it may have for reading, beside the few that write.")
    ] = 8


Store: TypeAlias = Annotated[
    str, Meta(description="Where messages are kept: sqlite:///PATH or postgresql://HOST/NAME; for tests memory:.")
]


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    listen: Annotated[str, Meta(description="HOST:PORT; port 0 is any free one.")] = LISTEN_DEFAULT
    limiter: Annotated[
        str, Meta(description="Where budgets are counted: memory:, or in Redis (redis://, rediss:// or unix://).")
    ] = "memory:"
    admin_token_file: Annotated[
        str | None, Meta(description="A private file whose token may make meshes; needed beyond loopback.")
    ] = None
    tls_cert: Annotated[
        str | None,
        Meta(description="The certificate to show, PEM, with what leads to its root; then only TLS is spoken."),
    ] = None
    tls_key: Annotated[
        str | None, Meta(description="Its key, in a private file (0600). Both are read again on SIGHUP.")
    ] = None
    public_hosts: Annotated[
        list[str],
        Meta(description="What a TLS proxy on this machine is asked for, as it stands in Host: mesh.example.org."),
    ] = []
    resume_token_key: Annotated[
        str | None,
        Meta(
            description="The keys of resume tokens, 64 hex digits each, with commas: the first signs, all are "
            "good. Best given as RESUME_TOKEN_KEY in the environment; without it the store keeps one.",
            extra={"secret": True, "variable": "RESUME_TOKEN_KEY"},
        ),
    ] = None
    database: Database = Database()
    limits: Limits = Limits()
    retention: Retention = Retention()
    presence: Presence = Presence()
    connections: Connections = Connections()
