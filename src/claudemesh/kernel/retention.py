"""How old a row may become and still be sent.

A row must never reach the broker after the broker has forgotten its id: it would be accepted a second time. So the
daemon gives up a safety margin before the broker's dedupe window ends. Every number comes with its reason, so that
refusing to start can explain itself.
"""

from dataclasses import dataclass
from typing import Final

from claudemesh.kernel.errors import ConfigError, MaxAgeAboveWindow

WINDOW_DAYS_MIN: Final = 7
MARGIN_HOURS_MIN: Final = 24

PERMANENT_DEFAULT_HOURS: Final = 168
PERMANENT_CAP_HOURS: Final = 720


@dataclass(frozen=True, slots=True)
class RetentionScoped:
    """The broker forgets an id `window_days` after it first saw it."""

    window_days: int


@dataclass(frozen=True, slots=True)
class Permanent:
    """The broker never forgets; the limits are the daemon's own."""

    default_hours: int = PERMANENT_DEFAULT_HOURS
    cap_hours: int = PERMANENT_CAP_HOURS


@dataclass(frozen=True, slots=True)
class MaxAge:
    hours: int
    reason: str


def derive_max_age(mode: RetentionScoped | Permanent, override_hours: int | None = None) -> MaxAge:
    """Return the age in hours at which a row is given up, or refuse a setting that could double a message."""
    derived, limit_hours = _derive(mode)
    if override_hours is None:
        return derived
    if override_hours <= 0:
        raise ConfigError(f"max_age_hours_override = {override_hours} would give up every row at once")
    if override_hours > limit_hours:
        raise MaxAgeAboveWindow(
            f"max_age_hours_override = {override_hours}, but at most {limit_hours} h is safe: {derived.reason}",
            limit_hours=limit_hours,
        )
    return MaxAge(override_hours, f"max_age_hours_override, within the safe {limit_hours} h")


def _derive(mode: RetentionScoped | Permanent) -> tuple[MaxAge, int]:
    if isinstance(mode, Permanent):
        if not 0 < mode.default_hours <= mode.cap_hours:
            raise ConfigError(
                f"max_age_hours_default = {mode.default_hours} is not within 1 to the cap of {mode.cap_hours} h"
            )
        return MaxAge(mode.default_hours, f"ids are kept for ever; the cap is {mode.cap_hours} h"), mode.cap_hours
    if mode.window_days < WINDOW_DAYS_MIN:
        raise ConfigError(f"a dedupe window of {mode.window_days} days is below the floor of {WINDOW_DAYS_MIN}")
    window_hours = mode.window_days * 24
    margin_hours = max(MARGIN_HOURS_MIN, -(-window_hours // 10))  # a tenth, rounded up, in whole hours
    reason = f"ids are kept {mode.window_days} days ({window_hours} h), less a margin of {margin_hours} h"
    return MaxAge(window_hours - margin_hours, reason), window_hours - MARGIN_HOURS_MIN
