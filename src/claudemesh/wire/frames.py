"""The frames between a daemon and its broker: JSON texts on one WebSocket, told apart by `type`.

A frame is decoded and checked in one step; what does not decode is a bad frame, never half understood. A field that
this version does not know is passed over, so that a newer side may say more. Sends, deliveries and acks are arrays:
one frame, one commit, one wake-up for many.

    to the broker    hello  feature_negotiation_request  send  ack  call
    from the broker  welcome  hello_ack  feature_negotiation_response  send_result  deliver  receipt  event
                     lease_renewed  reply  error

What is signed in a hello is in `signing.py`; what is negotiated in `negotiation.py`.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
import orjson

from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.fingerprint import Kind, Priority

PROTOCOL: Final = 1

ITEM_EXTRA_BYTES: Final = 512 * 1024  # for meta and all that is not the body
SESSION_BYTES_MAX: Final = 4 * 1024  # of all that a session says of itself
ATTESTATION_MAX_MS: Final = DAY_MS  # how long a member vouches for a session's key at most
CLOCK_SKEW_MAX_MS: Final = 60_000  # how far apart two clocks may be for what one of them says to count
PRESENCE_END: Final = "presence.end"  # the call of one who leaves for good, or of a session's daemon for it

# Close codes (RFC 6455 leaves 4000-4999 to applications). 1000 and 1001 are its own.
CLOSE_SESSION_REPLACED: Final = 1000
CLOSE_REPLACED_BY_NEWER: Final = 4003
CLOSE_ALREADY_CONNECTED: Final = 4004
CLOSE_FEATURE_UNAVAILABLE: Final = 4010
CLOSE_FEATURE_PARAM_INVALID: Final = 4011
CLOSE_FEATURE_PARAM_BELOW_FLOOR: Final = 4012
CLOSE_BAD_FRAME: Final = 4400
CLOSE_UNAUTHENTICATED: Final = 4401
CLOSE_SLOW_CONSUMER: Final = 4408

# The word beside each code. What is unauthenticated is closed with the reason why instead.
CLOSE_WORDS: Final = {
    CLOSE_SESSION_REPLACED: "session_replaced",
    CLOSE_REPLACED_BY_NEWER: "replaced_by_newer_connection",
    CLOSE_ALREADY_CONNECTED: "member_already_connected",
    CLOSE_FEATURE_UNAVAILABLE: "feature_unavailable",
    CLOSE_FEATURE_PARAM_INVALID: "feature_param_invalid",
    CLOSE_FEATURE_PARAM_BELOW_FLOOR: "feature_param_below_floor",
    CLOSE_BAD_FRAME: "bad_frame",
    CLOSE_UNAUTHENTICATED: "unauthenticated",
    CLOSE_SLOW_CONSUMER: "slow_consumer",
}

# Words that a daemon tells apart.
REASON_REPLACED: Final = CLOSE_WORDS[CLOSE_SESSION_REPLACED]
REASON_REVOKED: Final = "revoked"


Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]  # a count, an id or an instant that every side can hold


class Frame(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """What all frames share: `type` first, defaults left out."""


# --- the hello -------------------------------------------------------------------------------------


class Welcome(Frame, frozen=True, tag="welcome"):
    """The broker speaks first: the nonce that the hello has to sign, so that no hello is good twice.

    `signature` is the broker's, over the challenge that the daemon put into the address it opened (`?challenge=…`)
    and over the nonce: whoever took the broker's place while it was away cannot make it.
    """

    nonce: str
    server_time_ms: Number
    signature: str = ""


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """A member's word that a session key speaks for it."""

    session_pubkey: str
    parent_member_pubkey: str
    expires_at: Number  # wall ms
    signature: str


Short = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00]*$")]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session says of itself: the others see it among the peers, while its lease stands."""

    display_name: Short = ""
    role: Short = ""
    cwd: Annotated[str, msgspec.Meta(max_length=1024, pattern=r"^[^\x00]*$")] = ""
    groups: Annotated[list[Short], msgspec.Meta(max_length=16)] = []
    topics: Annotated[list[Short], msgspec.Meta(max_length=32)] = []  # that it listens to
    mcp_servers: Annotated[list[Short], msgspec.Meta(max_length=32)] = []  # that it offers


class Hello(Frame, frozen=True, tag="hello", rename="camel"):
    """Who speaks. `presence_only`: it shows that a session is there; what is for it goes to its member's daemon."""

    mesh_id: str
    member_pubkey: str
    instance_id: str
    timestamp_ms: Number
    signature: str
    protocol: int = PROTOCOL
    alg: Literal["ed25519"] = "ed25519"
    session_pubkey: str | None = None
    attestation: Attestation | None = None
    resume_token: str | None = None
    presence_only: bool = False
    session: SessionInfo | None = None


class HelloAck(Frame, frozen=True, tag="hello_ack", rename="camel"):
    """The lease that stands now. `terms` is short for all that the broker offers.

    Whoever agreed to the same terms before need not ask for them again.
    """

    presence_id: str
    member_id: str
    mesh_slug: str
    lease_ttl_ms: Number
    broker_version: str
    resume_token: str | None = None
    resumed: bool = False
    terms: str = ""


class LeaseRenewed(Frame, frozen=True, tag="lease_renewed", rename="camel"):
    """The lease goes on, and this token with it; the one before it is as good, until it expires."""

    lease_ttl_ms: Number
    resume_token: str | None = None


# --- negotiation -----------------------------------------------------------------------------------


class Feature(msgspec.Struct, frozen=True):
    params: dict[str, Any]


class FeatureNegotiationRequest(Frame, frozen=True, tag="feature_negotiation_request"):
    require: list[str]
    optional: list[str] = []


class FeatureNegotiationResponse(Frame, frozen=True, tag="feature_negotiation_response"):
    supported: dict[str, Feature]
    missing_required: list[str] = []


# --- sends -----------------------------------------------------------------------------------------


class SendItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message on its way to the broker. `mentions` are already folded into `meta`.

    `fingerprint` is the daemon's own, in hex: the broker computes its own, and a difference is drift. `encoding` is
    how `body` is to be read; `sender_seq` is reserved.
    """

    client_message_id: str
    kind: Kind
    ref: str
    body: str
    fingerprint: str
    reply_to: str = ""
    priority: Priority = Priority.NEXT
    meta: dict[str, Any] | None = None
    encoding: Literal["plain"] = "plain"
    sender_seq: Number | None = None


class Send(Frame, frozen=True, tag="send"):
    """All items of one destination stand in their order; the broker applies them in it."""

    n: Number
    items: list[SendItem]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one item: 201 new, 200 duplicate, or an error with its code."""

    status: int
    broker_message_id: str | None = None
    history_id: Number | None = None
    duplicate: bool = False
    history_available: bool = True
    first_seen_at: Number | None = None
    code: str | None = None
    detail: str | None = None
    conflict: str | None = None
    broker_fingerprint_prefix: str | None = None
    retry_after_ms: Number | None = None


class SendResult(Frame, frozen=True, tag="send_result"):
    """The outcomes of `send` number n, in the order of its items."""

    n: Number
    outcomes: list[Outcome]


# --- deliveries ------------------------------------------------------------------------------------


class DeliverItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message for this member. `sender_id` outlives the sender's keys: it is what the inbox dedupes by."""

    history_id: Number
    broker_message_id: str
    client_message_id: str
    sender_id: str
    sender_pubkey: str
    sender_name: str
    kind: Kind
    ref: str
    body: str
    accepted_at: Number  # wall ms of the broker's commit
    reply_to: str = ""
    priority: Priority = Priority.NEXT
    meta: dict[str, Any] | None = None
    encoding: Literal["plain"] = "plain"
    to_session: str | None = None


class Deliver(Frame, frozen=True, tag="deliver"):
    items: list[DeliverItem]


class Sifted(Deliver, frozen=True, tag="deliver"):
    """A delivery as it was read: without the items that nobody can store, of which it says what is wrong."""

    refused: list[str] = []


class Ack(Frame, frozen=True, tag="ack"):
    """The inbox holds these: their history ids. Said again it changes nothing."""

    ids: list[int]


class ReceiptItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    client_message_id: str
    broker_message_id: str
    state: str  # accepted, delivered, read, acted, dead: of the least advanced recipient
    at: Number
    counts: dict[str, int] = {}


class Receipt(Frame, frozen=True, tag="receipt"):
    """A hint that something moved. What is true is asked for with a call."""

    items: list[ReceiptItem]


class Event(Frame, frozen=True, tag="event"):
    name: str
    data: dict[str, Any] = {}


# --- calls -----------------------------------------------------------------------------------------


class Call(Frame, frozen=True, tag="call"):
    n: Number
    op: str
    args: dict[str, Any] = {}


class Reply(Frame, frozen=True, tag="reply"):
    """The answer to call n: a result, or an error in the form of problem+json."""

    n: Number
    result: Any = None
    error: dict[str, Any] | None = None


class Error(Frame, frozen=True, tag="error"):
    """Said before the broker closes the connection."""

    code: str
    close_code: int
    detail: str = ""
    data: dict[str, Any] = {}


ToBroker = Hello | FeatureNegotiationRequest | Send | Ack | Call
FromBroker = (
    Welcome
    | HelloAck
    | FeatureNegotiationResponse
    | SendResult
    | Deliver
    | Receipt
    | Event
    | LeaseRenewed
    | Reply
    | Error
)


class _RawDeliver(Frame, frozen=True, tag="deliver"):
    items: list[msgspec.Raw]


_encoder = msgspec.json.Encoder()
_to_broker: Final[msgspec.json.Decoder[ToBroker]] = msgspec.json.Decoder(ToBroker)
_from_broker: Final[msgspec.json.Decoder[FromBroker]] = msgspec.json.Decoder(FromBroker)
_raw_deliver: Final[msgspec.json.Decoder[_RawDeliver]] = msgspec.json.Decoder(_RawDeliver)


class BadFrame(ValueError):
    """A text that is none of our frames."""


def item_bytes_max(inline_bytes: int) -> int:
    """Return how large one item may be on the wire: a body of control characters takes six bytes for one."""
    return 6 * inline_bytes + ITEM_EXTRA_BYTES


def render(frame: ToBroker | FromBroker) -> str:
    return _encoder.encode(frame).decode()


def render_item(item: SendItem | DeliverItem) -> bytes:
    """Return the bytes of one item, as they are frozen in a store and later put into a frame as they are."""
    return _encoder.encode(item)


def render_send(n: int, items: Iterable[bytes]) -> str:
    """Return a send frame of items that were rendered when they were accepted."""
    return (b'{"type":"send","n":%d,"items":[%b]}' % (n, b",".join(items))).decode()


def render_deliver(items: Iterable[bytes]) -> str:
    return (b'{"type":"deliver","items":[%b]}' % b",".join(items)).decode()


def parse_to_broker(text: str | bytes) -> ToBroker:
    try:
        return _to_broker.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadFrame(str(error)) from error


def parse_from_broker(text: str | bytes) -> FromBroker:
    """Read a frame. An item of a delivery that is no good is left out, so that it does not hold back the others."""
    try:
        frame = _from_broker.decode(text)
        return sift(frame.items) if isinstance(frame, Deliver) else frame
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            return sift(_raw_deliver.decode(text).items)
        except (msgspec.DecodeError, RecursionError):
            raise BadFrame(str(error)) from error


def sift(items: Iterable[object]) -> Sifted:
    """Return the items that can be read and stored, and why the others cannot."""
    good: list[DeliverItem] = []
    refused: list[str] = []
    for one in items:
        try:
            good.append(_parse_delivered(one))
        except (ValueError, TypeError, RecursionError) as error:
            refused.append(str(error))
    return Sifted(good, refused)


def _parse_delivered(one: object) -> DeliverItem:
    if isinstance(one, msgspec.Raw):
        one = msgspec.json.decode(one)
    item = one if isinstance(one, DeliverItem) else msgspec.convert(one, DeliverItem)
    if item.meta is not None:
        orjson.dumps(item.meta)  # its stored form: there is none of an integer beyond 64 bits, or of a deep nest
    return item


def parse_item(payload: bytes) -> SendItem:
    return msgspec.json.decode(payload, type=SendItem)


def retire_args(client_message_id: str, payload: bytes) -> dict[str, str]:
    """Return the arguments of the call that closes an id: which request is meant is said by its fingerprint."""
    return {"client_message_id": client_message_id, "fingerprint": parse_item(payload).fingerprint}
