"""What a daemon does when no broker's terms will do, and who gets in by TCP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from claudemesh.runtime.keys import KeyPair
from tests.mesh import WITHIN_S, LocalDaemon, a_membership, a_welcome, local_daemon, local_mesh

GOOD = {
    "client_message_id_dedupe": {
        "params": {
            "version": 2,
            "mode": "retention_scoped",
            "dedupe_retention_days": 30,
            "request_fingerprint": True,
        }
    },
    "concurrent_connection_policy": {"params": {"version": 1}},
}


@asynccontextmanager
async def scripted_broker(offers: list[dict[str, Any]]) -> AsyncIterator[str]:
    """Stand in for a broker that takes every hello and then makes these offers, one a connection."""

    async def talk(socket: ServerConnection) -> None:
        assert socket.request is not None
        await socket.send(a_welcome(socket.request.path))
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "hello":
                ack = {
                    "presenceId": "p",
                    "memberId": "m",
                    "meshSlug": "demo",
                    "leaseTtlMs": 1,
                    "brokerVersion": "x",
                }
                await socket.send(json.dumps({"type": "hello_ack", **ack}))
            elif frame["type"] == "feature_negotiation_request":
                offer = offers.pop(0) if len(offers) > 1 else offers[0]
                await socket.send(json.dumps({"type": "feature_negotiation_response", "supported": offer}))
                if offers[0] is not offer:
                    await socket.close()
            elif frame["type"] == "call":
                await socket.send(
                    json.dumps({"type": "reply", "n": frame["n"], "result": {"members": [], "items": []}})
                )

    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def without(feature: str) -> dict[str, Any]:
    return {name: offer for name, offer in GOOD.items() if name != feature}


@pytest.mark.req("N3")
@pytest.mark.parametrize(
    "offer",
    [
        {},
        without("concurrent_connection_policy"),
        GOOD | {"client_message_id_dedupe": {"params": {"version": 1}}},
        GOOD
        | {
            "client_message_id_dedupe": {
                "params": {**GOOD["client_message_id_dedupe"]["params"], "dedupe_retention_days": 3}
            }
        },
    ],
)
async def test_a_daemon_that_finds_no_terms_at_its_first_connection_ends_and_says_why(
    tmp_path: Path, offer: dict[str, Any]
) -> None:
    async with scripted_broker([offer]) as url:
        joined = a_membership("demo", url)
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            assert daemon.task is not None
            assert await asyncio.wait_for(daemon.task, WITHIN_S) == 1
        assert "daemon.negotiation_refused" in (tmp_path / "demo" / "daemon.log").read_text()


@pytest.mark.req("N3", "D9")
async def test_a_daemon_that_had_terms_before_goes_on_accepting_when_they_get_worse(tmp_path: Path) -> None:
    async with scripted_broker([GOOD, {}]) as url:
        joined = a_membership("demo", url)
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            await daemon.until(lambda health: health["degraded"])
            assert (await daemon.send("queue:work", "x")).status == 202
            events = (tmp_path / "demo" / "daemon.log").read_text()
            assert "daemon.negotiation_refused" in events


async def by_tcp(daemon: LocalDaemon, path: str, *headers: str) -> int:
    port = int((daemon.state_dir / "http.port").read_text())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.read(), WITHIN_S)
    writer.close()
    return int(answer.split()[1])


@pytest.mark.req("D15")
async def test_tcp_needs_the_token_and_a_new_one_leaves_the_old_a_while(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), tcp=True) as daemon:
        file = daemon.state_dir / "local_token"
        old = file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600
        assert await by_tcp(daemon, "/v1/health") == 401
        assert await by_tcp(daemon, "/v1/health", "authorization: Bearer " + "x" * len(old)) == 401
        assert await by_tcp(daemon, "/v1/health", f"authorization: Bearer {old}") == 200
        assert await by_tcp(daemon, f"/v1/health?token={old}") == 400
        assert await by_tcp(daemon, "/v1/health", f"authorization: Bearer {old}", "origin: https://evil") == 403
        assert (await daemon.post("/v1/rotate-token", {})).status == 200
        new = file.read_text().strip()
        assert new != old
        for token in (old, new):
            assert await by_tcp(daemon, "/v1/health", f"authorization: Bearer {token}") == 200
        log = (daemon.state_dir / "daemon.log").read_text()
        assert old not in log
        assert new not in log


@pytest.mark.req("Q6")
async def test_a_receipt_that_was_missed_is_asked_for_after_the_next_connection(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, bob):
        await bob.send("alice", "wake up")
        await alice.receives(1)
        await alice.send("bob", "x", client_message_id="m1")
        (message,) = await bob.receives(1)
        await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        last = (await alice.get("/v1/inbox"))["messages"][-1]["cursor"]
        await broker.stop()
        await bob.post("/v1/inbox/read", {"ids": [message["broker_message_id"]]})
        await broker.start()
        await alice.until(lambda found: found["state"] == "read", "/v1/trace/m1")
        reader, writer = await asyncio.open_unix_connection(str(alice.state_dir / "sock"))
        writer.write(f"GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: {last}\r\n\r\n".encode())
        seen = b""
        async with asyncio.timeout(WITHIN_S):
            while b'"state":"read"' not in seen:
                seen += await reader.read(65536)
        writer.close()
        assert b"event: receipt" in seen
