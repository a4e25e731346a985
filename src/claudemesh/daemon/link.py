"""The daemon's end of the wire: one WebSocket to the broker, made again with jitter whenever it ends.

`connect` is the handshake and nothing else; `Link` is one standing connection; `Connector` decides when to try
again and when not to. What arrives is handed to a `Receiver`; what is in the answers is others' business.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, WebSocketException

from claudemesh.daemon.credentials import Credentials
from claudemesh.daemon.events import (
    BrokerConnected,
    BrokerDisconnected,
    ConnectingFailed,
    InboundRefused,
    NegotiationRefused,
    Warned,
)
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    ConfigError,
    DeadlineExceeded,
    DependencyError,
    InvalidRequest,
)
from claudemesh.kernel.retry import BACKOFF_CAP_MS, derive_backoff_ms, derive_pong_wait_s
from claudemesh.runtime.keys import verify
from claudemesh.runtime.tokens import fresh_token
from claudemesh.runtime.world import World
from claudemesh.wire import frames, problem
from claudemesh.wire.addresses import explain_distrust, parse_broker_url
from claudemesh.wire.frames import DeliverItem, Outcome, ReceiptItem
from claudemesh.wire.negotiation import OPTIONAL, REQUIRED, Agreed, NegotiationFailed, judge_offer
from claudemesh.wire.signing import welcome_bytes

HANDSHAKE_S: Final = 10.0
ANSWER_S: Final = 30.0
STOOD_MS: Final = 200  # a connection that ends sooner is one more failed try
INBOX_RETRY_S: Final = 1.0  # how soon to see whether an inbox that was full has room again
DELIVERIES_MAX: Final = 1_024  # frames that wait for the inbox: a whole window, so that answers get through

_STAY_AWAY: Final = frozenset({frames.CLOSE_REPLACED_BY_NEWER})
# A process has one socket at a time: who came under its own instance runs on a copy of the state directory.
_REPLACED: Final = (frames.CLOSE_SESSION_REPLACED, frames.REASON_REPLACED)
_REVOKED: Final = (frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)
_AT_THE_CAP: Final = frozenset({frames.CLOSE_ALREADY_CONNECTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    broker_url: str
    socket_url: str
    broker_key: str
    mesh_id: str
    instance_id: str
    ping_interval_s: float = 30.0
    stale_pong_s: float = 75.0


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


class NotStored(Exception):
    """What arrived could not be stored, for a reason that waiting does not mend."""


def _closed(closed: ConnectionClosed) -> LinkClosed:
    frame = closed.rcvd
    return LinkClosed(frame.code if frame else 1006, frame.reason if frame else "")


def socket_url(broker_url: str) -> str:
    """Return the WebSocket's address at a broker; without TLS only on this machine."""
    try:
        url = parse_broker_url(broker_url)
    except InvalidRequest as error:
        raise ConfigError(f"the broker's address, {error} (it is `broker_url` of membership.json)") from error
    return f"ws{url.removeprefix('http')}/v1/ws"


# --- one connection ----------------------------------------------------------------------------------


class Link:
    """A connection after its handshake, until it ends."""

    def __init__(
        self, socket: ClientConnection, ack: frames.HelloAck, early: Sequence[frames.FromBroker] = ()
    ) -> None:
        """Take over the socket, with what the broker said besides while hands were shaken."""
        self._socket = socket
        self._early = early
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
        storing.add_done_callback(lambda _: self.abort())  # unread is better than unstored
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
            raise _closed(closed) from closed
        finally:
            storing.cancel()
            self._fail_all()
            await asyncio.gather(storing, *self._tasks, return_exceptions=True)

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
        try:
            await asyncio.wait({putting, storing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
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
                if not is_paused:
                    await self.call("deliver.pause", {"paused": True, "reason": "inbox_full"})
                    is_paused = True
                await asyncio.sleep(INBOX_RETRY_S)
        if is_paused:
            await self.call("deliver.pause", {"paused": False})

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


# --- the handshake -----------------------------------------------------------------------------------


async def connect(settings: LinkSettings, credentials: Credentials, clock: Clock) -> tuple[Link, Agreed]:
    """Open the socket, prove who we are, agree on the terms; LinkClosed or NegotiationFailed if that fails."""
    challenge = fresh_token()
    socket = await open_socket(
        f"{settings.socket_url}?challenge={challenge}",
        compression=None,
        max_size=None,
        ping_interval=settings.ping_interval_s,
        ping_timeout=derive_pong_wait_s(settings.stale_pong_s, settings.ping_interval_s),
        proxy=None,
        open_timeout=HANDSHAKE_S,
        close_timeout=1.0,
    )
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            nonce = await _meet(socket, settings, challenge)
            return await _shake_hands(socket, nonce, settings, credentials, clock)
    except NegotiationFailed as refused:
        await socket.close(refused.close_code, refused.feature)
        raise
    except ConnectionClosed as closed:
        raise _closed(closed) from closed
    except BaseException:
        socket.transport.abort()
        raise


async def _meet(socket: ClientConnection, settings: LinkSettings, challenge: str) -> str:
    """Hear the broker out before anything is told: it must be the one that was joined. Return its nonce."""
    welcome = await _expect(socket, frames.Welcome, [])
    if not verify(settings.broker_key, welcome_bytes(challenge, welcome.nonce), welcome.signature):
        raise LinkClosed(frames.CLOSE_UNAUTHENTICATED, "this is not the broker that was joined")
    return str(welcome.nonce)


async def _shake_hands(
    socket: ClientConnection, nonce: str, settings: LinkSettings, credentials: Credentials, clock: Clock
) -> tuple[Link, Agreed]:
    hello = credentials.sign_hello(nonce, settings.mesh_id, settings.instance_id, clock.wall_ms())
    await socket.send(frames.render(hello))
    # Not waiting for the hello's answer: one round trip less.
    await socket.send(frames.render(frames.FeatureNegotiationRequest([*REQUIRED], [*OPTIONAL])))
    early: list[frames.FromBroker] = []
    ack = await _expect(socket, frames.HelloAck, early)
    offer = await _expect(socket, frames.FeatureNegotiationResponse, early)
    return Link(socket, ack, early), judge_offer(offer.supported, offer.missing_required)


async def _expect(socket: ClientConnection, kind: type[Any], early: list[frames.FromBroker]) -> Any:  # noqa: ANN401
    """Return the next frame of a kind; what comes before it is kept: a delivery may well be the quicker."""
    while True:
        frame = frames.parse_from_broker(await socket.recv())
        if isinstance(frame, kind):
            return frame
        if isinstance(frame, frames.Error):
            raise LinkClosed(frame.close_code, frame.code)
        early.append(frame)


# --- again and again ---------------------------------------------------------------------------------


class Connector:
    """Keeps a link up. `is_degraded`: it takes a person to mend, whether or not it still tries; `status`: why."""

    def __init__(self, settings: LinkSettings, credentials: Credentials, receiver: Receiver, world: World) -> None:
        self._settings = settings
        self._credentials = credentials
        self._receiver = receiver
        self._clock = world.clock
        self._roll = world.roll
        self._observer = world.observer
        self._attempts = 0
        self._has_agreed = False
        self._is_up = False
        self._refusal: NegotiationFailed | None = None
        self.link: Link | None = None
        self.is_degraded = False
        self.status = "connecting"

    @property
    def session_pubkey(self) -> str | None:
        return self._credentials.session_pubkey

    async def run(self) -> None:
        """Connect, serve, and come back, until cancelled.

        NegotiationFailed leaves it only if no broker ever agreed: then the daemon cannot work at all.
        """
        while True:
            wait_ms = await self._try_once()
            if self._is_up:
                self._observer.publish(BrokerDisconnected(self.status, wait_ms))
                self._is_up = False
            else:
                self._observer.publish(ConnectingFailed(self.status, wait_ms))
            if wait_ms is None:
                self.is_degraded = True
                await asyncio.Event().wait()  # another instance took over: coming back is for a person to decide
            else:
                await asyncio.sleep(wait_ms / 1000)

    async def _try_once(self) -> int | None:
        """Serve one connection, and return how long to wait for the next; None to stay away."""
        try:
            await self._once()
        except LinkClosed as closed:
            return self._after_close(closed)
        except NegotiationFailed as refused:
            return self._after_refusal(refused)
        except frames.BadFrame as error:
            self.status = "the broker sent a frame that is none of ours"
            self._observer.publish(InboundRefused(str(error)))
        except NotStored as error:
            self.status = f"a delivery could not be stored: {error}"
            self._observer.publish(Warned("delivery_not_stored", str(error)))
        except ssl.SSLCertVerificationError as error:
            self.status = explain_distrust(error)
        except (OSError, TimeoutError, WebSocketException) as error:
            self.status = str(error) or type(error).__name__
        return self._backoff_ms()

    async def _once(self) -> None:
        link, agreed = await connect(self._settings, self._credentials, self._clock)
        began_ms = self._clock.monotonic_ms()
        self._has_agreed, self.is_degraded, self._is_up = True, False, True
        self.link, self.status, self._refusal = link, "connected", None
        for warning in agreed.warnings:
            self._observer.publish(Warned("negotiation", warning))
        self._observer.publish(BrokerConnected(self._settings.broker_url, link.hello_ack.broker_version))
        # What is asked at the beginning is answered through the reading that runs beside it.
        beginning = asyncio.get_running_loop().create_task(self._begin(link, agreed))
        try:
            await link.run(self._receiver)
        finally:
            self.link = None
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
            await self._receiver.disconnected()
            await link.close()
            if self._clock.monotonic_ms() - began_ms >= STOOD_MS:
                self._attempts = 0
            if self._refusal is not None:
                raise self._refusal

    async def _begin(self, link: Link, agreed: Agreed) -> None:
        """Tell the receiver; whatever goes wrong there ends the connection, which then says how it ended."""
        try:
            await self._receiver.connected(link, agreed)
        except NegotiationFailed as refused:
            self._refusal = refused
            link.abort()
        except BrokerUnreachable:
            pass  # it is ending already
        except Exception as error:  # noqa: BLE001  an answer of the broker that nobody understands, say
            self._observer.publish(InboundRefused(f"at the beginning: {error!r}"[:300]))
            link.abort()

    def _after_close(self, closed: LinkClosed) -> int | None:
        self.status = f"closed: {closed}"
        if closed.code in _STAY_AWAY or (closed.code, closed.reason) == _REPLACED:
            return None
        if (closed.code, closed.reason) == _REVOKED:
            self.is_degraded = True
            return self._at_the_cap_ms()
        return self._at_the_cap_ms() if closed.code in _AT_THE_CAP else self._backoff_ms()

    def _after_refusal(self, refused: NegotiationFailed) -> int:
        self.status = f"negotiation failed: {refused}"
        self._observer.publish(NegotiationRefused(refused.close_code, refused.feature, refused.reason))
        if not self._has_agreed:
            raise refused
        self.is_degraded = True
        return self._at_the_cap_ms()

    def _at_the_cap_ms(self) -> int:
        return int(BACKOFF_CAP_MS * (0.5 + self._roll() / 2))

    def _backoff_ms(self) -> int:
        self._attempts += 1
        return derive_backoff_ms(self._attempts, self._roll())
