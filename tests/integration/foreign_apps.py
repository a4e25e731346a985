"""Apps of other people's frameworks, none of which knows of us: the same eight writes in each of them.

They are made as their own documentation makes them, and the middleware is added in two lines.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Annotated, Any

import django
import httpx
from django.conf import settings as django_settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path as django_path
from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse as FastAPIJSONResponse
from litestar import Litestar, Request, Response, get, post
from litestar.response import Stream
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from claudemesh.asgi.messages import App, Message, Receive
from claudemesh.idempotency import WriteIdempotencyMiddleware

BOUND_S = 30
PIECE = b"piece of %d bytes read\n"
COOKIE = "session=cookie-canary-5x9"
SECRET = {"id": "t1", "password": "answer-canary-7y2"}


@dataclass
class Tally:
    """What the app did, and a gate at which one of its writes waits."""

    runs: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, what: str) -> int:
        self.runs.append(what)
        return len(self.runs)

    async def wait(self) -> None:
        self.started.set()
        async with asyncio.timeout(BOUND_S):
            await self.gate.wait()

    async def pieces(self, size: int) -> AsyncIterator[bytes]:
        for _ in range(5):
            yield PIECE % size
            await asyncio.sleep(0)


async def fail() -> None:
    raise RuntimeError("the app failed")


# --- FastAPI -------------------------------------------------------------------------------------------


def make_fastapi(tally: Tally, store: str, **settings: Any) -> App:  # noqa: ANN401  of the middleware
    app = FastAPI()

    @app.post("/notes", status_code=201)
    async def notes(text: Annotated[str, Body(embed=True)]) -> FastAPIJSONResponse:
        content = {"n": tally.note("notes"), "text": text}
        return FastAPIJSONResponse(content, 201, headers={"Set-Cookie": COOKIE, "Location": "/notes/1"})

    @app.post("/status/{status}")
    async def status(status: int) -> FastAPIJSONResponse:
        return FastAPIJSONResponse({"n": tally.note("status")}, status)

    @app.post("/stream")
    async def stream(request: StarletteRequest) -> StreamingResponse:
        size = sum([len(chunk) async for chunk in request.stream()])
        tally.note("stream")
        return StreamingResponse(tally.pieces(size), media_type="text/plain")

    @app.post("/fail")
    async def failing() -> None:
        tally.note("fail")
        await fail()

    @app.post("/slow")
    async def slow() -> dict[str, int]:
        await tally.wait()
        return {"n": tally.note("slow")}

    @app.post("/secret")
    async def secret() -> dict[str, str]:
        tally.note("secret")
        return SECRET

    @app.get("/notes")
    async def listed() -> dict[str, int]:
        return {"n": tally.note("get")}

    app.add_middleware(GZipMiddleware, minimum_size=10)
    app.add_middleware(WriteIdempotencyMiddleware, store=store, **settings)
    return app  # type: ignore[no-any-return]


# --- Starlette -----------------------------------------------------------------------------------------


def make_starlette(tally: Tally, store: str, **settings: Any) -> App:  # noqa: ANN401  of the middleware
    async def notes(request: StarletteRequest) -> JSONResponse:
        text = (await request.json()).get("text")
        if not isinstance(text, str):
            return JSONResponse({"detail": "text is a text"}, 422)
        headers = {"Set-Cookie": COOKIE, "Location": "/notes/1"}
        return JSONResponse({"n": tally.note("notes"), "text": text}, 201, headers=headers)

    async def status(request: StarletteRequest) -> JSONResponse:
        return JSONResponse({"n": tally.note("status")}, request.path_params["status"])

    async def stream(request: StarletteRequest) -> StreamingResponse:
        size = sum([len(chunk) async for chunk in request.stream()])
        tally.note("stream")
        return StreamingResponse(tally.pieces(size), media_type="text/plain")

    async def failing(_request: StarletteRequest) -> JSONResponse:
        tally.note("fail")
        await fail()
        return JSONResponse({})

    async def slow(_request: StarletteRequest) -> JSONResponse:
        await tally.wait()
        return JSONResponse({"n": tally.note("slow")})

    async def secret(_request: StarletteRequest) -> JSONResponse:
        tally.note("secret")
        return JSONResponse(SECRET)

    async def listed(_request: StarletteRequest) -> JSONResponse:
        return JSONResponse({"n": tally.note("get")})

    by_path: dict[str, Callable[[StarletteRequest], Awaitable[Any]]] = {
        "/notes": notes,
        "/status/{status:int}": status,
        "/stream": stream,
        "/fail": failing,
        "/slow": slow,
        "/secret": secret,
    }
    routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in by_path.items()]
    app = Starlette(routes=[*routes, Route("/notes", listed, methods=["GET"])])
    app.add_middleware(WriteIdempotencyMiddleware, store=store, **settings)
    return app


# --- Litestar ------------------------------------------------------------------------------------------


def make_litestar(tally: Tally, store: str, **settings: Any) -> App:  # noqa: ANN401  of the middleware
    @post("/notes")
    async def notes(data: dict[str, str]) -> Response[dict[str, Any]]:
        if "text" not in data:
            return Response({"detail": "text is missing"}, status_code=422)
        content = {"n": tally.note("notes"), "text": data["text"]}
        return Response(content, status_code=201, headers={"Set-Cookie": COOKIE, "Location": "/notes/1"})

    @post("/status/{status:int}")
    async def status(status: int) -> Response[dict[str, int]]:
        return Response({"n": tally.note("status")}, status_code=status)

    @post("/stream", status_code=200)
    async def stream(request: Request[Any, Any, Any]) -> Stream:
        size = sum([len(chunk) async for chunk in request.stream()])
        tally.note("stream")
        return Stream(tally.pieces(size), media_type="text/plain")

    @post("/fail")
    async def failing() -> None:
        tally.note("fail")
        await fail()

    @post("/slow", status_code=200)
    async def slow() -> dict[str, int]:
        await tally.wait()
        return {"n": tally.note("slow")}

    @post("/secret", status_code=200)
    async def secret() -> dict[str, str]:
        tally.note("secret")
        return SECRET

    @get("/notes", sync_to_thread=False)
    def listed() -> dict[str, int]:
        return {"n": tally.note("get")}

    handlers = [notes, status, stream, failing, slow, secret, listed]
    return WriteIdempotencyMiddleware(Litestar(handlers, logging_config=None), store, **settings)  # type: ignore[arg-type]


# --- Django --------------------------------------------------------------------------------------------

_told: list[Tally] = []  # the newest: Django's routes are the process's


async def _notes(request: HttpRequest) -> HttpResponse:
    import json  # noqa: PLC0415  beside its one use

    if request.method == "GET":
        return JsonResponse({"n": _told[-1].note("get")})
    text = json.loads(request.body).get("text")
    if not isinstance(text, str):
        return JsonResponse({"detail": "text is a text"}, status=422)
    content = {"n": _told[-1].note("notes"), "text": text}
    return JsonResponse(content, status=201, headers={"Set-Cookie": COOKIE, "Location": "/notes/1"})


async def _status(_request: HttpRequest, status: int) -> HttpResponse:
    return JsonResponse({"n": _told[-1].note("status")}, status=status)


async def _stream(request: HttpRequest) -> StreamingHttpResponse:
    size = len(request.read())
    _told[-1].note("stream")
    return StreamingHttpResponse(_told[-1].pieces(size), content_type="text/plain")


async def _fail(_request: HttpRequest) -> HttpResponse:
    _told[-1].note("fail")
    await fail()
    return HttpResponse()


async def _slow(_request: HttpRequest) -> HttpResponse:
    await _told[-1].wait()
    return JsonResponse({"n": _told[-1].note("slow")})


async def _secret(_request: HttpRequest) -> HttpResponse:
    _told[-1].note("secret")
    return JsonResponse(SECRET)


urlpatterns = [
    django_path("notes", _notes),
    django_path("status/<int:status>", _status),
    django_path("stream", _stream),
    django_path("fail", _fail),
    django_path("slow", _slow),
    django_path("secret", _secret),
]


class _Django(ASGIHandler):  # type: ignore[misc]
    """Keeps a body in memory: the file that Django makes of it stays open when a request is given up or fails."""

    async def read_body(self, receive: Receive) -> BytesIO:
        with await super().read_body(receive) as body:
            return BytesIO(body.read())


def make_django(tally: Tally, store: str, **settings: Any) -> App:  # noqa: ANN401  of the middleware
    if not django_settings.configured:
        django_settings.configure(
            ROOT_URLCONF=__name__,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="only-for-tests",  # noqa: S106
            LOGGING_CONFIG=None,
        )
        django.setup()
    _told.append(tally)
    return WriteIdempotencyMiddleware(_Django(), store, **settings)


APPS: dict[str, Callable[..., App]] = {
    "fastapi": make_fastapi,
    "starlette": make_starlette,
    "litestar": make_litestar,
    "django": make_django,
}


# --- serving -------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """Start the app as a server would, ask it things, and stop it."""
    asked: asyncio.Queue[Message] = asyncio.Queue()
    told: asyncio.Queue[Message] = asyncio.Queue()
    living = asyncio.create_task(app({"type": "lifespan", "asgi": {}, "state": {}}, asked.get, told.put))  # type: ignore[arg-type]
    await asked.put({"type": "lifespan.startup"})
    starting = asyncio.create_task(told.get())
    async with asyncio.timeout(BOUND_S):
        await asyncio.wait([living, starting], return_when=asyncio.FIRST_COMPLETED)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        yield client
    if living.done():
        starting.cancel()
        assert living.exception() is not None  # it knows no lifespan
        return
    assert starting.result()["type"] == "lifespan.startup.complete"
    await asked.put({"type": "lifespan.shutdown"})
    async with asyncio.timeout(BOUND_S):
        await living
