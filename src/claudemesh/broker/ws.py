"""One connection on `/v1/ws`, from the welcome to its close.

The broker speaks first: a nonce. The caller then has a few seconds for a hello that signs it; nothing else is
understood before. After that a few tasks share the connection (reading, admitting sends, writing acks down, pushing
deliveries, telling of receipts), and whichever ends first ends them all. Each end has a code and a word.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from claudemesh.asgi.messages import PULSE, Pulse, Receive, Scope, Send
from claudemesh.broker.calls import Args
from claudemesh.broker.desk import Desk
from claudemesh.broker.events import ConnectionRefused, MemberDisconnected
from claudemesh.broker.hello import HelloRefused, Proven
from claudemesh.broker.house import Closing, Gone, House
from claudemesh.broker.model import Identity, Parcel, Seat
from claudemesh.broker.offer import Offer, answer_negotiation, derive_offer, derive_terms
from claudemesh.broker.policy import FRAME_ITEMS_MAX
from claudemesh.broker.ports import AlreadyConnected, KeyTaken, NotResumed
from claudemesh.broker.presence.model import Because, Departure, ResumeClaim, Seated
from claudemesh.broker.presence.tokens import Holder
from claudemesh.broker.sending import parse_item_by_item, present_item
from claudemesh.broker.service import Presented
from claudemesh.kernel.errors import MeshError, Revoked, TooManySessions
from claudemesh.runtime.tokens import fresh_token
from claudemesh.wire import frames
from claudemesh.wire.signing import welcome_bytes

CALLS_MAX: Final = 4  # under way at once on one connection
TELLING_MAX: Final = 1_024  # events that wait until one connection has read those before
ACK_IDS_MAX: Final = 16_384  # in one frame: far more than any window holds
CHALLENGE_CHARS_MAX: Final = 128
HELLO_CHARS_MAX: Final = 16 * 1024
CLOSE_GRACE_S: Final = 10.0  # for a peer that reads slowly to hear why it is closed

CLOSE_NOT_TEXT: Final = 1003
CLOSE_INTERNAL: Final = 1011
_OWN_CODES: Final = 4000

PAUSE: Final = "deliver.pause"  # the one call that is about the connection itself


class PauseArgs(Args, frozen=True):
    paused: bool


class SocketApp:
    """The ASGI application of `/v1/ws`."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Connection(self._house, _challenge(scope), scope[PULSE], receive, send).run()


class Connection:
    identity: Identity
    seat: Seat
    _seated: Seated
    _expires_in_ms: int | None

    def __init__(self, house: House, challenge: str, pulse: Pulse, receive: Receive, send: Send) -> None:
        self._house = house
        self._challenge = challenge
        self._pulse = pulse
        self._receive = receive
        self._send = send
        self._is_closed = False
        self._is_stale = False
        self._desk: Desk | None = None  # without one it only shows that a session is there
        self._close_asked: asyncio.Future[Closing] = asyncio.get_running_loop().create_future()
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._telling = 0  # events that wait to be written

    # --- what others ask of it: hub.Live -----------------------------------------------------------

    def close(self, code: int, reason: str) -> None:
        if not self._close_asked.done():
            self._close_asked.set_result(Closing(code, reason))

    def wake(self) -> None:
        if self._desk is not None:
            self._desk.pump.wake()

    def offer(self, parcel: Parcel) -> None:
        if self._desk is not None:
            self._desk.pump.offer(parcel)

    def set_active(self, active: bool) -> None:  # noqa: FBT001  a switch
        if self._desk is not None:
            self._desk.pump.set_active(active=active)

    def rewind(self) -> None:
        if self._desk is not None:
            self._desk.pump.rewind()

    def tell(self, text: str) -> None:
        if self._desk is None:
            return
        if self._telling >= TELLING_MAX:  # it does not read; on its return it asks for what it missed
            self.close(frames.CLOSE_SLOW_CONSUMER, frames.CLOSE_WORDS[frames.CLOSE_SLOW_CONSUMER])
            return
        self._telling += 1
        self._house.spawn(self._tell(text))

    def hint(self, client_message_ids: Sequence[str]) -> None:
        if self._desk is not None:
            self._desk.hints.note(client_message_ids)

    # --- and the watchdog: presence.watchdog.Watched -------------------------------------------------

    def silent_ms(self) -> int:
        return int(self._pulse.silent_s() * 1000)

    def renew(self) -> None:
        renewed = frames.LeaseRenewed(self._house.settings.lease_ttl_ms, self._issue_token())
        self._pulse.beat(frames.render(renewed))

    def cut(self) -> None:
        self._is_stale = True
        self._pulse.abort()

    # --- its life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await self._open()
            await self._serve()
        except Gone:
            pass
        except Closing as closing:
            await self._end(closing)
        except Exception as error:
            await self._end(_closing_within(error) or Closing(CLOSE_INTERNAL, "internal_error"))
            raise

    async def _open(self) -> None:
        house = self._house
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept"})
        nonce = fresh_token()
        signature = house.sign(welcome_bytes(self._challenge, nonce)) if self._challenge else ""
        await self._write(frames.render(frames.Welcome(nonce, house.clock.wall_ms(), signature)))
        try:
            hello = await self._hear_hello()
            async with house.entering:  # when all come back at once, those who are here go on being served
                proven = await self._verify(hello, nonce)
                self.identity, self._expires_in_ms = proven.arrival.identity, proven.expires_in_ms
                await self._be_seated(proven)
        except Closing as closing:
            house.observer.publish(ConnectionRefused(closing.code, closing.reason))
            raise

    async def _hear_hello(self) -> frames.Hello:
        try:
            async with asyncio.timeout(self._house.settings.hello_timeout_s):
                text = await self._read_text()
        except TimeoutError as error:
            raise Closing(frames.CLOSE_UNAUTHENTICATED, "hello_timeout") from error
        if len(text) > HELLO_CHARS_MAX:  # of somebody we do not know: not even read
            raise Closing(frames.CLOSE_UNAUTHENTICATED, "hello_required")
        frame = self._parse(text)
        if not isinstance(frame, frames.Hello):
            raise Closing(frames.CLOSE_UNAUTHENTICATED, "hello_required")
        return frame

    async def _verify(self, hello: frames.Hello, nonce: str) -> Proven:
        try:
            return await self._house.door.verify(hello, nonce)
        except HelloRefused as refused:
            raise _refused(refused) from refused
        except MeshError as error:  # the store does not answer: that is not the caller's fault
            raise Closing(CLOSE_INTERNAL, error.code) from error

    async def _be_seated(self, proven: Proven) -> None:
        self._house.service.learn(self.identity.mesh)
        if not self._pulse.is_open():  # it hung up while it waited here, and may sit elsewhere by now
            raise Gone(1006)
        try:
            await self._house.seating.admit(proven.arrival, self._join)
        except AlreadyConnected as error:
            raise Closing(frames.CLOSE_ALREADY_CONNECTED) from error
        except KeyTaken as error:
            raise Closing(frames.CLOSE_UNAUTHENTICATED, "bad_attestation") from error
        except NotResumed as error:
            raise _refused(proven.unproven or HelloRefused("bad_signature")) from error
        except Revoked as error:
            raise Closing(frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED) from error
        except TooManySessions as error:
            raise Closing(frames.CLOSE_UNAUTHENTICATED, error.code) from error
        except MeshError as error:
            raise Closing(CLOSE_INTERNAL, error.code) from error

    def _join(self, seated: Seated) -> None:
        self._seated = seated
        self.seat = seated.seat
        if not self.identity.is_presence_only:
            self._desk = Desk(
                self._house,
                self.identity,
                self.seat,
                write=self._write,
                write_or_close=self._write_or_close,
                last_life_ms=self._last_life_ms,
            )
        self._house.hub.join(self)
        self._house.watchdog.watch(self)

    async def _serve(self) -> None:
        house, identity = self._house, self.identity
        code, reason = 1006, ""
        try:
            ack = frames.HelloAck(
                presence_id=self._seated.presence_uid,
                member_id=identity.member.uid,
                mesh_slug=identity.mesh.slug,
                lease_ttl_ms=house.settings.lease_ttl_ms,
                broker_version=house.settings.version,
                resume_token=self._issue_token(),
                resumed=self._seated.is_resumed,
                terms=derive_terms(self._offer()),
            )
            await self._write(frames.render(ack))
            await self._work()
        except Gone as gone:
            code = gone.code
            raise
        except Closing as closing:
            code, reason = closing.code, closing.reason
            raise
        finally:
            self._is_closed = True
            house.hub.leave(self)
            house.watchdog.forget(self)
            house.spawn(self._leave())
            member = identity.member.uid
            house.observer.publish(
                MemberDisconnected(identity.mesh.uid, member, identity.instance_id, code, reason)
            )

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                if self._desk is not None:
                    self._desk.start(group)
                group.create_task(self._until_closed())
                group.create_task(self._until_expired())
                await self._read(group)
        except BaseExceptionGroup as several:  # not `except*`: before 3.11.4 what that raises is a group again
            ended, failed = several.split((Closing, Gone))
            if ended is None or failed is not None:
                raise
            raise _first(ended) from None

    async def _until_closed(self) -> None:
        raise await self._close_asked

    async def _until_expired(self) -> None:
        """Let a session speak only for as long as its member vouches for it."""
        if self._expires_in_ms is not None:
            await asyncio.sleep(self._expires_in_ms / 1000)
            raise Closing(frames.CLOSE_UNAUTHENTICATED, "attestation_expired")

    async def _end(self, closing: Closing) -> None:
        self._is_closed = True
        message = {"type": "websocket.close", "code": closing.code, "reason": closing.reason}
        with suppress(OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                if closing.code >= _OWN_CODES:
                    said = frames.Error(closing.reason, closing.code, closing.detail, closing.data)
                    await self._send({"type": "websocket.send", "text": frames.render(said)})
                await self._send(message)

    # --- reading -----------------------------------------------------------------------------------

    async def _read(self, group: asyncio.TaskGroup) -> None:
        while True:
            text = await self._read_text()
            frame = self._parse_leniently(text)
            match frame:
                case frames.Send():
                    await self._take(frame.n, [present_item(item) for item in frame.items], len(text))
                case tuple():
                    await self._take(*frame, len(text))
                case frames.Ack():
                    self._note_acks(frame.ids)
                case frames.Call():
                    await self._calls.acquire()
                    # What governs takes effect for others too: it goes on if this connection ends meanwhile.
                    begin = self._house.spawn if self._house.calls.governs(frame.op) else group.create_task
                    begin(self._call(frame))
                case frames.FeatureNegotiationRequest():
                    await self._negotiate(frame)
                case frames.Hello():
                    raise Closing(frames.CLOSE_BAD_FRAME, detail="a second hello")

    async def _take(self, n: int, items: list[Presented], size: int) -> None:
        if len(items) > FRAME_ITEMS_MAX:
            raise Closing(frames.CLOSE_BAD_FRAME, detail=f"at most {FRAME_ITEMS_MAX} messages in a frame")
        await self._at_desk().sending.take(n, items, size)

    def _note_acks(self, history_ids: list[int]) -> None:
        if len(history_ids) > ACK_IDS_MAX:
            raise Closing(frames.CLOSE_BAD_FRAME, detail=f"at most {ACK_IDS_MAX} ids in an ack")
        self._at_desk().note_acks(history_ids)

    def _at_desk(self) -> Desk:
        if self._desk is None:
            raise Closing(frames.CLOSE_BAD_FRAME, detail="this connection only shows that a session is there")
        return self._desk

    async def _read_text(self) -> str:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise Gone(message.get("code") or 1005)
        text = message.get("text")
        if not isinstance(text, str):
            raise Closing(CLOSE_NOT_TEXT, "text_only")
        return text

    def _parse(self, text: str) -> frames.ToBroker:
        try:
            return frames.parse_to_broker(text)
        except frames.BadFrame as error:
            raise Closing(frames.CLOSE_BAD_FRAME, detail=str(error)[:200]) from error

    def _parse_leniently(self, text: str) -> frames.ToBroker | tuple[int, list[Presented]]:
        """Read a frame; a send of which only some items are wrong is taken item by item."""
        try:
            return frames.parse_to_broker(text)
        except frames.BadFrame:
            return parse_item_by_item(text) or self._parse(text)

    async def _call(self, call: frames.Call) -> None:
        try:
            reply = self._pause(call) if call.op == PAUSE else await self._house.calls.answer(self.identity, call)
            await self._write_or_close(frames.render(reply))
        finally:
            self._calls.release()

    def _pause(self, call: frames.Call) -> frames.Reply:
        """Push nothing on this connection while its inbox is full, or go on."""
        try:
            paused = msgspec.convert(call.args, PauseArgs).paused
        except msgspec.ValidationError as error:
            raise Closing(frames.CLOSE_BAD_FRAME, detail=str(error)) from error
        self._at_desk().pump.set_paused(paused=paused)
        return frames.Reply(call.n, {"paused": paused})

    async def _negotiate(self, request: frames.FeatureNegotiationRequest) -> None:
        response = answer_negotiation(request, self._offer())
        await self._write(frames.render(response))
        if response.missing_required:
            raise Closing(frames.CLOSE_FEATURE_UNAVAILABLE, missing=response.missing_required)

    def _offer(self) -> Offer:
        settings = self._house.settings
        return derive_offer(settings.dedupe_days, settings.inline_bytes, self.identity.mesh.policy)

    def _issue_token(self) -> str:
        identity, seated = self.identity, self._seated
        key = identity.session_pubkey or identity.member.pubkey
        holder = Holder(
            mesh_uid=identity.mesh.uid,
            member_pubkey=identity.member.pubkey,
            key=key,
            expires_at=identity.expires_at,
        )
        return self._house.tokens.issue(holder, ResumeClaim(seated.presence_uid, seated.lease_token))

    # --- writing -----------------------------------------------------------------------------------

    async def _write(self, text: str) -> None:
        if self._is_closed:
            raise Gone(1006)
        try:
            async with asyncio.timeout(self._house.settings.slow_consumer_s):
                await self._send({"type": "websocket.send", "text": text})
        except TimeoutError as error:
            raise Closing(frames.CLOSE_SLOW_CONSUMER) from error
        except (OSError, RuntimeError) as error:  # the server says so in either way
            raise Gone(1006) from error

    async def _write_or_close(self, text: str) -> None:
        """Write from a task that is not this connection's: nothing may come out of it."""
        try:
            await self._write(text)
        except Closing as closing:
            self.close(closing.code, closing.reason)
        except Gone:
            pass

    # --- deliveries --------------------------------------------------------------------------------

    async def _tell(self, text: str) -> None:
        try:
            await self._write_or_close(text)
        finally:
            self._telling -= 1

    def _last_life_ms(self) -> int:
        """Return when it last showed life: by a frame, a pong, anything."""
        return self._house.clock.monotonic_ms() - self.silent_ms()

    async def _leave(self) -> None:
        """Write down what it acknowledged, and only then let another connection have what it was to get.

        A close is a sign of life; being cut for its silence is none.
        """
        silent_ms = self._house.watchdog.bound(self.silent_ms()) if self._is_stale else 0
        with suppress(MeshError):  # what could not be written down is delivered again
            if self._desk is not None:
                await self._desk.acks.flush()
        because = Because.STALE if self._is_stale else Because.CLOSED
        await self._house.seating.leave(Departure(self.seat.token, silent_ms, because))


def _refused(refused: HelloRefused) -> Closing:
    return Closing(refused.close_code, refused.reason, **refused.data)


def _challenge(scope: Scope) -> str:
    """Return what the caller wants signed, if it is something to sign."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get("challenge", [""])[0]
    return given if len(given) <= CHALLENGE_CHARS_MAX and given.isascii() and given.isprintable() else ""


def _closing_within(error: BaseException) -> Closing | None:
    """Return what we had decided ourselves, if something else went wrong beside it."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _closing_within(one))), None)
    return error if isinstance(error, Closing) else None


def _first(ended: BaseExceptionGroup[Any]) -> Closing | Gone:
    """Return why it ended: what we decided before what the other side did."""
    found: list[Closing | Gone] = []
    for error in ended.exceptions:
        found += [_first(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((error for error in found if isinstance(error, Closing)), found[0])
