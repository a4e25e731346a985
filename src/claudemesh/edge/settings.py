"""The settings of a relay, `edge.toml` in the home, each with what it is for. Read by `runtime.settings`."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from claudemesh.runtime.settings import load

FILE: Final = "edge.toml"
PREFIX: Final = "CLAUDEMESH_EDGE__"  # CLAUDEMESH_EDGE__LISTEN is `listen`: a broker here has one, too
LISTEN_DEFAULT: Final = "127.0.0.1:18080"
UPSTREAM_DEFAULT: Final = "http://127.0.0.1:18000"
EXPIRY_DAYS_DEFAULT: Final = 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    body_bytes_max: Annotated[
        int, Meta(ge=1024, le=64 << 20, description="The largest request that is forwarded; more is 413.")
    ] = 10 << 20
    answer_bytes_max: Annotated[
        int, Meta(ge=1024, le=256 << 20, description="The largest answer that is passed on; more is 502.")
    ] = 16 << 20
    request_timeout_s: Annotated[
        float, Meta(gt=0, le=600, description="How long the upstream may take to answer.")
    ] = 15.0
    connections_max: Annotated[int, Meta(ge=1, le=1024, description="Connections to the upstream at once.")] = 64
    reserved_bytes: Annotated[
        int, Meta(ge=1 << 20, description="Room for queued envelopes; when it is full, writes are refused (507).")
    ] = 1 << 30


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    acked_days: Annotated[
        int, Meta(ge=1, description="How long the body of a settled envelope is kept; its key stays known.")
    ] = 30
    key_expiry_days: Annotated[
        int, Meta(ge=1, description="How long the upstream remembers keys, if it does not publish it itself.")
    ] = EXPIRY_DAYS_DEFAULT


class EdgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    upstream: Annotated[
        str,
        Meta(description="The one address that the relay ever contacts: http:// or https://, and a path if any."),
    ] = UPSTREAM_DEFAULT
    listen: Annotated[
        str, Meta(description="Where callers reach it, on this machine only; port 0 is any free one.")
    ] = LISTEN_DEFAULT
    networks: Annotated[
        list[str],
        Meta(
            description="Networks that the upstream's name may lead to beside public addresses, as in "
            '["10.0.0.0/8"]; an address that is written out in `upstream` needs none.'
        ),
    ] = []
    token_file: Annotated[
        str | None,
        Meta(description="A private file with the bearer token that the upstream is shown; or STATEHUB_TOKEN."),
    ] = None
    require_token: Annotated[
        bool,
        Meta(description="Ask callers for the token in edge/local_token, where other users share the machine."),
    ] = False
    routes: Annotated[
        str | None, Meta(description="A file with the route policy of another API; without it a State Hub's.")
    ] = None
    limits: Limits = Limits()
    keeping: Keeping = Keeping()


def load_settings(root: Path) -> EdgeSettings:
    """Return the settings of the relay of a home: those of its file, and of the environment, which wins."""
    return load(EdgeSettings, root / FILE, prefix=PREFIX)
