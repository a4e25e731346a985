"""The inbox and the life of a message, as readers see them."""

from typing import Annotated, Any, Final, Literal

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.feed import parse_cursor
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.ports import InboxFilter, InboxMessage, InboxStore, Waits
from claudemesh.daemon.tracing import Trace
from claudemesh.kernel.errors import CursorAhead, CursorExpired, InvalidRequest, NotFound
from claudemesh.wire.instants import parse_instant, render_instant

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
WAITING_MAX: Final = 100
BEGINNING_CHARACTERS: Final = 200
ALERTING: Final = ("now", "next")  # in this order; `low` waits to be asked for, and is counted only

Limit = Annotated[int, msgspec.Meta(ge=1, description="At most so many; above 1,000 it is 1,000.")]


class InboxQuery(msgspec.Struct, frozen=True):
    since: str | None = None
    topic: str | None = None
    sender: str | None = msgspec.field(name="from", default=None)
    mentions: Literal["me"] | None = None
    unread: bool = False
    limit: Limit = LIMIT_DEFAULT
    cursor: str | None = None


class SearchQuery(msgspec.Struct, frozen=True):
    q: Annotated[str, msgspec.Meta(pattern=r"\S", description="Words, all of which a message must hold.")]
    limit: Limit = LIMIT_DEFAULT
    cursor: str | None = None


class ShownMessage(msgspec.Struct, frozen=True, kw_only=True):
    client_message_id: str
    broker_message_id: str
    history_id: int
    sender: str = msgspec.field(name="from")
    from_name: str
    topic: str | None
    body: str
    meta: dict[str, Any] | None
    priority: str
    reply_to_id: str | None
    to_session: str | None  # the key of the session that was meant, if one was
    accepted_at: str
    received_at: str
    read_at: str | None
    cursor: str


class ReadBody(msgspec.Struct, frozen=True):
    """Either the broker's ids of messages, or a cursor: everything up to it."""

    ids: list[str] | None = None
    upto: str | None = None


class Marked(msgspec.Struct, frozen=True):
    marked: int  # how many were not marked yet
    unread: int


class WaitingQuery(msgspec.Struct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, description="At most so many; above 100 it is 100.")] = 10


class ShownWaiting(msgspec.Struct, frozen=True, kw_only=True):
    broker_message_id: str
    sender: str = msgspec.field(name="from")
    from_name: str
    topic: str | None
    priority: str
    received_at: str
    age_s: int
    beginning: str  # of the body: at most 200 characters


class WaitingPage(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[ShownWaiting]
    unread: dict[str, int]  # all that is unread, by priority


class InboxPage(msgspec.Struct, frozen=True):
    messages: list[ShownMessage]
    next_cursor: str | None


def inbox_routes(parts: Parts) -> list[Route]:
    inbox = parts.inbox

    async def show(request: Request) -> Response:
        query: InboxQuery = request.query
        is_mine = query.mentions is not None
        wanted = InboxFilter(
            since_ms=None if query.since is None else parse_instant(query.since),
            topic=query.topic,
            sender=query.sender,
            mentions=parts.identity.keys.pubkey if is_mine else None,
            mentions_name=parts.identity.joined.name if is_mine else None,
            unread=query.unread,
        )
        return json_response(await _page(inbox, wanted, query.limit, query.cursor))

    async def search(request: Request) -> Response:
        query: SearchQuery = request.query
        if "\0" in query.q:
            raise InvalidRequest("no message holds a NUL")
        return json_response(await _page(inbox, InboxFilter(words=query.q), query.limit, query.cursor))

    async def waiting(request: Request) -> Response:
        query: WaitingQuery = request.query
        found = await inbox.waiting(ALERTING, min(query.limit, WAITING_MAX), BEGINNING_CHARACTERS)
        now_ms = parts.world.clock.wall_ms()
        return json_response(
            WaitingPage(messages=[_shown_waiting(one, now_ms) for one in found.messages], unread=found.unread)
        )

    async def one(request: Request) -> Response:
        message = await inbox.find(request.params["id"])
        if message is None:
            raise NotFound("the inbox has no message with this id")
        return json_response(shown_message(message, (await inbox.bounds()).epoch))

    async def read(request: Request) -> Response:
        marked = await _mark(inbox, request.body, parts.world.clock.wall_ms())
        if marked:
            parts.marks.wake()
        return json_response(Marked(marked, await inbox.unread()))

    async def trace(request: Request) -> Response:
        return json_response(await parts.tracing.trace(request.params["id"]))

    paging = (InvalidRequest, CursorAhead, CursorExpired)
    return [
        Route(
            method="GET",
            path="/v1/inbox",
            handler=show,
            summary="Messages that reached this member, oldest first. Reading marks nothing.",
            query=InboxQuery,
            response=InboxPage,
            errors=paging,
        ),
        Route(
            method="GET",
            path="/v1/inbox/search",
            handler=search,
            summary="Messages that hold all of these words, oldest first.",
            query=SearchQuery,
            response=InboxPage,
            errors=paging,
        ),
        Route(
            method="GET",
            path="/v1/inbox/waiting",
            handler=waiting,
            summary="What is unread and to be shown without being asked for, `now` before `next`. Marks nothing.",
            query=WaitingQuery,
            response=WaitingPage,
            errors=(InvalidRequest,),
        ),
        Route(
            method="GET",
            path="/v1/inbox/message/{id}",
            handler=one,
            summary="One message, by the broker's id. Reading marks nothing.",
            response=ShownMessage,
            errors=(NotFound,),
        ),
        Route(
            method="POST",
            path="/v1/inbox/read",
            handler=read,
            summary="Mark messages as read. Senders learn of it once the broker knows.",
            request=ReadBody,
            response=Marked,
            errors=paging,
        ),
        Route(
            method="GET",
            path="/v1/trace/{id}",
            handler=trace,
            summary="The life of one message, with evidence.",
            response=Trace,
            errors=(NotFound,),
        ),
    ]


async def _mark(inbox: InboxStore, body: ReadBody, now: int) -> int:
    if (body.ids is None) == (body.upto is None):
        raise InvalidRequest("give either ids or upto")
    if body.upto is not None:
        return await inbox.mark_read_upto(parse_cursor(body.upto, await inbox.bounds()), now)
    ids = body.ids or []
    if len(ids) > LIMIT_MAX:
        raise InvalidRequest(f"at most {LIMIT_MAX} ids at once, not {len(ids)}")
    return await inbox.mark_read(ids, now)


async def _page(inbox: InboxStore, wanted: InboxFilter, limit: int, cursor: str | None) -> InboxPage:
    bounds = await inbox.bounds()
    after = 0 if cursor is None else parse_cursor(cursor, bounds)
    size = min(limit, LIMIT_MAX)
    found = await inbox.page(wanted, after, size + 1)
    shown = [shown_message(message, bounds.epoch) for message in found[:size]]
    has_more = len(found) > size or bool(found and await inbox.page(wanted, found[-1].seq, 1))
    return InboxPage(shown, shown[-1].cursor if has_more else None)


def _shown_waiting(message: Waits, now_ms: int) -> ShownWaiting:
    return ShownWaiting(
        broker_message_id=message.broker_message_id,
        sender=message.sender_pubkey,
        from_name=message.sender_name,
        topic=message.topic,
        priority=message.priority,
        received_at=render_instant(message.received_at),
        age_s=max(now_ms - message.received_at, 0) // 1000,
        beginning=message.beginning,
    )


def shown_message(message: InboxMessage, epoch: str) -> ShownMessage:
    return ShownMessage(
        client_message_id=message.client_message_id,
        broker_message_id=message.broker_message_id,
        history_id=message.history_id,
        sender=message.sender_pubkey,
        from_name=message.sender_name,
        topic=message.topic,
        body=message.body,
        meta=message.meta,
        priority=message.priority,
        reply_to_id=message.reply_to or None,
        to_session=message.to_session,
        accepted_at=render_instant(message.accepted_at),
        received_at=render_instant(message.received_at),
        read_at=None if message.read_at is None else render_instant(message.read_at),
        cursor=f"{epoch}.{message.seq}",
    )
