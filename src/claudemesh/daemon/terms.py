"""The terms a daemon goes by: what was last agreed with a broker, kept over restarts, and the age that follows.

Until a broker was ever reached the safest terms hold: the shortest window that any broker may offer.
"""

from typing import Annotated, Final, Literal

import msgspec

from claudemesh.kernel.retention import (
    PERMANENT_CAP_HOURS,
    PERMANENT_DEFAULT_HOURS,
    WINDOW_DAYS_MIN,
    MaxAge,
    Permanent,
    RetentionScoped,
    derive_max_age,
)
from claudemesh.wire.negotiation import INLINE_BYTES_DEFAULT, Agreed

REMEMBERED_AS: Final = "terms"


class OutboxLimits(msgspec.Struct, frozen=True):
    """`[outbox]` of the settings."""

    max_age_hours_default: Annotated[
        int, msgspec.Meta(ge=1, description="Age at which a row is given up if the broker never forgets ids.")
    ] = PERMANENT_DEFAULT_HOURS
    max_age_hours_cap: Annotated[
        int, msgspec.Meta(ge=1, description="The most that age may be set to with such a broker.")
    ] = PERMANENT_CAP_HOURS
    max_age_hours_override: Annotated[
        int | None,
        msgspec.Meta(description="Age at which a row is given up; refused if ids could be forgotten first."),
    ] = None
    prune_after_days: Annotated[
        int, msgspec.Meta(ge=1, description="`outbox prune` empties settled rows that are older.")
    ] = 30


class Terms(msgspec.Struct, frozen=True):
    mode: Literal["retention_scoped", "permanent"] = "retention_scoped"
    window_days: int = WINDOW_DAYS_MIN
    inline_bytes: int = INLINE_BYTES_DEFAULT
    features: tuple[str, ...] = ()

    def max_age(self, limits: OutboxLimits) -> MaxAge:
        """Return the age in hours with its reason, or refuse a setting that could double a message."""
        if self.mode == "permanent":
            mode: RetentionScoped | Permanent = Permanent(limits.max_age_hours_default, limits.max_age_hours_cap)
        else:
            mode = RetentionScoped(self.window_days)
        return derive_max_age(mode, limits.max_age_hours_override)


def from_agreed(agreed: Agreed) -> Terms:
    is_scoped = isinstance(agreed.dedupe, RetentionScoped)
    return Terms(
        mode="retention_scoped" if is_scoped else "permanent",
        window_days=agreed.dedupe.window_days if isinstance(agreed.dedupe, RetentionScoped) else 0,
        inline_bytes=agreed.inline_bytes,
        features=agreed.features,
    )


def render(terms: Terms) -> str:
    return msgspec.json.encode(terms).decode()


def parse(text: str | None) -> Terms:
    """Read what was remembered; what cannot be read is as good as never agreed."""
    try:
        return Terms() if text is None else msgspec.json.decode(text, type=Terms)
    except msgspec.DecodeError:
        return Terms()
