"""A daemon and a clock that exist only in a test, to run plans against: nothing waits, and every step is noted."""

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.errors import MeshError
from claudemesh.sdk.plans import Course, Emit, Exchange, Hear, Heard, Listen, Pause, Plan, Plans, Step

T = TypeVar("T")
Answer = Any  # what comes back, an error to raise, or a function that says


class Stage:
    """Answers from lists; the last one stays. `heard` is what the stream brings, and when that is all, silence."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.jitter = 0.5
        self.ids = iter(f"id-{number}" for number in range(1, 1_000_000))
        self.exchanges: list[Answer] = []
        self.listens: list[Answer] = [None]
        self.heard: deque[list[StreamEvent] | None] = deque()
        self.steps: list[Step] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    @property
    def plans(self) -> Plans:
        return Plans(self, lambda: self.jitter, lambda: next(self.ids), 30_000)

    def run(self, plan: Plan[T]) -> T:
        *emitted, result = [*self._drive(plan)]
        assert emitted == []
        found: T = result
        return found

    def take(self, plan: Plan[Any], count: int) -> list[Any]:
        """Return the first values that a plan emits."""
        driven = self._drive(plan)
        taken = [next(driven) for _ in range(count)]
        driven.close()
        return taken

    def all_of(self, plan: Plan[Any]) -> list[Any]:
        return [*self._drive(plan)][:-1]

    def _drive(self, plan: Plan[Any]) -> Iterator[Any]:
        course = Course(plan)
        while True:
            try:
                step = course.due()
            except StopIteration as end:
                yield end.value
                return
            self.steps.append(step)
            try:
                if isinstance(step, Emit):
                    yield step.value
                course.done(self._do(step))
            except MeshError as error:
                course.failed(error)

    def _do(self, step: Step) -> Any:  # noqa: ANN401 - as each step has it
        match step:
            case Exchange():
                return self._next(self.exchanges, step)
            case Listen():
                return self._next(self.listens, step)
            case Hear(within_ms):
                return self._hear(within_ms)
            case Pause(ms):
                self.now_ms += ms
        return None

    def _next(self, answers: list[Answer], step: Step) -> Any:  # noqa: ANN401 - as above
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer = answer(step) if callable(answer) else answer
        if isinstance(answer, MeshError):
            raise answer
        return answer

    def _hear(self, within_ms: int | None) -> Heard | None:
        if self.heard:
            events = self.heard.popleft()
            return None if events is None else Heard(events, events[-1].id if events else "")
        assert within_ms is not None, "nobody will ever say anything more"
        self.now_ms += within_ms
        return Heard([], "")

    # --- what was done -----------------------------------------------------------------------------

    def of(self, kind: type[T]) -> list[T]:
        return [step for step in self.steps if isinstance(step, kind)]

    def bodies(self) -> list[Any]:
        return [json.loads(step.request.partition(b"\r\n\r\n")[2] or b"null") for step in self.of(Exchange)]

    def paths(self) -> list[str]:
        return [step.request.split(b" ", 2)[1].decode() for step in self.of(Exchange)]


def event(number: int, kind: str = "receipt", **data: object) -> StreamEvent:
    return StreamEvent(f"e.{number}", kind, json.dumps({"at": "2026-01-31T12:00:00.000Z", **data}))


def trace(state: str, **more: object) -> dict[str, Any]:
    steps = [{"state": "queued", "at": None, "evidence": "outbox row 1"}]
    steps += [{"state": state, "at": None, "evidence": "because"}] if state != "queued" else []
    return {"client_message_id": "m1", "broker_message_id": None, "state": state, "steps": steps, **more}
