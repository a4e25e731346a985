"""Sessions that only show that they are there: a process of its own, with as little in it as there can be.

    python -m benchmarks.sessions STATE_DIR idle COUNT       until its standard input ends
    python -m benchmarks.sessions STATE_DIR resume COUNT     one after the other; prints the times
    python -m benchmarks.sessions STATE_DIR herd COUNT       all drop at a line of its standard input, and come back

It prints `connected COUNT` when the broker has acknowledged every hello, and one line of JSON with what it found.
"""

import asyncio
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import uvloop

from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames, signing

AT_ONCE = 64
WITHIN_S = 60.0
HOUR_MS = 3_600_000
TEXT, PING, PONG = 1, 9, 10
MASK = bytes(4)  # of zeros: nothing is hidden from ourselves
EXTENDED = 126

clock = SystemClock()


@dataclass
class Who:
    """A session: its key, its instance, and what it needs to take its lease up again."""

    joined: Joined
    member: KeyPair
    keys: KeyPair = field(default_factory=KeyPair.generate)
    instance_id: str = field(default_factory=lambda: uuid4().hex)
    resume_token: str | None = None
    was_resumed: bool = False

    def hello(self, nonce: str) -> frames.Hello:
        now = clock.wall_ms()
        word = frames.Attestation(
            session_pubkey=self.keys.pubkey,
            parent_member_pubkey=self.member.pubkey,
            expires_at=now + HOUR_MS,
            signature="",
        )
        word = msgspec.structs.replace(word, signature=self.member.sign(signing.attestation_bytes(word)))
        hello = frames.Hello(
            mesh_id=self.joined.mesh_id,
            member_pubkey=self.member.pubkey,
            instance_id=self.instance_id,
            timestamp_ms=now,
            signature="",
            session_pubkey=self.keys.pubkey,
            attestation=word,
            resume_token=self.resume_token,
            presence_only=True,
        )
        return msgspec.structs.replace(hello, signature=self.keys.sign(signing.hello_bytes(nonce, hello)))


class Socket(asyncio.Protocol):
    """A WebSocket client by hand: the upgrade, one hello, then pongs. Without anybody it is the upgrade alone."""

    def __init__(self, netloc: str, who: Who | None) -> None:
        self._netloc, self._who = netloc, who
        self._buffer = b""
        self._is_open = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(
            f"GET /v1/ws HTTP/1.1\r\nHost: {self._netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_open:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            assert b" 101 " in head.split(b"\r\n")[0], head
            self._is_open, self._buffer = True, rest
            if self._who is None:
                self.ready.set_result(None)
        while len(self._buffer) >= 2:  # noqa: PLR2004  the shortest head
            begins, size = 2, self._buffer[1]
            if size == EXTENDED:
                if len(self._buffer) < 4:  # noqa: PLR2004  its length is not here yet
                    return
                begins, size = 4, int.from_bytes(self._buffer[2:4], "big")
            if len(self._buffer) < begins + size:
                return
            opcode, payload = self._buffer[0] & 15, self._buffer[begins : begins + size]
            self._buffer = self._buffer[begins + size :]
            self._take(opcode, payload)

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._say(PONG, payload)
        if opcode != TEXT or self._who is None:
            return
        match frames.parse_from_broker(payload.decode()):
            case frames.Welcome(nonce=nonce):
                self._say(TEXT, frames.render(self._who.hello(nonce)).encode())
            case frames.HelloAck(resume_token=token, resumed=resumed):
                self._who.resume_token, self._who.was_resumed = token, resumed
                self.ready.set_result(None)
            case frames.LeaseRenewed(resume_token=token):
                self._who.resume_token = token
            case frames.Error(code=code) if not self.ready.done():
                self.ready.set_exception(RuntimeError(code))
            case _:
                pass

    def _say(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([0x80 | size]) if size < EXTENDED else bytes([0x80 | EXTENDED]) + size.to_bytes(2, "big")
        self.transport.write(bytes([0x80 | opcode]) + length + MASK + payload)


class Crowd:
    def __init__(self, state_dir: Path) -> None:
        self._joined, self._member = identity.load_membership(state_dir), identity.load_keys(state_dir)
        self._place = urlsplit(self._joined.broker_url)
        self._room = asyncio.Semaphore(AT_ONCE)

    def who(self) -> Who:
        return Who(self._joined, self._member)

    async def connect(self, who: Who | None) -> Socket:
        loop, place = asyncio.get_running_loop(), self._place
        host, port = place.hostname or "", place.port or 0
        _, socket = await loop.create_connection(lambda: Socket(place.netloc, who), host, port)
        async with asyncio.timeout(WITHIN_S):
            await socket.ready
        return socket

    async def gather(self, count: int) -> list[tuple[Who, Socket]]:
        async def come() -> tuple[Who, Socket]:
            async with self._room:
                who = self.who()
                return who, await self.connect(who)

        found = await asyncio.gather(*(come() for _ in range(count)))
        print(f"connected {len(found)}", flush=True)
        return found


async def idle(crowd: Crowd, count: int) -> dict[str, float]:
    await crowd.gather(count)
    await asyncio.to_thread(sys.stdin.read)
    return {}


async def resume(crowd: Crowd, count: int) -> dict[str, float]:
    """Time one that comes back again and again, beside a handshake that nothing follows."""
    [(who, socket)] = await crowd.gather(1)
    bare, resumed = [], []
    for _ in range(count):
        began = time.perf_counter()
        (await crowd.connect(None)).transport.abort()
        bare.append(time.perf_counter() - began)
        socket.transport.abort()
        began = time.perf_counter()
        socket = await crowd.connect(who)
        resumed.append(time.perf_counter() - began)
        assert who.was_resumed
    return {"bare_ms": median(bare) * 1000, "resume_ms": median(resumed) * 1000}


async def herd(crowd: Crowd, count: int) -> dict[str, float]:
    """Drop all at once, and have each come back as a daemon does: after a moment of its own choice."""
    standing = await crowd.gather(count)
    await asyncio.to_thread(sys.stdin.readline)
    began, back = time.perf_counter(), []
    for _, socket in standing:
        socket.transport.abort()

    async def come_back(who: Who) -> None:
        await asyncio.sleep(derive_backoff_ms(1, random.random()) / 1000)  # noqa: S311  jitter
        await crowd.connect(who)
        assert who.was_resumed
        back.append(time.perf_counter() - began)

    await asyncio.gather(*(come_back(who) for who, _ in standing))
    return {"all_back_s": max(back), "half_back_s": median(back)}


async def main(state_dir: Path, mode: str, count: int) -> None:
    found = await {"idle": idle, "resume": resume, "herd": herd}[mode](Crowd(state_dir), count)
    print(msgspec.json.encode(found).decode(), flush=True)
    os._exit(0)  # thousands of closes are nobody's to wait for


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
