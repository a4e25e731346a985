"""Attacks on the dashboard, each against a real daemon on a real port, and the answer that it gets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.asgi.events import TokenExposed
from claudemesh.dashboard.logins import CODE_MS, IDLE_MS
from claudemesh.ledger import MessageCassette
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from tests.integration.dashboard_page import KEYS, WITHIN_S, Page, opened
from tests.mesh import local_daemon


class AheadClock(SystemClock):
    """The real clock, further on by as much as a test says."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@pytest.fixture
def clock() -> AheadClock:
    return AheadClock()


@pytest.fixture
def world(clock: AheadClock) -> World:
    return World(clock, UlidSource(clock), roll)


# --- codes and bearers ---------------------------------------------------------------------------------


@pytest.mark.req("C4")
async def test_the_link_of_the_socket_opens_the_page_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        minted = (await page.daemon.post("/v1/dashboard/code", {})).body
        assert minted["url"] == f"http://127.0.0.1:{page.port}/ui/#{minted['code']}"
        assert (await page.post("/v1/dashboard/login", code=minted["code"]))["mesh"] == "demo"
        again = await page.ask("POST", "/v1/dashboard/login", {"code": minted["code"]})
        assert again.refusal == (401, "bad_token")
        assert minted["code"] not in again.body.decode()


@pytest.mark.req("C4")
async def test_a_code_that_is_too_old_or_guessed_opens_nothing(
    tmp_path: Path, world: World, clock: AheadClock
) -> None:
    async with opened(tmp_path, world=world) as page:
        code = await page.code()
        clock.ahead_ms += CODE_MS
        for wrong in (code, code[:-1] + "A", "A" * len(code), "x"):
            answer = await page.ask("POST", "/v1/dashboard/login", {"code": wrong})
            assert answer.refusal == (401, "bad_token")
        assert (await page.ask("POST", "/v1/dashboard/login", {"code": ""})).refusal == (400, "invalid_request")


@pytest.mark.req("C4")
async def test_a_bearer_that_is_not_used_ends_and_one_that_is_lives_on(
    tmp_path: Path, world: World, clock: AheadClock
) -> None:
    async with opened(tmp_path, world=world) as page:
        for _ in range(3):
            clock.ahead_ms += IDLE_MS * 2 // 3
            await page.get("/v1/dashboard/overview")
        clock.ahead_ms += IDLE_MS
        assert (await page.ask("GET", "/v1/dashboard/overview")).refusal == (401, "bad_token")


@pytest.mark.req("C4")
async def test_a_bearer_ends_with_the_local_token_with_a_logout_and_with_the_daemon(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        assert (await page.post("/v1/dashboard/logout")) == {"ended": True}
        assert (await page.ask("GET", "/v1/health")).refusal == (401, "bad_token")
        await page.login()
        code = await page.code()
        assert (await page.daemon.post("/v1/rotate-token", {})).status == 200
        assert (await page.ask("GET", "/v1/health")).refusal == (401, "bad_token")
        assert (await page.ask("POST", "/v1/dashboard/login", {"code": code})).refusal == (401, "bad_token")
        await page.login()
        bearer = page.bearer
    async with opened(tmp_path) as page:
        answer = await page.ask("GET", "/v1/health", authorization=f"Bearer {bearer}")
        assert answer.refusal == (401, "bad_token")


@pytest.mark.req("C4")
async def test_a_bearer_may_do_what_the_page_needs_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        for path, body in (
            ("/v1/send", {"to": "alice", "message": "x"}),
            ("/v1/rotate-token", {}),
            ("/v1/reload", {}),
            ("/v1/dashboard/code", {}),
            ("/v1/member/revoke", {"member": "alice"}),
            ("/v1/mesh/set", {}),
            ("/v1/outbox/prune", {"confirm": True}),
            ("/v1/outbox/requeue", {"id": "x", "patch": {"message": "another"}}),
            ("/v1/inbox/read", {"ids": []}),
            ("/v1/nowhere", {}),
        ):
            assert (await page.ask("POST", path, body)).refusal == (403, "forbidden"), path
        assert (await page.ask("GET", "/v1/metrics")).refusal == (403, "forbidden")
        local = {"authorization": f"Bearer {page.token}"}
        assert (await page.ask("POST", "/v1/dashboard/code", {}, **local)).status == 200, "its owner may"


@pytest.mark.req("C4")
async def test_the_stream_ends_with_its_login(tmp_path: Path) -> None:
    async with opened(tmp_path) as page, await page.connect() as client:
        head = ("GET /v1/events HTTP/1.1", f"Host: {client.host}", f"Authorization: Bearer {page.bearer}", "", "")
        await client.send("\r\n".join(head).encode())
        async with asyncio.timeout(WITHIN_S):
            assert b" 200 " in await client.reader.readuntil(b"\r\n\r\n")
            await client.reader.readuntil(b": here you are\n\n")
            await page.post("/v1/dashboard/logout")
            await client.reader.readuntil(b"0\r\n\r\n")


async def test_a_daemon_without_a_port_has_no_link(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "daemon" / "demo", keys=KEYS, tcp=False) as daemon:
        assert (await daemon.post("/v1/dashboard/code", {})).body["url"] is None


# --- 1 to 8, and 72 to 77 ------------------------------------------------------------------------------


@pytest.mark.req("C4", "D15")
async def test_attacks_1_to_3_without_a_bearer_or_with_one_in_the_address_there_is_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        exposed: list[TokenExposed] = []
        page.daemon.world.observer.subscribe(TokenExposed, exposed.append)
        bearer, page.bearer = page.bearer, ""
        assert (await page.ask("GET", "/v1/dashboard/overview")).refusal == (401, "missing_token")
        wrong = "A" * len(bearer)
        answer = await page.ask("GET", "/v1/dashboard/overview", authorization=f"Bearer {wrong}")
        assert answer.refusal == (401, "bad_token")
        page.bearer = bearer
        for query in (f"x={bearer}", "token=x"):
            answer = await page.ask("GET", f"/v1/dashboard/overview?{query}")
            assert answer.refusal == (400, "token_in_url")
        assert [event.is_ours for event in exposed] == [True, False]


@pytest.mark.req("C4", "D15")
async def test_attacks_4_to_8_and_72_and_77_another_name_origin_or_form_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        code = await page.code()
        for path in ("/ui/", "/v1/dashboard/overview", "/v1/events"):
            assert (await page.ask("GET", path, host="evil.example")).refusal == (403, "bad_host"), path
            assert (await page.ask("GET", path, origin="https://evil")).refusal == (403, "bad_origin"), path
            assert (await page.ask("GET", path, origin="null")).refusal == (403, "bad_origin"), path
        for path in ("/v1/dashboard/login", "/v1/dashboard/outbox/drop", "/v1/dashboard/relay/decide"):
            body = {"code": code, "id": "x", "key": "k", "decision": "retry"}
            assert (await page.ask("POST", path, body, origin="https://evil")).refusal == (403, "bad_origin")
            assert (await page.ask("POST", path, body, content_type="text/plain")).refusal == (415, "json_only")
            answer = await page.ask("OPTIONS", path, origin="https://evil")
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]
        assert await page.post("/v1/dashboard/login", code=code), "none of it used the code up"


@pytest.mark.req("C4")
async def test_attacks_71_74_and_75_what_is_served_can_neither_be_framed_nor_sniffed_nor_tells_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as page:
        bearer, page.bearer = page.bearer, ""
        shown = await page.ask("GET", "/ui/")
        assert (shown.status, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
        assert (shown.headers["x-frame-options"], shown.headers["referrer-policy"]) == ("DENY", "no-referrer")
        assert "set-cookie" not in shown.headers
        assert page.token not in shown.body.decode()
        page.bearer = bearer
        for path in ("/v1/dashboard/overview", "/v1/dashboard/relay/envelope?id=x", "/v1/nowhere"):
            answer = await page.ask("GET", path)
            assert answer.headers["x-content-type-options"] == "nosniff", path
            assert "json" in answer.headers["content-type"]


def dump(folder: Path) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield all that the databases of a home hold, but for what an index of words keeps for itself."""
    for file in sorted(folder.rglob("*.db")):
        with apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
            ).fetchall()
            for (name,) in tables:
                if not name.startswith("inbox_words"):
                    yield file.name, name, connection.execute(f'SELECT * FROM "{name}"').fetchall()  # noqa: S608


async def gets(page: Page) -> list[str]:
    """Return the address of everything that can be got, with an id where one belongs."""
    document = (await page.ask("GET", "/openapi.json", authorization=f"Bearer {page.token}")).json
    named = {"{id}": "m1", "{name}": "index.html", "{token}": "x"}
    found = []
    for path, methods in document["paths"].items():
        if "get" in methods and path != "/v1/events":
            for name, value in named.items():
                path = path.replace(name, value)  # noqa: PLW2901 - one after the other
            needs = [
                one["name"] for one in methods["get"]["parameters"] if one["in"] == "query" and one["required"]
            ]
            found.append(path + "".join(f"?{name}=m1" for name in needs))
    return found


@pytest.mark.req("C4")
async def test_attack_73_no_get_changes_anything(tmp_path: Path) -> None:
    with MessageCassette(db_path=tmp_path / "ledger.db") as ledger:
        ledger.post_message({"intent": "build"}, "nightly", "USER")
    async with opened(tmp_path) as page:
        await page.daemon.send("alice", "x", client_message_id="m1")
        paths = await gets(page)
        assert {"/v1/outbox/m1", "/ui/index.html", "/v1/dashboard/pipeline"} <= set(paths)
        before = list(dump(tmp_path))
        for path in paths:
            answer = await page.ask("GET", path, authorization=f"Bearer {page.token}")
            assert answer.status < 500 or answer.refusal[1] == "broker_unreachable", (path, answer.body)
        assert list(dump(tmp_path)) == before
