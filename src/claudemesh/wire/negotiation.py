"""What a daemon requires of a broker, and whether what the broker offers is good enough.

The broker states each feature with its parameters; the daemon checks every one. A required feature that is missing
is 4010, a parameter that is missing, malformed or unknown 4011, one below its floor 4012. A bad parameter of an
optional feature falls back to the daemon's own default, and is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeGuard, TypeVar

from claudemesh.kernel.retention import WINDOW_DAYS_MIN, Permanent, RetentionScoped
from claudemesh.wire.frames import (
    CLOSE_FEATURE_PARAM_BELOW_FLOOR,
    CLOSE_FEATURE_PARAM_INVALID,
    CLOSE_FEATURE_UNAVAILABLE,
    Feature,
)
from claudemesh.wire.names import POLICIES

DEDUPE: Final = "client_message_id_dedupe"
CONCURRENT: Final = "concurrent_connection_policy"
MAX_PAYLOAD: Final = "max_payload"
KEYPAIR_ROTATED: Final = "member_keypair_rotated_event"
KEY_EPOCH: Final = "key_epoch"

REQUIRED: Final = (DEDUPE, CONCURRENT)
OPTIONAL: Final = (MAX_PAYLOAD, KEYPAIR_ROTATED, KEY_EPOCH)

DEDUPE_VERSION: Final = 2
INLINE_BYTES_DEFAULT: Final = 512 * 1024
PAYLOAD_BYTES_MIN: Final = 1024
WINDOW_DAYS_MAX: Final = 36_500  # a hundred years
NUMBER_MAX: Final = 2**53 - 1


Default = TypeVar("Default")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What both sides go by from now on."""

    dedupe: RetentionScoped | Permanent = field(default_factory=lambda: RetentionScoped(WINDOW_DAYS_MIN))
    inline_bytes: int = INLINE_BYTES_DEFAULT
    blob_bytes: int | None = None
    key_epochs: int = 1
    policy: str = POLICIES[0]
    features: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)


class NegotiationFailed(Exception):
    """The broker does not offer what this daemon cannot do without."""

    def __init__(self, close_code: int, feature: str, reason: str) -> None:
        super().__init__(f"{feature}: {reason}")
        self.close_code = close_code
        self.feature = feature
        self.reason = reason


def judge_offer(supported: Mapping[str, Feature], missing_required: list[str]) -> Agreed:
    """Check every parameter of the offer; NegotiationFailed says which feature fell short, and how."""
    for name in REQUIRED:
        if name not in supported or name in missing_required:
            raise NegotiationFailed(CLOSE_FEATURE_UNAVAILABLE, name, "the broker does not support it")
    if missing_required:
        raise NegotiationFailed(CLOSE_FEATURE_UNAVAILABLE, missing_required[0], "the broker does not support it")
    warnings: list[str] = []
    return Agreed(
        dedupe=_dedupe(supported[DEDUPE].params, warnings),
        policy=_policy(supported[CONCURRENT].params, warnings),
        inline_bytes=_at_least(
            supported, MAX_PAYLOAD, "inline_bytes", Floor(PAYLOAD_BYTES_MIN, INLINE_BYTES_DEFAULT), warnings
        ),
        blob_bytes=_at_least(supported, MAX_PAYLOAD, "blob_bytes", Floor(PAYLOAD_BYTES_MIN, None), warnings),
        key_epochs=_at_least(supported, KEY_EPOCH, "max_concurrent_epochs", Floor(1, 1), warnings),
        features=tuple(sorted(supported)),
        warnings=tuple(warnings),
    )


def _dedupe(params: Mapping[str, Any], warnings: list[str]) -> RetentionScoped | Permanent:
    if params.get("version") != DEDUPE_VERSION:
        raise _invalid(DEDUPE, f"version {params.get('version')!r} is not {DEDUPE_VERSION}")
    if params.get("request_fingerprint") is not True:
        raise _invalid(DEDUPE, "request_fingerprint is not true")
    mode = params.get("mode")
    if mode == "permanent":
        return Permanent()
    if mode != "retention_scoped":
        raise _invalid(DEDUPE, f"mode {mode!r} is unknown")
    pruned = params.get("tombstone_history_pruned_window_days", 0)
    if not _is_whole(pruned) or pruned < 0:
        warnings.append(f"{DEDUPE}.tombstone_history_pruned_window_days is {pruned!r}: passed over")
    days = params.get("dedupe_retention_days")
    if not _is_whole(days):
        raise _invalid(DEDUPE, f"dedupe_retention_days is {days!r}, not a whole number")
    if days > WINDOW_DAYS_MAX:
        raise _invalid(DEDUPE, f"dedupe_retention_days is {days}, at most {WINDOW_DAYS_MAX} is believed")
    if days < WINDOW_DAYS_MIN:
        reason = f"dedupe_retention_days is {days}, the floor is {WINDOW_DAYS_MIN}"
        raise NegotiationFailed(CLOSE_FEATURE_PARAM_BELOW_FLOOR, DEDUPE, reason)
    return RetentionScoped(days)


def _policy(params: Mapping[str, Any], warnings: list[str]) -> str:
    """Read the policy, which is the feature's one optional parameter."""
    policy = params.get("default_policy", POLICIES[0])
    if policy in POLICIES:
        return str(policy)
    warnings.append(f"{CONCURRENT}.default_policy is {policy!r}: going by {POLICIES[0]}")
    return POLICIES[0]


@dataclass(frozen=True, slots=True)
class Floor(Generic[Default]):
    """The least that a number may be, and what stands for one that is not there or not good."""

    least: int
    default: Default


def _at_least(
    supported: Mapping[str, Feature], feature: str, param: str, floor: Floor[Default], warnings: list[str]
) -> int | Default:
    if feature not in supported:
        return floor.default
    offered = supported[feature].params.get(param)
    if _is_whole(offered) and floor.least <= offered <= NUMBER_MAX:
        return offered
    if param in supported[feature].params:
        warnings.append(f"{feature}.{param} is {offered!r}: going by {floor.default}")
    return floor.default


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _invalid(feature: str, reason: str) -> NegotiationFailed:
    return NegotiationFailed(CLOSE_FEATURE_PARAM_INVALID, feature, reason)
