"""One upstream, at addresses that were judged: each that a name has, and what is inside of it."""

import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest

from claudemesh.edge.addresses import judge_address, parse_networks, parse_origin, unwrap
from claudemesh.edge.upstream import Unreached, Upstream
from claudemesh.kernel.errors import ConfigError
from tests.certificates import Authority
from tests.unit.edge.fake_upstream import OK, answer, ask, hold, say, upstream_of

HUB = parse_origin("https://hub.example")


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "authority"),
    [
        ("http://127.0.0.1:18000", "127.0.0.1", 18000, "", "127.0.0.1:18000"),
        ("https://Hub.Example/", "hub.example", 443, "", "hub.example"),
        ("https://hub.example:443/api/v1/", "hub.example", 443, "/api/v1", "hub.example"),
        ("http://[::1]:8080", "::1", 8080, "", "[::1]:8080"),
        ("http://localhost", "localhost", 80, "", "localhost"),
        ("https://hub-1.x.internal.", "hub-1.x.internal.", 443, "", "hub-1.x.internal."),
    ],
)
def test_an_origin_is_read(url: str, host: str, port: int, prefix: str, authority: str) -> None:
    origin = parse_origin(url)
    assert (origin.host, origin.port, origin.prefix, origin.authority) == (host, port, prefix, authority)


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "hub.example",
        "//hub.example",
        "file:///etc/passwd",
        "gopher://hub.example/",
        "unix:/run/hub.sock",
        "https://",
        "https://user:s3cr3t@hub.example",
        "https://token@hub.example",
        "https://hub.example/?a=b",
        "https://hub.example/?",
        "https://hub.example/#a",
        "https://hub.example/a/../b",
        "https://hub.example/a%2f",
        "https://hub.example:0",
        "https://hub.example:99999",
        "https://[::1",
        "https://0",
        "https://2130706433",
        "https://127.1",
        "https://0x7f.0.0.1",
        "https://0177.0.0.1",
        "https://hub..example",
        "https://hub_.example\r\nx",
        "https://" + "a" * 300,
        "https://bücher.example",
    ],
)
def test_what_names_no_upstream_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_origin(url)
    assert "s3cr3t" not in str(refused.value)


def test_networks_are_read_or_refused() -> None:
    assert [str(network) for network in parse_networks(["10.0.0.0/8", "fd00::/8"])] == ["10.0.0.0/8", "fd00::/8"]
    for text in ("10.0.0.1/8", "x", ""):
        with pytest.raises(ConfigError):
            parse_networks([text])


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",  # noqa: S104 - nobody binds it here
        "::",
        "169.254.169.254",
        "fd00::1",
        "fe80::1",
        "fe80::1%eth0",
        "10.1.2.3",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "192.0.2.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:53aa:64c::80ff:fffe",
        "localhost",
        "0",
        "2130706433",
        "",
    ],
)
def test_40_a_name_may_not_resolve_to_what_is_not_public(address: str) -> None:
    assert judge_address(HUB, address, ()) is not None


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::808:808"])
def test_a_name_may_resolve_to_what_is_public_if_there_is_tls(address: str) -> None:
    assert judge_address(HUB, address, ()) is None
    assert judge_address(parse_origin("http://hub.example"), address, ()) is not None


@pytest.mark.parametrize(
    ("url", "address", "networks", "is_allowed"),
    [
        ("http://hub.internal", "10.1.2.3", ["10.0.0.0/8"], True),
        ("http://hub.internal", "11.1.2.3", ["10.0.0.0/8"], False),
        ("http://hub.internal", "::ffff:10.1.2.3", ["10.0.0.0/8"], True),
        ("http://hub.internal", "fd00::7", ["fd00::/8"], True),
        ("http://hub.internal", "0.0.0.0", ["0.0.0.0/0"], False),  # noqa: S104 - as above
        ("http://localhost", "127.0.0.1", [], True),
        ("http://localhost.", "::1", [], True),
        ("http://localhost", "10.0.0.1", [], False),
        ("https://10.1.2.3", "10.1.2.3", [], True),
        ("https://10.1.2.3", "10.1.2.4", [], False),
        ("http://10.1.2.3", "10.1.2.3", [], False),
        ("http://10.1.2.3", "10.1.2.3", ["10.1.2.3/32"], True),
        ("http://127.0.0.1", "127.0.0.1", [], True),
        ("http://[::1]", "::1", [], True),
        ("http://127.0.0.1", "127.0.0.2", [], False),
    ],
)
def test_what_an_operator_names_is_allowed(
    url: str, address: str, networks: list[str], *, is_allowed: bool
) -> None:
    assert (judge_address(parse_origin(url), address, parse_networks(networks)) is None) is is_allowed


def test_an_address_inside_of_another_is_what_counts() -> None:
    for text in ("::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "127.0.0.1"):
        assert unwrap(ip_address(text)) == ip_address("127.0.0.1")
    assert unwrap(ip_address("fd00::1")) == ip_address("fd00::1")


@pytest.mark.req("R4")
@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://0.0.0.0:80", "http://8.8.8.8"])
def test_an_upstream_that_may_never_be_connected_to_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError):
        Upstream(url)


# --- the connection ------------------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_41_the_connection_is_made_to_the_very_address_that_was_judged() -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"]]  # as the name resolves the first time, and ever after
    asked: list[str] = []

    async def rebinding(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[min(len(asked), 2) - 1]

    async with upstream_of((answer(OK), hold), host="127.0.0.2") as fake:
        networks = parse_networks(["127.0.0.2/32"])
        upstream = Upstream(f"http://hub.example:{fake.port}", resolver=rebinding, networks=networks)
        assert (await ask(upstream)).status == 200
        assert (asked, fake.connections) == (["hub.example"], 1)
        assert b"host: hub.example:%d\r\n" % fake.port in fake.requests[0]
        await upstream.close()
        again = Upstream(f"http://hub.example:{fake.port}", resolver=rebinding, networks=networks)
        with pytest.raises(Unreached, match=r"127\.0\.0\.1"):
            await ask(again)
        assert fake.connections == 1


@pytest.mark.req("R4")
async def test_41_one_address_that_is_not_allowed_spoils_all_of_them() -> None:
    async def mixed(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1", "169.254.169.254"]

    async with upstream_of((answer(OK),)) as fake:
        upstream = Upstream(f"http://localhost:{fake.port}", resolver=mixed)
        with pytest.raises(Unreached, match=r"169\.254"):
            await ask(upstream)
    assert fake.connections == 0


async def test_the_next_address_is_tried_if_nobody_is_at_the_first() -> None:
    async def two(_host: str, _port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.1"]

    async with upstream_of((answer(OK),)) as fake:
        upstream = Upstream(f"http://localhost:{fake.port}", resolver=two)
        assert (await ask(upstream)).status == 200
        await upstream.close()


# --- TLS -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


def server_context(authority: Authority, *names: str) -> ssl.SSLContext:
    pair = authority.sign(*names)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.chain, pair.key)
    return context


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


async def test_an_upstream_with_a_certificate_that_is_believed_is_asked_over_tls(authority: Authority) -> None:
    async with upstream_of((answer(OK),) * 2, tls=server_context(authority, "DNS:localhost")) as fake:
        upstream = Upstream(f"https://localhost:{fake.port}", tls=trusting(authority.certificate))
        for _ in range(2):
            assert (await ask(upstream)).body == b"ok"
        assert fake.connections == 1
        await upstream.close()


@pytest.mark.req("R4")
async def test_a_certificate_that_is_not_believed_is_sent_nothing(authority: Authority) -> None:
    async with (
        upstream_of((answer(OK),), tls=server_context(authority, "DNS:other.example")) as other,
        upstream_of((answer(OK),), tls=server_context(authority, "DNS:localhost")) as unknown,
        upstream_of((say(OK), hold)) as plain,
    ):
        for fake, tls in (
            (other, trusting(authority.certificate)),
            (unknown, None),
            (plain, trusting(authority.certificate)),
        ):
            upstream = Upstream(f"https://localhost:{fake.port}", tls=tls, credential=lambda: "token")
            with pytest.raises(Unreached):
                await ask(upstream)
            assert fake.requests == []
            await upstream.close()
