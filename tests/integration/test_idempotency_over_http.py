"""The middleware behind real servers: streams as they come, clients that hang up, and an app's own database."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from claudemesh.asgi.messages import App, Receive, Scope, Send, json_response, send_response
from claudemesh.asgi.server import Server
from claudemesh.idempotency import MARK, KeptResponse, WriteIdempotencyMiddleware
from claudemesh.idempotency.stores.postgres import PostgresKeyStore
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import real_world
from tests.integration.local_ipc import on_uvloop

pytestmark = pytest.mark.req("R1")

BOUND_S = 30
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
REPLAYED = "idempotent-replayed"


@asynccontextmanager
async def under_uvicorn(app: App) -> AsyncIterator[httpx.AsyncClient]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(sockets=[listening]))
        port = listening.getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=BOUND_S) as client:
            yield client
        server.should_exit = True
        async with asyncio.timeout(BOUND_S):
            await serving


async def post_until_answered(client: httpx.AsyncClient, path: str) -> httpx.Response:
    async with asyncio.timeout(BOUND_S):
        while (answer := await client.post(path, headers=KEY)).status_code == 409:
            pass
    return answer


async def test_a_stream_comes_as_it_is_made_and_goes_on_without_its_client(tmp_path: Path) -> None:
    runs: list[bytes] = []
    gate = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        await gate.wait()
        yield b"two "
        yield b"three"

    async def stream(request: Request) -> StreamingResponse:
        runs.append(await request.body())
        return StreamingResponse(pieces(), media_type="text/plain")

    app = Starlette(routes=[Route("/stream", stream, methods=["POST"])])
    app.add_middleware(WriteIdempotencyMiddleware, store=f"sqlite:///{tmp_path}/keys.db")
    async with under_uvicorn(app) as client:
        async with client.stream("POST", "/stream", headers=KEY) as answer:
            async for piece in answer.aiter_raw():
                assert piece == b"one "  # while the app is still at it
                break
        gate.set()  # the client has hung up
        retry = await post_until_answered(client, "/stream")
    assert (retry.text, retry.headers[REPLAYED]) == ("one two three", "true")
    assert runs == [b""]


@on_uvloop
async def test_our_own_server_offers_no_way_around_the_record(tmp_path: Path) -> None:
    """It offers one to send an answer in one step, which an app of ours takes if it is there."""
    runs: list[int] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        runs.append(1)
        await send_response(json_response({"n": len(runs)}, 201), scope, send)

    listening = socket.create_server(("127.0.0.1", 0))
    served = WriteIdempotencyMiddleware(app, f"sqlite:///{tmp_path}/keys.db")
    server = Server(served, [listening], Observer())
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
        answers = [await client.post("/", headers=KEY) for _ in range(3)]
        policy = await client.get("/.well-known/idempotency-policy")
    await server.stop()
    await served._close()
    assert [answer.json() for answer in answers] == [{"n": 1}] * 3
    assert [REPLAYED in answer.headers for answer in answers] == [False, True, True]
    assert policy.json()["expiry_s"] == 30 * 86_400


async def test_an_app_settles_its_key_on_its_own_connection_as_the_how_to_says(postgres_database: str) -> None:
    own = await asyncpg.connect(postgres_database)
    await own.execute("CREATE TABLE note (id int GENERATED ALWAYS AS IDENTITY, text text)")

    async def notes(request: Request) -> JSONResponse:
        async with own.transaction():
            id_ = await own.fetchval("INSERT INTO note (text) VALUES ($1) RETURNING id", "hi")
            answer = JSONResponse({"id": id_}, 201)
            kept = KeptResponse(201, tuple(answer.raw_headers), bytes(answer.body))
            await request.scope[MARK].complete_async(own, kept)
        raise RuntimeError("after the commit, before the answer")

    keys = await PostgresKeyStore.open(postgres_database, real_world())
    app = WriteIdempotencyMiddleware(Starlette(routes=[Route("/notes", notes, methods=["POST"])]), keys)
    async with under_uvicorn(app) as client:
        assert (await client.post("/notes", headers=KEY)).status_code == 500
        retry = await client.post("/notes", headers=KEY)
    assert (retry.status_code, retry.json(), retry.headers[REPLAYED]) == (201, {"id": 1}, "true")
    assert await own.fetchval("SELECT count(*) FROM note") == 1
    await keys.aclose()
    await own.close()
