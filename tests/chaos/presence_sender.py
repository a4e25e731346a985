"""Somebody who sends one message after the other, in a process of its own, so that only the broker slows it down.

    python -m tests.chaos.presence_sender STATE_DIR BROKER_URL RECIPIENT

Until it is killed it prints `sent ID STATUS SECONDS` for each answer, with the monotonic clock's time of it, and
`delivered ID` for each receipt.
"""

import asyncio
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire import frames
from tests.chaos.presence_clients import peer_of
from tests.integration.broker_client import Wire, item


async def send(state_dir: str, url: str, to: str) -> None:
    async with peer_of(Path(state_dir), url).connected() as wire:
        for number in count():
            key = f"m{number:06}"
            [outcome] = await wire.send(item(key, Kind.DM, to))
            print(f"sent {key} {outcome.status} {time.monotonic()}", flush=True)  # noqa: T201  that is how the test knows
            tell_receipts(wire)


def tell_receipts(wire: Wire) -> None:
    for frame in [one for one in wire._passed if isinstance(one, frames.Receipt)]:
        for told in frame.items:
            if told.state == "delivered":
                print(f"delivered {told.client_message_id}", flush=True)  # noqa: T201
    wire._passed.clear()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(send(*sys.argv[1:]))
