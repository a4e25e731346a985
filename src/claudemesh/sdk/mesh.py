"""`Mesh`, for programs without an event loop, and what it hands out. What to ask and when is in `plans`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.errors import MeshError, NotFound
from claudemesh.runtime.tokens import fresh_token
from claudemesh.sdk import asks, blocking, values
from claudemesh.sdk.asks import Ask
from claudemesh.sdk.blocking import Stream
from claudemesh.sdk.find import Place, find
from claudemesh.sdk.plans import Plan, Plans
from claudemesh.sdk.sockets import Pool
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

if TYPE_CHECKING:
    from claudemesh.sdk.memory import InMemory

T = TypeVar("T")


class Mesh:
    """One mesh, through the daemon of this machine. Threads may share it.

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
        self._caller = Caller(Pool(place.sock), Plans.real(timeout, place))

    @staticmethod
    def in_memory(*names: str) -> "InMemory[Mesh]":
        """Return a whole mesh in this process, for tests; without names it is of `alice` and `bob`.

        with Mesh.in_memory("alice", "bob") as (alice, bob): ...
        """
        from claudemesh.sdk.memory import InMemory  # noqa: PLC0415 - it brings the servers along

        return InMemory(Mesh.at, names)

    def close(self) -> None:
        """Close the connections that are kept; may be called twice."""
        self._caller.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.slug!r})"

    # --- sending -----------------------------------------------------------------------------------

    def send(  # noqa: PLR0913 - a send's own fields, all by name
        self,
        to: str,
        message: str,
        *,
        priority: Priority | None = None,
        meta: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        id: str | None = None,  # noqa: A002 - the word of the command line
        mentions: Sequence[str] = (),
    ) -> "Receipt":
        """Send to a member's name or public key, to `#topic`, or to `queue:NAME`; return when it is durable here.

        The id is made once, and all tries count as one. An error names it (`extras["client_message_id"]`): what may
        have been sent is sent again under that id, and is still sent once.
        """
        return self._caller.send(
            Draft(to, message, priority=priority, meta=meta, reply_to=reply_to, id=id, mentions=mentions)
        )

    def send_many(self, drafts: Iterable[Draft]) -> "list[Receipt | MeshError]":
        """Send any number; return for each, in order, its receipt or its error. One bad draft harms no other.

        What no daemon could accept is refused before the first is sent.
        """
        outcomes = self._caller.run(self._caller.plans.send_many(drafts))
        return [one if isinstance(one, MeshError) else self._caller.receipt(one) for one in outcomes]

    def trace(self, any_id: str) -> Trace:
        """Return the life of a message that was sent or received, by any of its ids."""
        return values.parse_trace(self._caller.ask(asks.trace(any_id)))

    # --- receiving ---------------------------------------------------------------------------------

    def inbox(
        self,
        *,
        since: datetime | str | None = None,
        topic: str | None = None,
        sender: str | None = None,
        mentions_me: bool = False,
        unread: bool = False,
    ) -> "Iterator[Message]":
        """Iterate over what was received, oldest first; it is fetched as it is needed, and nothing is marked."""
        query = asks.inbox_query(since=since, topic=topic, sender=sender, mentions_me=mentions_me)
        return self._caller.messages(self._caller.plans.pages("/v1/inbox", query, unread=unread))

    def search(self, words: str) -> "Iterator[Message]":
        """Iterate over the messages that hold all of these words, oldest first."""
        return self._caller.messages(self._caller.plans.pages("/v1/inbox/search", {"q": words}))

    def mark_read(self, messages: Iterable[ReceivedMessage | str]) -> None:
        """Mark messages as read, by themselves or by their broker message ids; their senders learn of it."""
        for ask in asks.mark_read(messages):
            self._caller.ask(ask)

    def events(self, *, after: str | None = None, timeout: float | None = None) -> "Stream[Event]":
        """Return what happens from now on, or after an event's id; each once, also over a restart of the daemon.

        DeadlineExceeded if nothing comes for `timeout` seconds.
        """
        caller = self._caller
        return Stream(caller.pool, caller.plans.events(after, timeout), caller.event).opened()

    def messages(
        self,
        *,
        after: str | None = None,
        topic: str | None = None,
        sender: str | None = None,
        timeout: float | None = None,
    ) -> "Stream[Message]":
        """Return messages that arrive from now on, or after a message's cursor; as `events` otherwise."""
        return self._caller.messages(self._caller.plans.messages(after, topic, sender, timeout)).opened()

    # --- who and what is there ---------------------------------------------------------------------

    def peers(self, *, all: bool = False) -> list[Peer]:  # noqa: A002 - the word of the command line
        """Return who is there; with `all` everybody who is in the mesh."""
        return values.parse_peers(self._caller.ask(asks.get("/v1/peers", {"all": all})))

    def register_session(  # noqa: PLR0913 - what a session says of itself, all by name
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
    ) -> "Session":
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
        answer = self._caller.ask(asks.register_session(chosen, os.getpid() if pid is None else pid, said))
        return values.parse_session(partial(Session, _caller=self._caller), chosen, answer)

    def topics(self) -> list[TopicInfo]:
        return values.parse_topics(self._caller.ask(asks.get("/v1/topic/list")))

    def topic(self, name: str) -> "Topic":
        return Topic(asks.topic_name(name), _caller=self._caller)

    def queue(self, name: str) -> "Queue":
        return Queue(asks.queue_name(name), _caller=self._caller)

    def health(self) -> Health:
        return values.parse_health(self._caller.ask(asks.get("/v1/health")))


class Caller:
    """What a mesh and all that it hands out ask through."""

    def __init__(self, pool: Pool, plans: Plans) -> None:
        self.pool = pool
        self.plans = plans

    def run(self, plan: Plan[T]) -> T:
        return blocking.run(self.pool, plan)

    def ask(self, ask: Ask) -> Any:  # noqa: ANN401 - JSON is anything
        return self.run(self.plans.ask(ask))

    def send(self, draft: Draft) -> "Receipt":
        return self.receipt(self.ask(asks.send(draft, self.plans.mint)))

    def messages(self, plan: Plan[None]) -> "Stream[Message]":
        return Stream(self.pool, plan, self.message)

    def receipt(self, answer: Json) -> "Receipt":
        return values.parse_receipt(partial(Receipt, _caller=self), answer)

    def message(self, answer: Json) -> "Message":
        return values.parse_message(partial(Message, _caller=self), answer)

    def event(self, event: StreamEvent) -> "Event":
        return values.parse_event(partial(Event, _caller=self), event.id, event.event, event.json)


# --- what it hands out -------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Receipt(SendReceipt):
    _caller: Caller = field(repr=False, compare=False)

    def trace(self) -> Trace:
        """Return the life of the message so far."""
        life = values.parse_trace(self._caller.ask(asks.trace(self.client_message_id)))
        self.note(life)
        return life

    def wait(self, state: State = "delivered", timeout: float = TIMEOUT_S) -> Self:
        """Return when the message is that far; of a topic's, when it is for every recipient.

        DeadlineExceeded if it is not in time, with the `state` it reached: it stays on its way. StateError if it
        will never be.
        """
        plan = self._caller.plans.wait(self.client_message_id, state, int(timeout * 1000))
        with self.noting():
            self.note(self._caller.run(plan))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(ReceivedMessage):
    _caller: Caller = field(repr=False, compare=False)

    def ack(self) -> None:
        """Mark it as read; its sender learns of it."""
        for ask in asks.mark_read([self]):
            self._caller.ask(ask)

    def reply(self, message: str, **options: Unpack[ReplyOptions]) -> Receipt:
        """Answer it, to its sender or, if it was posted there, to its topic. It has been acted on then."""
        return self._caller.send(self.draft_reply(message, **options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(StreamedEvent):
    _caller: Caller = field(repr=False, compare=False)

    @property
    def message(self) -> Message | None:
        """The message, of an event of the type `message`."""
        return self._caller.message(dict(self.data)) if self.type == "message" else None


@dataclass(slots=True, kw_only=True, eq=False)
class Session(RegisteredSession):
    _caller: Caller = field(repr=False)

    def close(self) -> None:
        """End it; the others see it leave. May be called twice."""
        if self.is_closed:
            return
        with suppress(NotFound):  # it may have ended already, with a restart of the daemon, say
            self._caller.ask(asks.end_session(self.token))
        self.is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    _caller: Caller = field(repr=False, kw_only=True)

    def create(self) -> Self:
        """Make it, unless it is there."""
        return self._do("create")

    def subscribe(self) -> Self:
        """Receive what is posted from now on. Only subscribers post."""
        return self._do("subscribe")

    def unsubscribe(self) -> Self:
        return self._do("unsubscribe")

    def post(self, message: str, **options: Unpack[SendOptions]) -> Receipt:
        return self._caller.send(Draft(asks.TOPIC_MARK + self.name, message, **options))

    def _do(self, verb: str) -> Self:
        self._caller.ask(asks.on_topic(verb, self.name))
        return self


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    _caller: Caller = field(repr=False, kw_only=True)

    def create(self) -> Self:
        """Make it, unless it is there."""
        self._caller.ask(asks.create_queue(self.name))
        return self

    def put(self, message: str, **options: Unpack[SendOptions]) -> Receipt:
        return self._caller.send(Draft(asks.QUEUE_MARK + self.name, message, **options))

    def work(self) -> "Work | None":
        """Lease the next message, if any. As a context it is acked at the end, or given back on an error."""
        leased = self._caller.ask(asks.work(self.name))
        make = partial(Work, _caller=self._caller)
        return None if leased is None else values.parse_work(make, self.name, leased)


@dataclass(slots=True, kw_only=True, eq=False)
class Work(LeasedWork):
    _caller: Caller = field(repr=False)

    def ack(self) -> None:
        """Say that it is done. LeaseLost if it is somebody else's by now: then it is not."""
        self._caller.ask(asks.ack(*self.claim))
        self.is_settled = True

    def hand_over(self) -> None:
        """Say that a ledger has it for good: nobody else gets it. It is acted with our reply to it, or with an ack.

        Only a reply that is sent after this counts. LeaseLost if it is somebody else's by now.
        """
        self._caller.ask(asks.ack(*self.claim, handed_over=True))
        self.is_settled = True

    def nack(self) -> None:
        """Give it back, for the next worker."""
        self._caller.ask(asks.nack(*self.claim))
        self.is_settled = True

    def renew(self) -> datetime:
        """Hold the lease longer; return until when."""
        self.lease_expires_at = values.parse_renewal(self._caller.ask(asks.renew(*self.claim)))
        return self.lease_expires_at

    def reply(self, message: str, **options: Unpack[ReplyOptions]) -> Receipt:
        """Send its sender an answer."""
        return self._caller.send(self.draft_reply(message, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self.is_settled:
            return
        if error is None:
            self.ack()
            return
        try:
            self.nack()
        except MeshError as failed:
            error.add_note(self.explain_kept(failed))
