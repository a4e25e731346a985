"""The settings of a hub, each with what it is for. Read by `runtime.settings`, or built by the command line."""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from claudemesh.kernel.idempotency import EXPIRY_DAYS_MIN

LISTEN_DEFAULT: Final = "127.0.0.1:18000"


Store: TypeAlias = Annotated[
    str, Meta(description="Where rows and journal are kept: sqlite:///PATH or postgresql://HOST/NAME.")
]


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    listen: Annotated[str, Meta(description="HOST:PORT; port 0 is any free one.")] = LISTEN_DEFAULT
    token_file: Annotated[
        str | None,
        Meta(description="A private file with the token that every request must carry; needed beyond loopback."),
    ] = None
    key_expiry_days: Annotated[
        int,
        Meta(
            ge=EXPIRY_DAYS_MIN,
            le=3_650,
            description="How long an Idempotency-Key is known, as /.well-known/idempotency-policy tells.",
        ),
    ] = EXPIRY_DAYS_MIN
    pool_max: Annotated[
        int, Meta(ge=1, description="How many connections to PostgreSQL it may have beside the one that writes.")
    ] = 8
