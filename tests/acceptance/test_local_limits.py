"""How much the daemon takes at once, as its settings file says."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from claudemesh.daemon.client import Client
from claudemesh.daemon.settings import Config
from claudemesh.kernel.errors import ConfigError, PayloadTooLarge
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.settings import load
from tests.mesh import WITHIN_S, LocalDaemon, local_daemon


@asynccontextmanager
async def configured(folder: Path, *lines: str, tcp: bool = False) -> AsyncIterator[LocalDaemon]:
    """Start a daemon by a settings file, as the command line does."""
    file = folder / "config.toml"
    file.write_text("\n".join(["[ipc]", *lines]))
    async with local_daemon(folder / "demo", keys=KeyPair.generate(), config=load(Config, file), tcp=tcp) as daemon:
        yield daemon


async def post_bytes(daemon: LocalDaemon, path: str, size: int) -> int:
    """Post a message of a queue, alone or as a batch of one, in a body of exactly so many bytes."""
    one = {"to": "queue:q", "message": "x"}
    body = {"sends": [one]} if path.endswith("batch") else one
    padding = "x" * (size - len(orjson.dumps({**body, "": 1})))
    with Client(daemon.state_dir / "sock") as client:
        return (await asyncio.to_thread(client.request, "POST", path, {**body, padding: 1}))[0]


@pytest.mark.req("D13")
async def test_requests_and_batches_are_as_large_as_the_settings_say_and_no_larger(tmp_path: Path) -> None:
    async with configured(tmp_path, "body_bytes_max = 65536", "batch_bytes_max = 131072") as daemon:
        for path, size in {"/v1/send": 65_536, "/v1/send/batch": 131_072}.items():
            assert await post_bytes(daemon, path, size) in (200, 202)
            with pytest.raises(PayloadTooLarge) as refused:
                await post_bytes(daemon, path, size + 1)
            assert refused.value.extras["bytes_max"] == size
        assert len((await daemon.get("/v1/outbox"))["rows"]) == 2, "what is refused leaves nothing behind"


@pytest.mark.req("D13")
async def test_a_batch_beyond_the_default_is_taken_where_the_settings_allow_it(tmp_path: Path) -> None:
    async with configured(tmp_path, "batch_bytes_max = 25165824") as daemon:
        assert await post_bytes(daemon, "/v1/send/batch", 20 << 20) == 200
        with pytest.raises(PayloadTooLarge):  # one send is as before
            await post_bytes(daemon, "/v1/send", (1 << 20) + 1)


@pytest.mark.req("D13")
async def test_one_request_more_than_the_settings_allow_at_once_is_told_to_come_again(tmp_path: Path) -> None:
    async with configured(tmp_path, "in_flight_max = 2") as daemon:
        held = []
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
            held.append(writer)
            # Under way as long as its body is not all there; the server asks for it when the request has its place.
            writer.write(b"POST /v1/send HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
            assert b"100 Continue" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        busy = await daemon.request("GET", "/v1/version")
        assert (busy.status, busy.body["code"], busy.headers["retry-after"]) == (429, "daemon_busy", "1")
        held.pop().close()
        await daemon.until(lambda answer: "daemon_version" in answer, "/v1/version")
        held.pop().close()


@pytest.mark.req("D13")
async def test_one_stream_more_than_the_settings_allow_is_told_so(tmp_path: Path) -> None:
    async with configured(tmp_path, "streams_max = 1") as daemon:
        reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"here you are"), WITHIN_S)
        refused = await daemon.request("GET", "/v1/events")
        assert (refused.status, refused.body["code"]) == (429, "too_many_streams")
        writer.close()


@pytest.mark.req("D13")
async def test_a_token_is_held_to_the_settings_rate_and_the_socket_is_not(tmp_path: Path) -> None:
    async with configured(tmp_path, "requests_per_s = 1", "burst = 2", tcp=True) as daemon:
        port = int((daemon.state_dir / "http.port").read_text())
        token = (daemon.state_dir / "local_token").read_text().strip()
        head = f"GET /v1/version HTTP/1.1\r\nhost: localhost:{port}\r\nauthorization: Bearer {token}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port, family=socket.AF_INET)
        writer.write(head.encode() * 20)
        told = b""
        async with asyncio.timeout(WITHIN_S):
            while told.count(b"HTTP/1.1 ") < 20:
                told += await reader.read(65536)
        writer.close()
        assert told.startswith(b"HTTP/1.1 200 ")
        assert b'"code":"rate_limited"' in told
        by_socket = [(await daemon.request("GET", "/v1/version")).status for _ in range(5)]
        assert by_socket == [200] * 5


@pytest.mark.req("D13")
@pytest.mark.parametrize(
    "line",
    [
        "body_bytes_max = 65535",
        "body_bytes_max = 67108865",
        "batch_bytes_max = 0",
        "batch_bytes_max = '8 MiB'",
        "in_flight_max = 0",
        "streams_max = 0",
        "requests_per_s = 0",
        "burst = 0",
    ],
)
async def test_a_limit_that_is_none_keeps_the_daemon_from_starting(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        async with configured(tmp_path, line):
            pass
