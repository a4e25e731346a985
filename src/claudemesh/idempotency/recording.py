"""What becomes of the app's answer: it is recorded before its end is sent, so that no client knows more than we do.

An answer in one piece is held until it is recorded. One that is streamed passes through piece by piece, and only
its last piece waits. A client that goes away does not stop the write: the app is not told before its answer is
there (or is too large to be kept anyway, or takes very long), and the retry finds it.
"""

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from claudemesh.asgi.messages import Message, Receive, Response, Scope, Send, problem_response, send_response
from claudemesh.idempotency.events import AnswerNotRecorded, MarkTakenOver
from claudemesh.idempotency.mark import Mark
from claudemesh.idempotency.model import Headers, KeptResponse
from claudemesh.idempotency.policy import POLICY_PATH
from claudemesh.idempotency.ports import KeyStore
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.idempotency import BUSY_RETRY_MS, is_kept
from claudemesh.kernel.write_errors import KeyInProgress
from claudemesh.runtime.observe import Observer

_START: Final = "http.response.start"
_BODY: Final = "http.response.body"
_GONE: Final = "http.disconnect"
_LENGTH: Final = b"content-length"

GONE_PATIENCE_S: Final = 30.0  # for an answer that nobody waits for; then the app is told


async def refuse(error: MeshError, scope: Scope, send: Send) -> None:
    """Answer with the problem, and with where to read what holds for keys here."""
    problem = problem_response(error)
    where = f'<{scope.get("root_path", "")}{POLICY_PATH}>; rel="describedby"'
    headers = (*problem.headers, (b"link", where.encode()))
    await send_response(Response(problem.status, problem.body, headers), scope, send)


class Exchange(NamedTuple):
    """One request, as the server gives it to us."""

    scope: Scope
    receive: Receive
    send: Send


class Recorder:
    """The `receive` and `send` of an app that runs under a mark."""

    def __init__(self, mark: Mark, store: KeyStore, observer: Observer, body: bytes, outside: Exchange) -> None:
        self.is_finished = False
        self._mark = mark
        self._store = store
        self._observer = observer
        self._scope, self._receive, self._send = outside
        self._request: bytes | None = body
        self._held: list[Message] = []  # what is not sent yet
        self._is_started = False  # for the client
        self._is_gone = False  # the client is
        self._may_know = asyncio.Event()  # that it is
        self._status = 0
        self._headers: Headers = ()
        self._length: int | None = None
        self._answer = bytearray()
        self._size = 0

    async def receive(self) -> Message:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        if message["type"] == _GONE:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._may_know.wait(), GONE_PATIENCE_S)
            self._is_gone = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == _START:
            self._begin(message)
        elif message["type"] != _BODY:
            await self._pass(message)  # an early hint
        elif message.get("more_body", False):
            self._collect(message)
            if not self._is_whole():
                await self._flush()
        else:
            self._collect(message)
            await self._finish()

    async def abandon(self) -> None:
        """Take note that there will be no answer: the next request begins anew.

        Unless it broke off because the client did, in an answer that was too large to be kept: then the write was
        done, and its status is all that would have been kept in any case.
        """
        if self._is_gone and self._is_too_large and is_kept(self._status):
            await self._record()
        else:
            await self._release()

    async def lose(self) -> bool:
        """Answer that another worker has taken the key over; False if another answer has begun."""
        self._observer.publish(MarkTakenOver())
        if self._is_started:
            return False
        self._held, self.is_finished = [], True
        self._may_know.set()
        await refuse(KeyInProgress(retry_after_ms=BUSY_RETRY_MS), self._scope, self._send)
        return True

    # --- piece by piece ----------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        self._status = message["status"]
        self._headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
        lengths = [value for name, value in self._headers if name.lower() == _LENGTH]
        self._length = int(lengths[0]) if lengths and lengths[0].isdigit() else None
        self._held.append(message)

    def _collect(self, message: Message) -> None:
        piece = message.get("body", b"")
        self._size += len(piece)
        self._held.append(message)
        if self._is_too_large:
            self._answer.clear()
            self._may_know.set()
        else:
            self._answer += piece

    @property
    def _is_too_large(self) -> bool:
        return self._size > self._mark.answer_bytes_max

    def _is_whole(self) -> bool:
        """Say whether a client that counts has all of it already, though the app has not said so."""
        return self._length is not None and self._size >= self._length

    async def _finish(self) -> None:
        await self._record()
        if self._mark.is_lost and await self.lose():
            return
        self.is_finished = True
        self._may_know.set()
        await self._flush()

    async def _flush(self) -> None:
        held, self._held = self._held, []
        for message in held:
            await self._pass(message)

    async def _pass(self, message: Message) -> None:
        if self._is_gone and not self._is_too_large:
            return
        self._is_started = self._is_started or message["type"] == _START
        try:
            await self._send(message)
        except OSError:  # what servers raise when the client is gone
            self._is_gone = True
            if self._is_too_large:
                raise

    # --- the record --------------------------------------------------------------------------------

    async def _record(self) -> None:
        if self._mark.is_lost:
            return
        if not is_kept(self._status):
            await self._release()
        elif not self._mark.is_settled:
            await self._settle()

    async def _settle(self) -> None:
        response = KeptResponse(self._status, self._headers, bytes(self._answer))
        settlement = self._mark.settlement(response, self._size)
        try:
            self._mark.is_lost = not await self._store.settle(self._mark.claim, settlement)
        except MeshError as error:  # the write is done: its caller should know, rather than try again
            self._observer.publish(AnswerNotRecorded(error.code))

    async def _release(self) -> None:
        """Also after `complete`, in case its transaction was rolled back; of a settled mark nothing is released."""
        try:
            await self._store.release(self._mark.claim)
        except MeshError as error:  # its lease runs out
            self._observer.publish(AnswerNotRecorded(error.code))
