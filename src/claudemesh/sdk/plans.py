"""What to ask next, when to wait and when to give up: the decisions of the SDK, without any IO.

A plan is a generator. It yields steps; whoever runs it does them, and sends back what came of it or throws the
error in. `blocking` does so on a thread and `waiting` in an event loop, and both decide alike. The steps:

    Exchange   one request and its answer, by a deadline        -> the answer
    Listen     open a stream of events; a former one is closed  -> nothing, once it is open
    Hear       wait for something on it                         -> Heard, or None: the stream is over
    Pause      let time pass
    Emit       a value for the caller; what follows happens when it asks for the next
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from claudemesh.daemon.client import mint_id
from claudemesh.daemon.client.http1 import Query, StreamEvent, render_request
from claudemesh.daemon.client.recording import Note, Told, open_recorder, unheard, unrecorded
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import (
    DeadlineExceeded,
    DependencyError,
    InvalidRequest,
    MeshError,
    NoDaemon,
    RateLimited,
    StateError,
)
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.sdk import asks
from claudemesh.sdk.asks import Ask
from claudemesh.sdk.find import Place
from claudemesh.sdk.values import STATES, Draft, Json, State, Trace, parse_trace, reading
from claudemesh.wire import problem

PAGE: Final = 100
LOOK_MS: Final = 1_000  # for a look that is due, also when there is hardly any time left
POLL_MS: Final = 10  # at first; then half as long again each time
POLL_MAX_MS: Final = 1_000
POLL_LISTENING_MAX_MS: Final = 5_000  # events tell: looking is for the one that got lost
RETURN_PAUSE_MAX_MS: Final = 5_000
AWAY_MAX_MS: Final = 300_000  # how long a daemon may be gone before a stream ends with an error

_ENDED: Final = frozenset({"dead", "aborted", "dead_letter"})
_GONE: Final = (NoDaemon, DependencyError, RateLimited)


class Exchange(NamedTuple):
    request: bytes
    deadline_ms: int


class Listen(NamedTuple):
    after: str
    deadline_ms: int


class Hear(NamedTuple):
    within_ms: int | None


class Pause(NamedTuple):
    ms: int


class Emit(NamedTuple):
    value: Any


class Heard(NamedTuple):
    """What came; nothing, if there was only a sign of life or time is up. `position` is where it stands now."""

    events: list[StreamEvent]
    position: str


Step = Exchange | Listen | Hear | Pause | Emit

T = TypeVar("T")
Plan = Generator[Step, Any, T]

OPEN: Final = object()  # emitted once, when a stream stands


class Course:
    """A plan on its way: which step is due. One that was interrupted stays due, so that nothing is skipped."""

    def __init__(self, plan: Plan[Any]) -> None:
        self._plan = plan
        self._resume: Callable[[], Step] = partial(next, plan)
        self._due: Step | None = None

    def due(self) -> Step:
        """Return the step to do now; StopIteration, with the plan's result, at its end."""
        if self._due is None:
            resume, self._resume = self._resume, partial(next, self._plan)  # what ended with an error has ended
            self._due = resume()
        return self._due

    def done(self, answer: object = None) -> None:
        self._due, self._resume = None, partial(self._plan.send, answer)

    def failed(self, error: MeshError) -> None:
        self._due, self._resume = None, partial(self._plan.throw, error)

    def close(self) -> None:
        self._plan.close()


@dataclass(frozen=True, slots=True)
class Plans:
    clock: Clock
    roll: Callable[[], float]
    mint: Callable[[], str]
    timeout_ms: int
    record: Callable[[str, object], AbstractContextManager[Told]] = unrecorded
    listening: Callable[[], Note] = unheard

    @classmethod
    def real(cls, timeout_s: float, place: Place) -> Self:
        plans = cls(SystemClock(), roll, mint_id, int(timeout_s * 1000))
        if place.history is None:
            return plans
        recorder = open_recorder(place.history, place.sock)
        return replace(plans, record=recorder.call, listening=recorder.listening)

    # --- asking ------------------------------------------------------------------------------------

    def ask(self, ask: Ask, deadline_ms: int | None = None) -> Plan[Any]:
        """Ask, and where it may be, ask again until there is an answer or no time."""
        request = render_request(ask.method, ask.path, ask.body, ask.query)
        by_ms = self._now() + self.timeout_ms if deadline_ms is None else deadline_ms
        attempts = 0
        unknown: MeshError | None = None
        while True:
            try:
                with self.record(ask.path, ask.body) as told:
                    answer = yield Exchange(request, by_ms)
                    told(answer)
            except MeshError as error:
                error.extras = {**ask.names, **error.extras}
                # A daemon that was there may just be coming back; one that never was is the caller's to start.
                is_away = unknown is not None and isinstance(error, NoDaemon)
                if not is_away and not ask.may_repeat_after(error):
                    raise
                unknown = unknown if is_away else error
                attempts += 1
                wait_ms = self._backoff_ms(attempts, error)
                if self._now() + wait_ms >= by_ms:
                    if unknown is None or unknown is error:
                        raise
                    raise unknown from error
            else:
                return answer
            yield Pause(wait_ms)

    def send_many(self, drafts: Iterable[Draft]) -> Plan[list[Json | MeshError]]:
        """Return an answer or an error for each. As long as no batch was answered, an error is raised."""
        outcomes: list[Json | MeshError] = []
        failed: MeshError | None = None
        for batch in asks.send_batches(drafts, self.mint):
            ids = batch.names["client_message_ids"]
            if failed is None:
                try:
                    answer = yield from self.ask(batch)
                except MeshError as error:
                    if not outcomes:
                        raise
                    failed = error
                else:
                    with reading("answer to a batch"):
                        outcomes += [_outcome(one) for one in answer["outcomes"]]
                    continue
            outcomes += [failed] * len(ids if isinstance(ids, list) else ())
        return outcomes

    def pages(self, path: str, query: Query, *, unread: bool = False) -> Plan[None]:
        """Emit the messages of all pages. Each page is asked for when it is needed."""
        cursor: str | None = None
        while True:
            page = yield from self.ask(asks.get(path, {**query, "limit": PAGE, "cursor": cursor}))
            with reading("page of messages"):
                messages, cursor = page["messages"], page["next_cursor"]
            for message in messages:
                if not (unread and message.get("read_at")):
                    yield Emit(message)
            if cursor is None:
                return

    # --- waiting for a message to get somewhere ----------------------------------------------------

    def wait(self, client_message_id: str, wanted: State, timeout_ms: int) -> Plan[Trace]:
        """Look how far a message is until it is as far as wanted. Events say when to look; the look decides.

        DeadlineExceeded with the `state` that was reached, StateError if it will not get there.
        """
        if wanted not in STATES:
            raise InvalidRequest(f"a message is never {wanted!r}, but {', '.join(STATES)}")
        deadline_ms = self._now() + timeout_ms
        state = "queued"
        error: MeshError | None = None
        is_listening, looks = False, 0
        while True:
            try:
                life = yield from self._look(client_message_id, max(deadline_ms, self._now() + LOOK_MS))
            except _GONE as away:  # it may come back, and knows of the message then
                error = away
            else:
                state, error = life.state, None
                if judge_reached(life, wanted):
                    return life
            left_ms = deadline_ms - self._now()
            if left_ms <= 0:
                raise DeadlineExceeded(
                    f"the message is {state}; {wanted} did not come in time, and it stays on its way",
                    client_message_id=client_message_id,
                    state=state,
                    waited_for=wanted,
                ) from error
            looks += 1
            poll_ms = min(_poll_ms(looks, is_listening=is_listening), left_ms)
            if is_listening:
                is_listening = yield from self._hint(client_message_id, poll_ms)
            else:
                is_listening = yield from self._listen_if_possible(left_ms)
                if is_listening:
                    continue  # look once more: what happened before the stream stood is not on it
            if not is_listening:
                yield Pause(poll_ms)

    def _look(self, client_message_id: str, deadline_ms: int) -> Plan[Trace]:
        return parse_trace((yield from self.ask(asks.trace(client_message_id), deadline_ms)))

    def _listen_if_possible(self, left_ms: int) -> Plan[bool]:
        try:
            yield Listen("", self._now() + left_ms)
        except _GONE:
            return False
        return True

    def _hint(self, client_message_id: str, within_ms: int) -> Plan[bool]:
        """Return when something was said of the message, or time is up; False if the stream is over."""
        until_ms = self._now() + within_ms
        while (left_ms := until_ms - self._now()) > 0:
            heard: Heard | None = yield Hear(left_ms)
            if heard is None:
                return False
            if any(_names(event, client_message_id) for event in heard.events):
                break
        return True

    # --- following what happens --------------------------------------------------------------------

    def events(self, after: str | None, silence_s: float | None) -> Plan[None]:
        """Emit OPEN, then events as they happen, each once, also over a restart of the daemon.

        DeadlineExceeded if nothing comes for so long.
        """
        return self._follow(after, silence_s, lambda event: event)

    def messages(
        self, after: str | None, topic: str | None, sender: str | None, silence_s: float | None
    ) -> Plan[None]:
        """As `events`, with the messages among them that are wanted."""
        return self._follow(after, silence_s, lambda event: _message(event, topic, sender))

    def _follow(
        self, after: str | None, silence_s: float | None, choose: Callable[[StreamEvent], object]
    ) -> Plan[None]:
        silence_ms = None if silence_s is None else int(silence_s * 1000)
        position = after or ""
        note = self.listening()
        yield Listen(position, self._now() + self.timeout_ms)
        yield Emit(OPEN)
        until_ms = self._until(silence_ms)
        while True:
            heard: Heard | None = yield Hear(self._left(until_ms))
            if heard is None:
                yield from self._return(position, until_ms)
                continue
            for event in heard.events:
                note(event)
                if chosen := choose(event):
                    yield Emit(chosen)
                    until_ms = self._until(silence_ms)
            position = heard.position or position

    def _return(self, position: str, until_ms: int | None) -> Plan[None]:
        """Open the stream again where it broke off."""
        away_until_ms = self._now() + AWAY_MAX_MS
        failures = 0
        while True:
            failures += 1
            wait_ms = min(self._backoff_ms(failures), RETURN_PAUSE_MAX_MS)
            left_ms = self._left(until_ms)
            yield Pause(wait_ms if left_ms is None else min(wait_ms, left_ms))
            try:
                yield Listen(position, self._now() + self.timeout_ms)
            except _GONE:
                if self._now() >= away_until_ms:
                    raise
            else:
                return

    def _until(self, silence_ms: int | None) -> int | None:
        return None if silence_ms is None else self._now() + silence_ms

    def _left(self, until_ms: int | None) -> int | None:
        if until_ms is None:
            return None
        left_ms = until_ms - self._now()
        if left_ms <= 0:
            raise DeadlineExceeded("nothing came in time")
        return left_ms

    # --- time --------------------------------------------------------------------------------------

    def _now(self) -> int:
        return self.clock.monotonic_ms()

    def _backoff_ms(self, attempts: int, error: MeshError | None = None) -> int:
        after_ms = None if error is None else error.extras.get("retry_after_ms")
        return derive_backoff_ms(attempts, self.roll(), after_ms if isinstance(after_ms, int) else None)


def judge_reached(life: Trace, wanted: State) -> bool:
    """Say whether the message is as far as wanted; StateError if it will never be."""
    if life.state in STATES:
        return STATES.index(life.state) >= STATES.index(wanted)
    if life.state not in _ENDED:
        return False  # a word of a newer daemon
    if wanted == "accepted" and life.broker_message_id is not None:
        return True  # it was, whatever became of it then
    because = next((step.evidence for step in reversed(life.steps) if step.state in _ENDED), "")
    raise StateError(
        f"the message is {life.state} and will not be {wanted}: {because or 'no reason was kept'}",
        client_message_id=life.client_message_id,
        state=life.state,
        waited_for=wanted,
        reason=because,
    )


def _message(event: StreamEvent, topic: str | None, sender: str | None) -> Json | None:
    if event.event != "message":
        return None
    message = event.json
    is_there = topic is None or message.get("topic") == asks.topic_name(topic)
    is_theirs = sender is None or sender in (message.get("from"), message.get("from_name"))
    return message if is_there and is_theirs else None


def _names(event: StreamEvent, client_message_id: str) -> bool:
    """Say whether an event may be of this message. A message that is told of has its id; a new connection, any."""
    if event.event in ("receipt", "outbox_dead"):
        return event.json.get("client_message_id") == client_message_id
    return event.event == "daemon_reconnect"


def _poll_ms(looks: int, *, is_listening: bool) -> int:
    longest_ms = POLL_LISTENING_MAX_MS if is_listening else POLL_MAX_MS
    return min(int(POLL_MS * 1.5 ** min(looks - 1, 32)), longest_ms)


def _outcome(one: Mapping[str, Any]) -> Json | MeshError:
    status: int = one["http_status"]
    return dict(one) if status < 400 else problem.parse(status, dict(one))  # noqa: PLR2004 - HTTP's own range
