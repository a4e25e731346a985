"""What this broker offers a daemon, and its answer to what a daemon requires."""

import hashlib

import msgspec

from claudemesh.broker.model import ConnectionPolicy
from claudemesh.broker.policy import FRAME_ITEMS_MAX
from claudemesh.wire.frames import Feature, FeatureNegotiationRequest, FeatureNegotiationResponse
from claudemesh.wire.negotiation import CONCURRENT, DEDUPE, DEDUPE_VERSION, MAX_PAYLOAD

Offer = dict[str, Feature]

_ESCAPED_BYTES_MAX = 6  # of one byte of a text in JSON: \u0001
_FRAME_REST_BYTES = 1024 * 1024  # for meta and everything else


def derive_frame_bytes(inline_bytes: int) -> int:
    """Return the size of the largest frame that is read: one message of the largest size always fits."""
    return inline_bytes * _ESCAPED_BYTES_MAX + _FRAME_REST_BYTES


def derive_offer(dedupe_days: int | None, inline_bytes: int, policy: ConnectionPolicy) -> Offer:
    mode = (
        {"mode": "permanent"}
        if dedupe_days is None
        else {"mode": "retention_scoped", "dedupe_retention_days": dedupe_days}
    )
    payload = {
        "version": 1,
        "inline_bytes": inline_bytes,
        "blob_bytes": inline_bytes,
        "frame_bytes": derive_frame_bytes(inline_bytes),
        "frame_items": FRAME_ITEMS_MAX,
    }
    return {
        DEDUPE: Feature({"version": DEDUPE_VERSION, "request_fingerprint": True, **mode}),
        CONCURRENT: Feature({"version": 1, "default_policy": str(policy)}),
        MAX_PAYLOAD: Feature(payload),
    }


def derive_terms(offer: Offer) -> str:
    """Return a short word for all that is offered: the same word, the same terms."""
    return hashlib.sha256(msgspec.json.encode(offer, order="deterministic")).hexdigest()[:16]


def answer_negotiation(request: FeatureNegotiationRequest, offer: Offer) -> FeatureNegotiationResponse:
    asked = dict.fromkeys([*request.require, *request.optional])
    return FeatureNegotiationResponse(
        {name: offer[name] for name in asked if name in offer},
        [name for name in dict.fromkeys(request.require) if name not in offer],
    )
