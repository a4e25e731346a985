"""What each tool takes. A field says what it is for; what is not listed here is refused."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 50
BODY_CHARS: Final = 500
BODY_CHARS_MAX: Final = 20_000
WAIT_S_MAX: Final = 60.0

Key = Annotated[
    str,
    Meta(
        pattern=r"^[!-~]{1,128}(?!\n)$",
        description="Makes a retry count once: the same key with the same arguments is answered as the first time, "
        "with other arguments it is refused. Without one a key is made, and returned for a retry.",
    ),
]
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="At most so many entries.")]
CURSOR_CHARS_MAX: Final = 200
Cursor = Annotated[str, Meta(max_length=CURSOR_CHARS_MAX, description="The next_cursor of the page before.")]
BodyFrom = Annotated[int, Meta(ge=0, description="Show the body from this character on.")]
BodyChars = Annotated[
    int, Meta(ge=1, le=BODY_CHARS_MAX, description="Show at most so many characters of a body; the rest is marked.")
]
Source = Annotated[
    str,
    Meta(
        pattern="^(queue:|ledger:).+$",
        max_length=300,
        description="Where the work is: queue:NAME of the mesh, or ledger:RUN of a ledger file.",
    ),
]
LedgerPath = Annotated[
    str, Meta(min_length=1, description="The ledger's file; without it the one in the home of claudemesh.")
]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is common to all: nothing."""


class Keyed(Arguments, frozen=True, kw_only=True):
    idempotency_key: Key | None = None


class Send(Keyed, frozen=True, kw_only=True):
    to: Annotated[str, Meta(min_length=1, description="A member's name or public key, #topic, or queue:NAME.")]
    message: str
    priority: Annotated[
        Literal["now", "next", "low"] | None,
        Meta(description="How the receiver is alerted. It never reorders and never drops."),
    ] = None
    meta: Annotated[dict[str, Any] | None, Meta(description="A JSON object that travels along.")] = None
    reply_to: Annotated[
        str | None, Meta(description="The id of the message that this answers; that one is then acted.")
    ] = None
    mentions: Annotated[list[str], Meta(max_length=50, description="Members named in a message to a #topic.")] = []
    wait: Annotated[
        Literal["accepted", "delivered", "read"] | None,
        Meta(description="Wait until it is that far, for at most timeout_s; else return at once."),
    ] = None
    timeout_s: Annotated[float, Meta(gt=0, le=WAIT_S_MAX, description="How long to wait.")] = 10.0


class Inbox(Arguments, frozen=True, kw_only=True):
    id: Annotated[
        str | None, Meta(description="Only this message, by its id, with a longer piece of its body.")
    ] = None
    unread_only: Annotated[
        bool | None,
        Meta(description="Leave out what was marked as read; so it is unless this is false, or search."),
    ] = None
    search: (
        Annotated[
            str, Meta(min_length=1, description="Words that a message must hold: of all, and no other filter.")
        ]
        | None
    ) = None
    topic: str | None = None
    sender: Annotated[str | None, Meta(description="A member's name or public key.")] = None
    mentions_me: bool = False
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    body_from: BodyFrom = 0
    body_chars: BodyChars | None = None


class Ack(Keyed, frozen=True, kw_only=True):
    ids: Annotated[
        list[str], Meta(min_length=1, max_length=1000, description="Ids of messages, as inbox shows them.")
    ]


class Peers(Arguments, frozen=True, kw_only=True):
    everyone: Annotated[
        bool, Meta(description="Also who is away, and what becomes of a message that is sent to them now.")
    ] = False
    limit: Limit = 20
    cursor: Cursor | None = None


class Status(Arguments, frozen=True, kw_only=True):
    cursor: Cursor | None = None
    limit: Limit = LIMIT_DEFAULT


class Trace(Arguments, frozen=True, kw_only=True):
    id: Annotated[str, Meta(min_length=1, description="Any id of a message: idempotency key, row, or message id.")]


class Requeue(Keyed, frozen=True, kw_only=True):
    id: Annotated[str, Meta(min_length=1, description="The dead or pending row, as status shows it.")]
    to: Annotated[str | None, Meta(description="Send it to somebody else.")] = None
    message: Annotated[str | None, Meta(description="Say something else.")] = None
    force: Annotated[
        bool, Meta(description="Also while only the broker knows whether it arrived: risks a second message.")
    ] = False


class Claim(Keyed, frozen=True, kw_only=True):
    source: Source
    ttl_s: Annotated[
        float, Meta(ge=1, le=86_400, description="How long the lease of a ledger's step holds. A queue's is 300 s.")
    ] = 300.0
    ledger: LedgerPath | None = None
    body_from: Annotated[
        int,
        Meta(ge=0, description="Of work that was claimed under this key before: show it from this character on."),
    ] = 0
    body_chars: BodyChars = BODY_CHARS_MAX


class Complete(Keyed, frozen=True, kw_only=True):
    source: Source
    id: Annotated[str, Meta(min_length=1, description="The work's id, as claim told it.")]
    token: Annotated[int, Meta(ge=0, description="The lease's fencing token, as claim told it.")]
    worker_id: Annotated[str | None, Meta(description="As claim told it; of a ledger only.")] = None
    outcome: Annotated[
        Literal["done", "failed", "aborted", "give_back", "renew"],
        Meta(
            description="done; failed or aborted (ledger only); give_back to the next worker (queue only); "
            "renew, to hold the lease longer."
        ),
    ] = "done"
    result: Annotated[Any, Meta(description="Of a ledger: what the receipt says, as JSON.")] = None
    ttl_s: Annotated[float, Meta(ge=1, le=86_400, description="Of a renewal in a ledger.")] = 300.0
    ledger: LedgerPath | None = None


class Write(Keyed, frozen=True, kw_only=True):
    method: Literal["POST", "PATCH", "PUT", "DELETE"] = "POST"
    path: Annotated[
        str, Meta(pattern=r"^/[!-~]*(?!\n)$", max_length=2000, description="Below the hub's address: /progress/")
    ]
    body: Annotated[Any, Meta(description="The JSON body.")] = None
    if_match: (
        Annotated[
            str,
            Meta(
                pattern=r"^[!-~]+(?!\n)$",
                max_length=256,
                description="The ETag that the row is expected to have. Without one a change cannot wait.",
            ),
        ]
        | None
    ) = None


class Conflicts(Keyed, frozen=True, kw_only=True):
    id: Annotated[str | None, Meta(description="Only this one, whole.")] = None
    keep: Annotated[
        Literal["mine", "theirs"] | None,
        Meta(description="With id: write ours over what was seen there, or give ours up. Without it: only look."),
    ] = None
    limit: Limit = 5
    cursor: Cursor | None = None


class Topics(Keyed, frozen=True, kw_only=True):
    action: Literal["list", "create", "join", "leave"] = "list"
    name: (
        Annotated[str, Meta(max_length=140, description="A topic; or queue:NAME, to create a work queue.")] | None
    ) = None
    limit: Limit = 20
    cursor: Cursor | None = None
