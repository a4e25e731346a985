"""Which destinations may be sent to right now. A lane is a destination with rows that wait.

The order rule: at most one batch per destination is unanswered, and a row that has to wait holds back its own
destination only. The rows are in the store; here stands only who is busy, who has to wait, and who has more.
No clock and no IO: whoever calls says what time it is.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic

from claudemesh.outbox.model import D


@dataclass(slots=True)
class _Lane:
    is_busy: bool = False  # a batch is out, or being claimed
    has_more: bool = True  # the store may hold rows beyond that batch
    not_before_ms: int = 0

    def may_go(self, now_ms: int) -> bool:
        return not self.is_busy and self.has_more and self.not_before_ms <= now_ms


class Lanes(Generic[D]):
    def __init__(self) -> None:
        self._lanes: OrderedDict[D, _Lane] = OrderedDict()
        self.busy = 0  # how many are taken and not given back

    def __len__(self) -> int:
        return len(self._lanes)

    def note(self, destination: D, not_before_ms: int = 0) -> None:
        """Take note that the store holds a row for this destination."""
        lane = self._lanes.get(destination)
        if lane is None:
            self._lanes[destination] = _Lane(not_before_ms=not_before_ms)
        else:
            lane.has_more = True
            lane.not_before_ms = max(lane.not_before_ms, not_before_ms)

    def take(self, now_ms: int, limit: int, among: Iterable[D] | None = None) -> list[D]:
        """Take up to `limit` lanes that may be sent to, those served longest ago first; they are busy from now."""
        asked = self._lanes if among is None else among
        ready = [*islice((one for one in asked if one in self._lanes and self._lanes[one].may_go(now_ms)), limit)]
        for destination in ready:
            lane = self._lanes[destination]
            lane.is_busy, lane.has_more = True, False
            self._lanes.move_to_end(destination)
        self.busy += len(ready)
        return ready

    def release(self, destination: D, *, has_more: bool, not_before_ms: int = 0) -> None:
        """Give a lane back: its batch was answered, or there was nothing to send."""
        lane = self._lanes[destination]
        self.busy -= lane.is_busy
        lane.is_busy = False
        lane.has_more = lane.has_more or has_more
        lane.not_before_ms = not_before_ms
        if not lane.has_more:
            del self._lanes[destination]

    def hurry(self) -> None:
        """Let nobody wait for the clock any more: somebody says that it is time."""
        for lane in self._lanes.values():
            lane.not_before_ms = 0

    def next_wake_ms(self) -> int | None:
        """Return when the first waiting lane may go on, 0 for at once; None if none waits."""
        first: int | None = None
        for lane in self._lanes.values():
            if lane.is_busy or not lane.has_more:
                continue
            if lane.not_before_ms == 0:  # of ten thousand lanes the first is mostly such a one
                return 0
            first = lane.not_before_ms if first is None else min(first, lane.not_before_ms)
        return first
