"""One standing connection to the broker: what goes out over it, what comes in, and when it is given up.

How it begins is in `handshake`, and what follows its end in `connector`. What arrives is handed to a `Receiver`;
what is in the answers is others' business.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import Event

from claudemesh.daemon.watchdog import Watchdog
from claudemesh.kernel.errors import BrokerUnreachable, DeadlineExceeded, DependencyError
from claudemesh.wire import frames, problem
from claudemesh.wire.addresses import explain_distrust
from claudemesh.wire.frames import DeliverItem, Outcome, ReceiptItem
from claudemesh.wire.negotiation import Agreed

OPEN_S: Final = 10.0
ANSWER_S: Final = 30.0
GOODBYE_S: Final = 5.0  # for the broker to take note of an end
INBOX_RETRY_S: Final = 1.0  # how soon to see whether an inbox that was full has room again
DELIVERIES_MAX: Final = 1_024  # frames that wait for the inbox: a whole window, so that answers get through

_ABNORMAL: Final = 1006


class Receiver(Protocol):
    """Whoever takes what arrives."""

    async def connected(self, link: "Link", agreed: Agreed) -> None: ...

    async def disconnected(self) -> None: ...

    async def deliver(self, items: Sequence[DeliverItem]) -> None:
        """Store them; they are acknowledged when this returns."""

    def refused(self, reasons: Sequence[str]) -> None:
        """Take note of items that nobody can store. They are not acknowledged: the broker gives them up in time."""

    async def receipts(self, items: Sequence[ReceiptItem]) -> None: ...

    async def event(self, name: str, data: dict[str, Any]) -> None: ...


class LinkClosed(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Unreachable(Exception):
    """No connection came about; it says why, for people."""


class NotStored(Exception):
    """What arrived could not be stored, for a reason that waiting does not mend."""


@dataclass(slots=True)
class Remembered:
    """What one connection leaves to the next, in memory only: a token to resume with, and what was agreed on."""

    token: str | None = field(default=None, repr=False)
    terms: str = ""  # the broker's short form of its offer, when `agreed` was agreed on
    agreed: Agreed | None = None

    def take_token(self) -> str | None:
        """Return the token for one hello, which uses it up, whatever becomes of that hello."""
        token, self.token = self.token, None
        return token


# --- the socket --------------------------------------------------------------------------------------


class Socket(ClientConnection):
    """Counts the signs of life that come over it: frames and pongs alike."""

    signs = 0

    def process_event(self, event: Event) -> None:
        self.signs += 1
        super().process_event(event)


async def dial(url: str) -> Socket:
    """Open a socket; Unreachable if that fails. Its pings are for us to send: see `watchdog`."""
    try:
        socket = await open_socket(
            url,
            create_connection=Socket,
            compression=None,
            max_size=None,
            ping_interval=None,
            proxy=None,
            open_timeout=OPEN_S,
            close_timeout=1.0,
        )
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(explain_distrust(error)) from error
    except (OSError, TimeoutError, WebSocketException) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    if not isinstance(socket, Socket):
        raise TypeError("the socket is not the one that was asked for")
    return socket


async def say(socket: Socket, frame: frames.ToBroker) -> None:
    try:
        await socket.send(frames.render(frame))
    except ConnectionClosed as closed:
        raise _closed(closed) from closed


async def hear(socket: Socket) -> frames.FromBroker:
    """Return the next frame; LinkClosed if there is none any more."""
    try:
        return frames.parse_from_broker(await socket.recv())
    except ConnectionClosed as closed:
        raise _closed(closed) from closed


def _closed(closed: ConnectionClosed, reason: str = "") -> LinkClosed:
    frame = closed.rcvd
    return LinkClosed(frame.code, frame.reason) if frame else LinkClosed(_ABNORMAL, reason)


# --- one connection ----------------------------------------------------------------------------------


class Link:
    """A connection after its handshake, until it ends."""

    def __init__(
        self,
        socket: Socket,
        ack: frames.HelloAck,
        early: Sequence[frames.FromBroker] = (),
        *,
        remembered: Remembered | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """Take over the socket, with what the broker said besides while hands were shaken."""
        self._socket = socket
        self._early = early
        self._remembered = remembered or Remembered()
        self._watchdog = watchdog
        self._silence = ""  # why it was given up
        self._is_reading = True
        self._is_over = False
        self.hello_ack = ack
        self._n = 0
        self._results: dict[int, asyncio.Future[list[Outcome]]] = {}
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._arrived: asyncio.Queue[list[DeliverItem]] = asyncio.Queue(DELIVERIES_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, payloads: Sequence[bytes]) -> asyncio.Future[list[Outcome]]:
        n = self._next()
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._results[n] = future
        self._close_if_unanswered(future)
        await self._write(frames.render_send(n, payloads))
        return future

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401  each operation has its own result
        n = self._next()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[n] = future
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._write(frames.render(frames.Call(n, op, args)))
                return await future
        except TimeoutError as error:
            raise DeadlineExceeded(f"the broker did not answer {op} in {ANSWER_S:.0f} s") from error
        finally:
            self._replies.pop(n, None)

    async def close(self) -> None:
        await self._socket.close()

    async def run(self, receiver: Receiver) -> None:
        """Take in what arrives until the connection ends; then LinkClosed says how."""
        storing = asyncio.get_running_loop().create_task(self._store(receiver))
        # Unread is better than unstored.
        storing.add_done_callback(lambda ended: None if ended.cancelled() else self.abort())
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            for frame in self._early:
                await self._take_in(frame, receiver, storing)
            while True:
                await self._take_in(frames.parse_from_broker(await self._socket.recv()), receiver, storing)
        except ConnectionClosed as closed:
            failed = storing.exception() if storing.done() and not storing.cancelled() else None
            # A broker that is gone is this same end, as storing saw it.
            if failed is not None and not isinstance(failed, BrokerUnreachable):
                raise NotStored(repr(failed)) from failed
            raise _closed(closed, self._silence) from closed
        finally:
            storing.cancel()
            self._is_over = True
            self._fail_all()
            watching.cancel()
            await asyncio.gather(storing, watching, *self._tasks, return_exceptions=True)

    def abort(self) -> None:
        """End it at once; whoever runs it is told."""
        self._socket.transport.abort()

    async def _take_in(self, frame: frames.FromBroker, receiver: Receiver, storing: "asyncio.Task[None]") -> None:
        match frame:
            case frames.SendResult():
                _resolve(self._results.pop(frame.n, None), frame.outcomes)
            case frames.Sifted():
                receiver.refused(frame.refused)
                if frame.items:
                    await self._hand_over(frame.items, storing)
            case frames.Reply():
                self._reply(frame)
            case frames.Receipt():
                await receiver.receipts(frame.items)
            case frames.LeaseRenewed():
                self._renew(frame)
            case frames.Event():
                self._spawn(receiver.event(frame.name, frame.data))  # it may call, and be answered through us
            case _:
                pass  # a handshake's frame that comes late, or one that only hints

    async def _hand_over(self, items: list[DeliverItem], storing: "asyncio.Task[None]") -> None:
        """Wait for room, but not for ever: once storing has ended, nobody makes any."""
        if not self._arrived.full():
            self._arrived.put_nowait(items)
            return
        putting = asyncio.ensure_future(self._arrived.put(items))
        self._is_reading = (
            False  # frames and pongs that come meanwhile are not seen: it is not the broker's silence
        )
        try:
            await asyncio.wait({putting, storing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_reading = True
            putting.cancel()

    async def _store(self, receiver: Receiver) -> None:
        """Hand all that has arrived to the inbox at once; what it holds is acknowledged."""
        while True:
            items = await self._arrived.get()
            with suppress(asyncio.QueueEmpty):
                while True:
                    items = items + self._arrived.get_nowait()
            await self.store(partial(receiver.deliver, items))
            await self._write(frames.render(frames.Ack([item.history_id for item in items])))

    async def store(self, write: Callable[[], Awaitable[None]]) -> None:
        is_paused = False
        while True:
            try:
                await write()
                break
            except DependencyError:
                if self._is_over:
                    raise BrokerUnreachable("the connection ended, and there is no room") from None
                if not is_paused:
                    await self.call("deliver.pause", {"paused": True, "reason": "inbox_full"})
                    is_paused = True
                await asyncio.sleep(INBOX_RETRY_S)
        if is_paused:
            await self.call("deliver.pause", {"paused": False})

    async def _watch(self) -> None:
        if self._watchdog is None:
            return
        silent_ms = await self._watchdog.watch(self._socket, lambda: not self._is_reading)
        self._silence = f"nothing came for {silent_ms / 1000:.1f} s"
        self.abort()

    def _renew(self, frame: frames.LeaseRenewed) -> None:
        if frame.resume_token is not None:
            self._remembered.token = frame.resume_token

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reply(self, frame: frames.Reply) -> None:
        future = self._replies.pop(frame.n, None)
        if future is None or future.done():
            return
        if frame.error is None:
            future.set_result(frame.result)
        else:
            status = frame.error.get("status")
            future.set_exception(problem.parse(status if isinstance(status, int) else 500, frame.error))

    def _close_if_unanswered(self, future: asyncio.Future[list[Outcome]]) -> None:
        """End a connection that stays silent about a batch: what became of it is asked on the next one."""
        loop = asyncio.get_running_loop()

        def give_up() -> None:
            if not future.done():
                self.abort()

        timer = loop.call_later(ANSWER_S, give_up)
        future.add_done_callback(lambda _: timer.cancel())

    async def _write(self, text: str) -> None:
        try:
            await self._socket.send(text)
        except (ConnectionClosed, OSError) as error:
            raise BrokerUnreachable("the connection ended") from error

    def _next(self) -> int:
        self._n += 1
        return self._n

    def _fail_all(self) -> None:
        lost: list[asyncio.Future[Any]] = [*self._results.values(), *self._replies.values()]
        for future in lost:
            if not future.done():
                future.set_exception(BrokerUnreachable("the connection ended before the answer"))
                future.exception()  # looked at: nobody may be waiting any more
        self._results.clear()
        self._replies.clear()


def _resolve(future: asyncio.Future[list[Outcome]] | None, outcomes: list[Outcome]) -> None:
    if future is not None and not future.done():
        future.set_result(outcomes)
