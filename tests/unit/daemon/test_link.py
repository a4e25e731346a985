"""One connection by itself, on a socket that a test speaks for."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from claudemesh.daemon import link
from claudemesh.daemon.link import Link, LinkClosed
from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire import frames

WITHIN_S = 10

ACK = frames.HelloAck(presence_id="P", member_id="M", mesh_slug="demo", lease_ttl_ms=1, broker_version="1")


class Socket:
    """Gives what it was told to; takes nothing any more once it is cut."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [*texts]
        self._cut = asyncio.Event()
        self.transport = SimpleNamespace(abort=self._cut.set)

    async def recv(self) -> str:
        if self._texts:
            return self._texts.pop(0)
        await self._cut.wait()
        raise ConnectionClosedError(Close(frames.CLOSE_REPLACED_BY_NEWER, ""), None)

    async def send(self, _text: str) -> None:
        raise ConnectionClosedError(None, None)


class SlowInbox:
    """Stores the first frame when it may."""

    def __init__(self) -> None:
        self.is_storing = asyncio.Event()
        self.may_store = asyncio.Event()

    async def deliver(self, _items: Sequence[frames.DeliverItem]) -> None:
        self.is_storing.set()
        await self.may_store.wait()

    def refused(self, _count: object) -> None: ...


def a_delivery(history_id: int) -> str:
    item = frames.DeliverItem(
        history_id=history_id,
        broker_message_id=f"B{history_id}",
        client_message_id=f"m{history_id}",
        sender_id="A",
        sender_pubkey="a" * 64,
        sender_name="alice",
        kind=Kind.DM,
        ref="b" * 64,
        body="hello",
        accepted_at=1,
    )
    return frames.render_deliver([frames.render_item(item)])


@pytest.mark.req("D9")
async def test_a_connection_that_is_lost_while_the_inbox_is_behind_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "DELIVERIES_MAX", 1)
    inbox: Any = SlowInbox()
    socket: Any = Socket([a_delivery(number) for number in range(1, 9)])
    running = asyncio.create_task(Link(socket, ACK).run(inbox))
    async with asyncio.timeout(WITHIN_S):
        await inbox.is_storing.wait()
        await asyncio.sleep(0)  # the reader fills the queue, and waits for room
        inbox.may_store.set()  # the acknowledgement finds the connection cut
        with pytest.raises(LinkClosed) as ended:
            await running
        assert ended.value.code == frames.CLOSE_REPLACED_BY_NEWER, "it is known how it ended, not that storing did"
