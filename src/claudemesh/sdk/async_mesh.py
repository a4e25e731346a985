"""`AsyncMesh`, for programs with an event loop, and what it hands out: the twin of `mesh`, name by name."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.errors import MeshError, NotFound
from claudemesh.runtime.tokens import fresh_token
from claudemesh.sdk import asks, values, waiting
from claudemesh.sdk.asks import Ask
from claudemesh.sdk.find import Place, find
from claudemesh.sdk.plans import Plan, Plans
from claudemesh.sdk.values import (
    TIMEOUT_S,
    Draft,
    Health,
    Json,
    LeasedWork,
    Peer,
    Priority,
    ReceivedMessage,
    RegisteredSession,
    ReplyOptions,
    SendOptions,
    SendReceipt,
    State,
    StreamedEvent,
    TopicInfo,
    Trace,
)
from claudemesh.sdk.waiting import AsyncPool, AsyncStream

if TYPE_CHECKING:
    from claudemesh.sdk.memory import InMemory

T = TypeVar("T")


class AsyncMesh:
    """One mesh, through the daemon of this machine. Tasks may share it.

    It looks for the mesh when it is made, and for the daemon when it is used: NoDaemon if there is none. `timeout`
    is for each call that asks the daemon, its retries included. What it asks and is told is written down in a file,
    if `history` or CLAUDEMESH_HISTORY names one: `claudemesh pipeline check` reads it.
    """

    def __init__(
        self,
        mesh: str | None = None,
        *,
        home: Path | str | None = None,
        timeout: float = TIMEOUT_S,
        history: Path | str | None = None,
    ) -> None:
        self._begin(find(mesh, home, history), timeout)

    @classmethod
    def at(cls, place: Place, *, timeout: float = TIMEOUT_S) -> Self:
        """Return the mesh whose daemon is at a known place."""
        mesh = cls.__new__(cls)
        mesh._begin(place, timeout)  # noqa: SLF001 - its own
        return mesh

    def _begin(self, place: Place, timeout: float) -> None:
        self.slug = place.slug
        self._caller = AsyncCaller(AsyncPool(place.sock), Plans.real(timeout, place))

    @staticmethod
    def in_memory(*names: str) -> "InMemory[AsyncMesh]":
        """Return a whole mesh in this process, for tests; without names it is of `alice` and `bob`.

        async with AsyncMesh.in_memory("alice", "bob") as (alice, bob): ...
        """
        from claudemesh.sdk.memory import InMemory  # noqa: PLC0415 - it brings the servers along

        return InMemory(AsyncMesh.at, names)

    async def aclose(self) -> None:
        """Close the connections that are kept; may be called twice."""
        self.close()

    def close(self) -> None:
        """As `aclose`, which has nothing to wait for."""
        self._caller.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.slug!r})"

    # --- sending -----------------------------------------------------------------------------------

    async def send(  # noqa: PLR0913 - a send's own fields, all by name
        self,
        to: str,
        message: str,
        *,
        priority: Priority | None = None,
        meta: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        id: str | None = None,  # noqa: A002 - the word of the command line
        mentions: Sequence[str] = (),
    ) -> "AsyncReceipt":
        """Send to a member's name or public key, to `#topic`, or to `queue:NAME`; return when it is durable here.

        The id is made once, and all tries count as one. An error names it (`extras["client_message_id"]`): what may
        have been sent is sent again under that id, and is still sent once.
        """
        return await self._caller.send(
            Draft(to, message, priority=priority, meta=meta, reply_to=reply_to, id=id, mentions=mentions)
        )

    async def send_many(self, drafts: Iterable[Draft]) -> "list[AsyncReceipt | MeshError]":
        """Send any number; return for each, in order, its receipt or its error. One bad draft harms no other.

        What no daemon could accept is refused before the first is sent.
        """
        outcomes = await self._caller.run(self._caller.plans.send_many(drafts))
        return [one if isinstance(one, MeshError) else self._caller.receipt(one) for one in outcomes]

    async def trace(self, any_id: str) -> Trace:
        """Return the life of a message that was sent or received, by any of its ids."""
        return values.parse_trace(await self._caller.ask(asks.trace(any_id)))

    # --- receiving ---------------------------------------------------------------------------------

    def inbox(
        self,
        *,
        since: datetime | str | None = None,
        topic: str | None = None,
        sender: str | None = None,
        mentions_me: bool = False,
        unread: bool = False,
    ) -> "AsyncStream[AsyncMessage]":
        """Iterate over what was received, oldest first; it is fetched as it is needed, and nothing is marked."""
        query = asks.inbox_query(since=since, topic=topic, sender=sender, mentions_me=mentions_me)
        return self._caller.messages(self._caller.plans.pages("/v1/inbox", query, unread=unread))

    def search(self, words: str) -> "AsyncStream[AsyncMessage]":
        """Iterate over the messages that hold all of these words, oldest first."""
        return self._caller.messages(self._caller.plans.pages("/v1/inbox/search", {"q": words}))

    async def mark_read(self, messages: Iterable[ReceivedMessage | str]) -> None:
        """Mark messages as read, by themselves or by their broker message ids; their senders learn of it."""
        for ask in asks.mark_read(messages):
            await self._caller.ask(ask)

    def events(self, *, after: str | None = None, timeout: float | None = None) -> "AsyncStream[AsyncEvent]":
        """Return what happens from now on, or after an event's id; each once, also over a restart of the daemon.

        "Now" is when its context is entered or its `open` awaited, else when the first is asked for.
        DeadlineExceeded if nothing comes for `timeout` seconds.
        """
        caller = self._caller
        return AsyncStream(caller.pool, caller.plans.events(after, timeout), caller.event, opens=True)

    def messages(
        self,
        *,
        after: str | None = None,
        topic: str | None = None,
        sender: str | None = None,
        timeout: float | None = None,
    ) -> "AsyncStream[AsyncMessage]":
        """Return messages that arrive from now on, or after a message's cursor; as `events` otherwise."""
        return self._caller.messages(self._caller.plans.messages(after, topic, sender, timeout), opens=True)

    # --- who and what is there ---------------------------------------------------------------------

    async def peers(self, *, all: bool = False) -> list[Peer]:  # noqa: A002 - the word of the command line
        """Return who is there; with `all` everybody who is in the mesh."""
        return values.parse_peers(await self._caller.ask(asks.get("/v1/peers", {"all": all})))

    async def register_session(  # noqa: PLR0913 - what a session says of itself, all by name
        self,
        *,
        display_name: str | None = None,
        role: str | None = None,
        cwd: str | None = None,
        groups: Sequence[str] = (),
        topics: Sequence[str] = (),
        mcp_servers: Sequence[str] = (),
        token: str | None = None,
        pid: int | None = None,
    ) -> "AsyncSession":
        """Show a process, this one unless a `pid` is given, to the others as a session of this member.

        It is there until it is closed, its process is gone, or the daemon restarts. Registered again with its
        `token` it is the same session, under the same key; what is said of it then holds from then on.
        """
        chosen = token or fresh_token()
        said = {
            "display_name": display_name,
            "role": role,
            "cwd": cwd,
            "groups": groups,
            "topics": topics,
            "mcp_servers": mcp_servers,
        }
        answer = await self._caller.ask(asks.register_session(chosen, os.getpid() if pid is None else pid, said))
        return values.parse_session(partial(AsyncSession, _caller=self._caller), chosen, answer)

    async def topics(self) -> list[TopicInfo]:
        return values.parse_topics(await self._caller.ask(asks.get("/v1/topic/list")))

    def topic(self, name: str) -> "AsyncTopic":
        return AsyncTopic(asks.topic_name(name), _caller=self._caller)

    def queue(self, name: str) -> "AsyncQueue":
        return AsyncQueue(asks.queue_name(name), _caller=self._caller)

    async def health(self) -> Health:
        return values.parse_health(await self._caller.ask(asks.get("/v1/health")))


class AsyncCaller:
    """What a mesh and all that it hands out ask through."""

    def __init__(self, pool: AsyncPool, plans: Plans) -> None:
        self.pool = pool
        self.plans = plans

    async def run(self, plan: Plan[T]) -> T:
        return await waiting.run(self.pool, plan)

    async def ask(self, ask: Ask) -> Any:  # noqa: ANN401 - JSON is anything
        return await self.run(self.plans.ask(ask))

    async def send(self, draft: Draft) -> "AsyncReceipt":
        return self.receipt(await self.ask(asks.send(draft, self.plans.mint)))

    def messages(self, plan: Plan[None], *, opens: bool = False) -> "AsyncStream[AsyncMessage]":
        return AsyncStream(self.pool, plan, self.message, opens=opens)

    def receipt(self, answer: Json) -> "AsyncReceipt":
        return values.parse_receipt(partial(AsyncReceipt, _caller=self), answer)

    def message(self, answer: Json) -> "AsyncMessage":
        return values.parse_message(partial(AsyncMessage, _caller=self), answer)

    def event(self, event: StreamEvent) -> "AsyncEvent":
        return values.parse_event(partial(AsyncEvent, _caller=self), event.id, event.event, event.json)


# --- what it hands out -------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class AsyncReceipt(SendReceipt):
    _caller: AsyncCaller = field(repr=False, compare=False)

    async def trace(self) -> Trace:
        """Return the life of the message so far."""
        life = values.parse_trace(await self._caller.ask(asks.trace(self.client_message_id)))
        self.note(life)
        return life

    async def wait(self, state: State = "delivered", timeout: float = TIMEOUT_S) -> Self:  # noqa: ASYNC109 - its own
        """Return when the message is that far; of a topic's, when it is for every recipient.

        DeadlineExceeded if it is not in time, with the `state` it reached: it stays on its way. StateError if it
        will never be.
        """
        plan = self._caller.plans.wait(self.client_message_id, state, int(timeout * 1000))
        with self.noting():
            self.note(await self._caller.run(plan))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMessage(ReceivedMessage):
    _caller: AsyncCaller = field(repr=False, compare=False)

    async def ack(self) -> None:
        """Mark it as read; its sender learns of it."""
        for ask in asks.mark_read([self]):
            await self._caller.ask(ask)

    async def reply(self, message: str, **options: Unpack[ReplyOptions]) -> AsyncReceipt:
        """Answer it, to its sender or, if it was posted there, to its topic. It has been acted on then."""
        return await self._caller.send(self.draft_reply(message, **options))


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncEvent(StreamedEvent):
    _caller: AsyncCaller = field(repr=False, compare=False)

    @property
    def message(self) -> AsyncMessage | None:
        """The message, of an event of the type `message`."""
        return self._caller.message(dict(self.data)) if self.type == "message" else None


@dataclass(slots=True, kw_only=True, eq=False)
class AsyncSession(RegisteredSession):
    _caller: AsyncCaller = field(repr=False)

    async def aclose(self) -> None:
        """End it; the others see it leave. May be called twice."""
        if self.is_closed:
            return
        with suppress(NotFound):  # it may have ended already, with a restart of the daemon, say
            await self._caller.ask(asks.end_session(self.token))
        self.is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class AsyncTopic:
    name: str
    _caller: AsyncCaller = field(repr=False, kw_only=True)

    async def create(self) -> Self:
        """Make it, unless it is there."""
        return await self._do("create")

    async def subscribe(self) -> Self:
        """Receive what is posted from now on. Only subscribers post."""
        return await self._do("subscribe")

    async def unsubscribe(self) -> Self:
        return await self._do("unsubscribe")

    async def post(self, message: str, **options: Unpack[SendOptions]) -> AsyncReceipt:
        return await self._caller.send(Draft(asks.TOPIC_MARK + self.name, message, **options))

    async def _do(self, verb: str) -> Self:
        await self._caller.ask(asks.on_topic(verb, self.name))
        return self


@dataclass(frozen=True, slots=True)
class AsyncQueue:
    name: str
    _caller: AsyncCaller = field(repr=False, kw_only=True)

    async def create(self) -> Self:
        """Make it, unless it is there."""
        await self._caller.ask(asks.create_queue(self.name))
        return self

    async def put(self, message: str, **options: Unpack[SendOptions]) -> AsyncReceipt:
        return await self._caller.send(Draft(asks.QUEUE_MARK + self.name, message, **options))

    async def work(self) -> "AsyncWork | None":
        """Lease the next message, if any. As a context it is acked at the end, or given back on an error."""
        leased = await self._caller.ask(asks.work(self.name))
        make = partial(AsyncWork, _caller=self._caller)
        return None if leased is None else values.parse_work(make, self.name, leased)


@dataclass(slots=True, kw_only=True, eq=False)
class AsyncWork(LeasedWork):
    _caller: AsyncCaller = field(repr=False)

    async def ack(self) -> None:
        """Say that it is done. LeaseLost if it is somebody else's by now: then it is not."""
        await self._caller.ask(asks.ack(*self.claim))
        self.is_settled = True

    async def hand_over(self) -> None:
        """Say that a ledger has it for good: nobody else gets it. It is acted with our reply to it, or with an ack.

        Only a reply that is sent after this counts. LeaseLost if it is somebody else's by now.
        """
        await self._caller.ask(asks.ack(*self.claim, handed_over=True))
        self.is_settled = True

    async def nack(self) -> None:
        """Give it back, for the next worker."""
        await self._caller.ask(asks.nack(*self.claim))
        self.is_settled = True

    async def renew(self) -> datetime:
        """Hold the lease longer; return until when."""
        self.lease_expires_at = values.parse_renewal(await self._caller.ask(asks.renew(*self.claim)))
        return self.lease_expires_at

    async def reply(self, message: str, **options: Unpack[ReplyOptions]) -> AsyncReceipt:
        """Send its sender an answer."""
        return await self._caller.send(self.draft_reply(message, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self.is_settled:
            return
        if error is None:
            await self.ack()
            return
        try:
            await self.nack()
        except MeshError as failed:
            error.add_note(self.explain_kept(failed))
