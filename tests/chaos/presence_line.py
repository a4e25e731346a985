"""A way to a broker that keeps what passes over it, and can be cut. Its frames are read as anybody on it could."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from claudemesh.wire import frames

BITS_16, BITS_64 = 126, 127  # how long a WebSocket's payload is, where its first bytes do not say
TEXT = 1


class Reading:
    """One direction of one connection: the HTTP head, then WebSocket frames; those of a client are masked."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take = take
        self._rest = b""
        self._has_head = False

    def feed(self, data: bytes) -> None:
        self._rest += data
        if not self._has_head:
            _, end, rest = self._rest.partition(b"\r\n\r\n")
            if not end:
                return
            self._has_head, self._rest = True, rest
        while (frame := self._next()) is not None:
            opcode, payload = frame
            if opcode == TEXT:
                self._take(msgspec.json.decode(payload))

    def _next(self) -> tuple[int, bytes] | None:
        raw = self._rest
        if len(raw) < 2:
            return None
        is_masked, length, at = raw[1] & 0x80, raw[1] & 0x7F, 2
        if length >= BITS_16:
            size = 2 if length == BITS_16 else 8
            length, at = int.from_bytes(raw[at : at + size], "big"), at + size
        mask, at = (raw[at : at + 4], at + 4) if is_masked else (b"", at)
        if len(raw) < at + length:
            return None
        payload, self._rest = raw[at : at + length], raw[at + length :]
        if mask:
            payload = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        return raw[0] & 0x0F, payload


class Line:
    """`said` is what daemons said, `told` what brokers did, in order, each as its JSON."""

    def __init__(self, broker_url: str) -> None:
        self._broker = broker_url.removeprefix("http://").encode()
        self._open: set[asyncio.StreamWriter] = set()
        self._own = b""
        self.said: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.connections = 0
        self.url = ""

    def cut(self) -> None:
        """End every connection that stands, as a network that drops does."""
        for writer in self._open:
            writer.transport.abort()

    def newest_token(self) -> str:
        """Return the resume token that was given out last."""
        return next(one["resumeToken"] for one in reversed(self.told) if one.get("resumeToken"))

    def hellos(self) -> list[dict[str, Any]]:
        return [one for one in self.said if one["type"] == "hello"]

    def acks(self) -> list[dict[str, Any]]:
        return [one for one in self.told if one["type"] == "hello_ack"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._broker.decode().rpartition(":")
        try:
            onwards, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        self._open |= {writer, back}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, self.said.append))
                group.create_task(self._pass(onwards, writer, self.told.append))
        finally:
            self._open -= {writer, back}

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, take: Callable[[dict[str, Any]], None]
    ) -> None:
        reading = Reading(take)
        with suppress(OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            reading.feed(head)
            writer.write(head.replace(self._own, self._broker))  # the broker looks at Host
            while data := await reader.read(1 << 16):
                reading.feed(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Line"]:
        server = await asyncio.start_server(self._serve_quietly, "127.0.0.1", 0)
        self._own = b"127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        self.url = f"http://{self._own.decode()}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    async def _serve_quietly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ExceptionGroup):  # it was cut in its first words
            await self.serve(reader, writer)


def is_resumed(ack: dict[str, Any]) -> bool:
    return bool(msgspec.convert(ack, frames.HelloAck).resumed)


def subject_of(token: str) -> str:
    """Return whose resume token it is, which it says to anybody."""
    text = token.split(".")[2]
    payload: dict[str, str] = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return payload["sub"]
