"""TLS from end to end: a broker with a certificate, and daemons that believe it or do not."""

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from claudemesh.asgi.messages import Receive, Scope, Send
from claudemesh.asgi.server import Server, ServerLimits
from claudemesh.asgi.sockets import bind_tcp, port_of
from claudemesh.broker.app import judge_listen
from claudemesh.broker.settings import BrokerSettings
from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.kernel.errors import BrokerUnreachable, ConfigError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.observe import Observer
from tests.certificates import Authority, Pair
from tests.integration.local_ipc import on_uvloop
from tests.mesh import local_broker, local_mesh, rejoin
from tests.printed import check_output

WITHIN_S = 30

HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: %b\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.sign("IP:127.0.0.1")


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))


# --- who is believed -------------------------------------------------------------------------------


@pytest.mark.req("N1")
@pytest.mark.usefixtures("trusted")
@on_uvloop
async def test_a_mesh_is_made_joined_and_spoken_in_over_tls(tmp_path: Path, pair: Pair) -> None:
    async with local_mesh(tmp_path, "alice", "bob", **pair.settings) as (broker, alice, bob):
        assert broker.url.startswith("https://")
        assert (await alice.send("bob", "hello")).status == 202
        assert [message["body"] for message in await bob.receives(1)] == ["hello"]


@pytest.mark.req("N1")
@pytest.mark.usefixtures("trusted")
@on_uvloop
async def test_a_broker_under_another_name_than_its_certificates_is_not_spoken_to(
    tmp_path: Path, pair: Pair
) -> None:
    async with local_broker(tmp_path, **pair.settings) as broker:
        [place] = await broker.enrol("alice")
        identity.move_broker(place, broker.url.replace("127.0.0.1", "localhost"))
        async with rejoin(place) as alice:
            health = await alice.until(lambda health: "certificate" in health["link"])
            assert "'localhost'" in health["link"]
            assert not health["connected"]


@pytest.mark.req("N1")
@on_uvloop
async def test_a_broker_of_an_unknown_authority_gets_nothing_until_the_authority_is_named(
    tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.certificate))
        async with local_broker(tmp_path, **pair.settings) as broker:
            [place] = await broker.enrol("alice")
            patch.delenv("SSL_CERT_FILE")
            async with rejoin(place) as alice:
                health = await alice.until(lambda health: "certificate" in health["link"])
                assert "SSL_CERT_FILE" in health["link"]
                assert (await alice.send(alice.keys.pubkey, "hello", client_message_id="m1")).status == 202
                [row] = (await alice.get("/v1/outbox"))["rows"]
                assert (row["client_message_id"], row["status"]) == ("m1", "pending")
                patch.setenv("SSL_CERT_FILE", str(authority.certificate))
                assert [message["body"] for message in await alice.receives(1)] == ["hello"]


@pytest.mark.req("N1")
@on_uvloop
async def test_a_mesh_is_not_made_at_a_broker_that_nobody_vouches_for(tmp_path: Path, pair: Pair) -> None:
    async with local_broker(tmp_path, **pair.settings) as broker:
        to = enrol.Enrolment(Home(tmp_path / "home"), "alice", SystemClock())
        with pytest.raises(BrokerUnreachable, match="SSL_CERT_FILE"):
            await asyncio.to_thread(enrol.create, to, "demo", broker.url)
        assert to.home.meshes() == []


# --- the listener ----------------------------------------------------------------------------------


@on_uvloop
async def test_who_speaks_plain_http_to_the_tls_port_is_cut_off_and_nobody_else_notices(
    tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    async with local_broker(tmp_path, **pair.settings) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(broker.url).port)
        writer.write(HEALTH % b"127.0.0.1")
        assert b"HTTP" not in await reader.read()
        writer.close()
        async with asking(broker.url, authority) as client:
            assert await client.status() == 200
    assert wrong == []


@on_uvloop
async def test_who_never_shakes_hands_is_cut_off_like_any_slow_client(pair: Pair) -> None:
    async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pair)
    listener = bind_tcp("127.0.0.1", 0)
    server = Server(nothing, [listener], Observer(), limits=ServerLimits(handshake_timeout_s=0.05), tls=context)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    try:
        async with asyncio.timeout(WITHIN_S):
            assert await reader.read() == b""
    finally:
        writer.close()
        await server.stop()


@pytest.mark.parametrize("said", [{"tls_cert": "a.pem"}, {"tls_key": "a.key"}])
@on_uvloop
async def test_a_certificate_without_its_key_is_refused_at_the_start(tmp_path: Path, said: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="tls_cert and tls_key"):
        async with local_broker(tmp_path, **said):
            pass


def test_the_address_that_is_told_says_how_to_speak_there() -> None:
    settings = {"store": "memory:", "listen": "[::]:7450", "admin_token_file": "token"}
    address = judge_listen(BrokerSettings(**settings, tls_cert="c", tls_key="k"))
    assert address.url(7450) == "https://[::]:7450"


# --- renewal ---------------------------------------------------------------------------------------


class Client:
    """One connection that stays."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def shown(self) -> str:
        [[(_, name)]] = self._writer.get_extra_info("peercert")["subject"]
        return str(name)

    async def status(self) -> int:
        host, port = self._writer.get_extra_info("peername")
        self._writer.write(HEALTH % f"{host}:{port}".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        await self._reader.readexactly(length)
        return int(head.split()[1])


@asynccontextmanager
async def asking(url: str, authority: Authority) -> AsyncIterator[Client]:
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=trusting)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@on_uvloop
@pytest.mark.prints("claudemesh broker serve")
async def test_a_hangup_renews_the_certificate_and_the_connections_of_before_live_on(
    authority: Authority, pair: Pair
) -> None:
    home = pair.key.parent
    (home / "broker.toml").write_text(f'tls_key = "{pair.key.name}"\n')  # beside the file, wherever we are
    words = ["broker", "serve", "--json", "--listen", "127.0.0.1:0", "--tls-cert", str(pair.chain)]
    broker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "claudemesh.cli.main", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"CLAUDEMESH_HOME": str(home)},
    )
    assert broker.stdout is not None
    assert broker.stderr is not None
    logged = broker.stderr

    async def told(name: str) -> None:
        while json.loads(await logged.readline())["event"] != name:
            pass

    try:
        ready = (await broker.stdout.readline()).decode()
        check_output("claudemesh", words, 0, ready)
        url = json.loads(ready)["url"]
        await told("http.certificate_read")
        async with asking(url, authority) as before:
            assert (before.shown, await before.status()) == ("1", 200)
            pair.become(authority.sign("IP:127.0.0.1"))
            broker.send_signal(signal.SIGHUP)
            await told("http.certificate_read")
            async with asking(url, authority) as after:
                assert (after.shown, await after.status()) == ("2", 200)
            pair.key.unlink()
            broker.send_signal(signal.SIGHUP)
            await told("http.certificate_kept")
            async with asking(url, authority) as still:
                assert (still.shown, await still.status()) == ("2", 200)
            assert await before.status() == 200
    finally:
        broker.terminate()
        await broker.communicate()
    assert broker.returncode == 0
