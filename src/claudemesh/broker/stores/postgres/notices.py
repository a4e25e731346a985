"""What the brokers of one database write to each other: bulletins, merged and cut into notifications that fit."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from claudemesh.broker.model import (
    Announced,
    Budgeted,
    Dismissed,
    Expelled,
    Hinted,
    Rewound,
    Unseated,
    Woken,
)

BYTES_MAX: Final = 7_900  # the server takes less than 8,000
WAITING_MAX: Final = 10_000


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A broker began to listen."""


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """Something was not told: look at everything once."""


Notice = Woken | Hinted | Rewound | Unseated | Dismissed | Announced | Expelled | Budgeted | Hello | Missed


class Notification(msgspec.Struct, frozen=True):
    broker: str
    notices: list[Notice]


class Gathered:
    """What waits to be told: of hints the sum, of everything else each. If it grows too long, that it is missed."""

    def __init__(self) -> None:
        self._clear()

    def __bool__(self) -> bool:
        return bool(self._woken or self._rewound or self._hinted or self._others)

    def add(self, notice: Notice) -> None:
        match notice:
            case Woken():
                self._woken.update(notice.members)
            case Rewound():
                self._rewound.update(notice.members)
            case Hinted():
                self._hinted.setdefault(notice.member, {}).update(dict.fromkeys(notice.client_message_ids))
                self._count += len(notice.client_message_ids)
            case _:
                self._others.append(notice)
                self._count += 1
        if self._count + len(self._woken) + len(self._rewound) > WAITING_MAX:
            self.miss()

    def miss(self) -> None:
        self._clear()
        self._others.append(Missed())

    def take(self) -> list[Notice]:
        """Return all of it, and begin anew."""
        notices = self._others
        notices += [Hinted(member, [*ids]) for member, ids in self._hinted.items()]
        if self._rewound:
            notices.append(Rewound([*self._rewound]))
        if self._woken:
            notices.append(Woken([*self._woken]))
        self._clear()
        return notices

    def _clear(self) -> None:
        self._woken: set[int] = set()
        self._rewound: set[int] = set()
        self._hinted: dict[int, dict[str, None]] = {}
        self._others: list[Notice] = []
        self._count = 0


def render(broker: str, notices: Iterable[Notice], bytes_max: int = BYTES_MAX) -> list[str]:
    """Write them into as few notifications as fit; what does not fit by itself is missed."""
    head = len(msgspec.json.encode(Notification(broker, [])))
    payloads: list[str] = []
    group: list[bytes] = []
    size = head
    for part in _parts(notices, bytes_max - head):
        if size + len(part) + 1 > bytes_max:
            payloads.append(_notification(broker, group))
            group, size = [], head
        group.append(part)
        size += len(part) + 1
    if group:
        payloads.append(_notification(broker, group))
    return payloads


def parse(payload: str) -> Notification | None:
    try:
        return msgspec.json.decode(payload, type=Notification)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _parts(notices: Iterable[Notice], bytes_max: int) -> Iterator[bytes]:
    for notice in notices:
        part = msgspec.json.encode(notice)
        if len(part) < bytes_max:
            yield part
        else:
            yield from _parts(_halves(notice), bytes_max)


def _halves(notice: Notice) -> list[Notice]:
    match notice:
        case Woken(members) | Rewound(members) if len(members) > 1:
            middle = len(members) // 2
            return [type(notice)(members[:middle]), type(notice)(members[middle:])]
        case Dismissed(tokens) if len(tokens) > 1:
            return [Dismissed(tokens[: len(tokens) // 2]), Dismissed(tokens[len(tokens) // 2 :])]
        case Hinted(member, ids) if len(ids) > 1:
            return [Hinted(member, ids[: len(ids) // 2]), Hinted(member, ids[len(ids) // 2 :])]
        case _:
            return [Missed()]


def _notification(broker: str, parts: list[bytes]) -> str:
    raw = [msgspec.Raw(part) for part in parts]
    return msgspec.json.encode({"broker": broker, "notices": raw}).decode()
