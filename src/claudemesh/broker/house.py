"""What all connections share, and how one ends."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from claudemesh.broker.calls import Calls
from claudemesh.broker.hello import Doorkeeper
from claudemesh.broker.hub import Hub
from claudemesh.broker.ports import DeliveryStore, ReceiptStore
from claudemesh.broker.presence.tokens import ResumeTokens
from claudemesh.broker.presence.watchdog import Watchdog
from claudemesh.broker.seating import Seating
from claudemesh.broker.service import AcceptService
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSettings:
    inline_bytes: int
    dedupe_days: int | None
    lease_ttl_ms: int
    hello_timeout_s: float
    slow_consumer_s: float  # how long one frame may take to be written
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all connections share. `spawn` starts what must go on when its connection is gone."""

    service: AcceptService
    calls: Calls
    hub: Hub
    board: Switchboard
    seating: Seating
    door: Doorkeeper
    tokens: ResumeTokens
    watchdog: Watchdog
    deliveries: DeliveryStore
    receipts: ReceiptStore
    settings: SocketSettings
    clock: Clock
    observer: Observer
    sign: Callable[[bytes], str]  # with the broker's key
    entering: asyncio.Semaphore  # so many hellos are judged at once
    spawn: Callable[[Coroutine[Any, Any, None]], object]


class Closing(Exception):
    """The connection is to be closed, with a code and a word: the code's own, or the reason."""

    def __init__(self, code: int, reason: str = "", detail: str = "", **data: Any) -> None:  # noqa: ANN401
        super().__init__(reason)
        self.code = code
        self.reason = reason or frames.CLOSE_WORDS[code]
        self.detail = detail
        self.data = data


class Gone(Exception):
    """The other side is not there any more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
