"""The middleware on apps that are not ours: FastAPI, Starlette, Litestar and Django, each with the same writes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from claudemesh.asgi.messages import App
from tests.integration.foreign_apps import APPS, BOUND_S, COOKIE, PIECE, SECRET, Tally, served

pytestmark = [
    pytest.mark.req("R1"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of their own code
]

REPLAYED = "idempotent-replayed"
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
CANARIES = {
    "in the body": "body-canary-3k8",
    "in a header": "header-canary-1p4",
    "in the credential": "credential-canary-9w6",
    "in the answer": SECRET["password"],
    "in a cookie": COOKIE.partition("=")[2],
}


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(params=APPS)
def make(request: pytest.FixtureRequest) -> Callable[..., App]:
    return APPS[request.param]


@pytest.fixture
def tally() -> Tally:
    return Tally()


@pytest.fixture
async def client(make: Callable[..., App], tally: Tally, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = make(tally, f"sqlite:///{tmp_path}/keys.db", body_bytes_max=3_000_000, answer_bytes_max=100_000)
    async with served(app) as client:
        yield client


async def test_the_same_write_again_is_answered_and_not_done(client: httpx.AsyncClient, tally: Tally) -> None:
    first = await client.post("/notes", json={"text": "hi"}, headers=KEY)
    again = await client.post(
        "/notes", json={"text": "hi"}, headers={"Idempotency-Key": f'"{KEY["Idempotency-Key"]}"'}
    )
    assert tally.runs == ["notes"]
    assert (first.status_code, first.json()) == (201, {"n": 1, "text": "hi"})
    assert (again.status_code, again.content) == (201, first.content)
    assert (first.headers.get(REPLAYED), again.headers[REPLAYED]) == (None, "true")
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["content-type"] == first.headers["content-type"]
    assert first.headers["set-cookie"].startswith(COOKIE)
    assert "set-cookie" not in again.headers


async def test_another_write_under_the_same_key_is_a_conflict(client: httpx.AsyncClient, tally: Tally) -> None:
    await client.post("/notes", json={"text": "hi"}, headers=KEY)
    for path, body in (("/notes", {"text": "ho"}), ("/notes?x=1", {"text": "hi"}), ("/status/200", {"text": "hi"})):
        refused = await client.post(path, json=body, headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (409, "key_reused")
        assert refused.headers["content-type"] == "application/problem+json"
    assert tally.runs == ["notes"]


async def test_without_a_key_every_write_is_done(client: httpx.AsyncClient, tally: Tally) -> None:
    for n in (1, 2):
        answer = await client.post("/notes", json={"text": "hi"})
        assert answer.json()["n"] == n
        assert REPLAYED not in answer.headers
    await client.get("/notes", headers=KEY)
    await client.get("/notes", headers=KEY)
    assert tally.runs == ["notes", "notes", "get", "get"]


async def test_a_retry_while_the_write_is_under_way_waits_its_turn(client: httpx.AsyncClient, tally: Tally) -> None:
    first = asyncio.create_task(client.post("/slow", headers=KEY))
    async with asyncio.timeout(BOUND_S):
        await tally.started.wait()
    busy = await client.post("/slow", headers=KEY)
    assert (busy.status_code, busy.json()["code"]) == (409, "key_in_progress")
    assert int(busy.headers["retry-after"]) >= 1
    tally.gate.set()
    async with asyncio.timeout(BOUND_S):
        assert (await first).json() == {"n": 1}
    assert (await client.post("/slow", headers=KEY)).json() == {"n": 1}


async def test_a_body_that_is_streamed_in_and_out_is_the_same_write(
    client: httpx.AsyncClient, tally: Tally
) -> None:
    async def upload() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 5_000

    first = await client.post("/stream", content=upload(), headers=KEY)
    assert first.content == PIECE % 100_000 * 5
    again = await client.post("/stream", content=b"x" * 100_000, headers=KEY)
    assert (again.content, again.headers[REPLAYED]) == (first.content, "true")
    assert tally.runs == ["stream"]


async def test_a_huge_body_is_read_whole_or_refused(client: httpx.AsyncClient, tally: Tally) -> None:
    async def upload() -> AsyncIterator[bytes]:
        for _ in range(31):
            yield b"x" * 100_000

    assert (await client.post("/stream", content=upload(), headers=KEY)).status_code == 413
    assert (await client.post("/stream", content=b"x" * 3_000_001, headers=KEY)).status_code == 413
    assert tally.runs == []
    assert (await client.post("/stream", content=b"x" * 2_000_000, headers=KEY)).content == PIECE % 2_000_000 * 5


async def test_an_app_that_fails_is_tried_again(client: httpx.AsyncClient, tally: Tally) -> None:
    assert [(await client.post("/fail", headers=KEY)).status_code for _ in range(2)] == [500, 500]
    assert tally.runs == ["fail", "fail"]


async def test_a_refusal_that_is_settled_is_kept(client: httpx.AsyncClient, tally: Tally) -> None:
    answers = [await client.post("/notes", json={"wrong": "hi"}, headers=KEY) for _ in range(2)]
    assert answers[0].status_code == answers[1].status_code
    assert answers[0].status_code in (400, 422)
    assert answers[0].content == answers[1].content
    assert answers[1].headers[REPLAYED] == "true"
    assert tally.runs == []


@pytest.mark.parametrize("status", [401, 403, 408, 409, 412, 425, 429, 500, 503])
async def test_what_may_pass_is_not_kept(client: httpx.AsyncClient, tally: Tally, status: int) -> None:
    for _ in range(2):
        answer = await client.post(f"/status/{status}", headers=KEY)
        assert answer.status_code == status
        assert REPLAYED not in answer.headers
    assert tally.runs == ["status", "status"]


async def test_two_callers_do_not_share_their_keys(client: httpx.AsyncClient, tally: Tally) -> None:
    for n, token in enumerate(("Bearer a", "Bearer b"), start=1):
        answer = await client.post("/notes", json={"text": "hi"}, headers={**KEY, "Authorization": token})
        assert answer.json()["n"] == n
    assert tally.runs == ["notes", "notes"]


async def test_no_secret_reaches_a_file_of_the_store(
    client: httpx.AsyncClient, tally: Tally, tmp_path: Path
) -> None:
    """Every file is read while the store is open, so that its WAL counts too."""
    headers = {
        "Authorization": f"Bearer {CANARIES['in the credential']}",
        "Cookie": f"session={CANARIES['in a header']}",
        "X-Api-Key": CANARIES["in a header"],
    }
    body = {"text": "hi", "password": CANARIES["in the body"]}
    for number, path in enumerate(("/notes", "/secret")):
        for _ in range(2):
            await client.post(path, json=body, headers={**headers, "Idempotency-Key": f"find-me-{number}"})
    refused = await client.post("/secret", json=body, headers={**headers, "Idempotency-Key": "find-me-1"})
    assert (refused.json()["code"], refused.json()["status_code"]) == ("answer_not_kept", 200)
    assert tally.runs.count("secret") == 1
    stored = await asyncio.to_thread(read_all, tmp_path)
    assert "keys.db-wal" in stored
    assert any(b"find-me-1" in content for content in stored.values())
    for what, canary in CANARIES.items():
        assert [name for name, content in stored.items() if canary.encode() in content] == [], what


async def test_how_long_keys_are_kept_is_published(client: httpx.AsyncClient, tally: Tally) -> None:
    policy = (await client.get("/.well-known/idempotency-policy")).json()
    assert policy["expiry_s"] == 30 * 86_400
    assert tally.runs == []
