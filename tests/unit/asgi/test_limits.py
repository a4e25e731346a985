"""As many at once as are allowed, and no place is ever lost."""

import asyncio

import pytest

from claudemesh.asgi.limits import InFlight, Streams
from claudemesh.asgi.messages import App, Receive, Request, Response, Scope, Send, StreamResponse, json_response
from claudemesh.asgi.routes import Route, Router
from claudemesh.kernel.errors import TooManyStreams
from claudemesh.runtime.observe import Observer
from tests.unit.asgi.calling import ask


class Held:
    """A handler that waits until it is let go, and says how many wait."""

    def __init__(self) -> None:
        self.waiting = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def __call__(self, _: Request) -> Response:
        self.waiting.release()
        await self.go.wait()
        return json_response("ok")


def limited(handler: object, limit: int) -> InFlight:
    routes = [Route(method="GET", path="/", handler=handler, summary="")]
    return InFlight(Router(routes, Observer()), Observer(), limit)


@pytest.mark.req("D13")
async def test_one_more_than_the_limit_is_told_to_come_back_and_a_place_is_free_again_afterwards() -> None:
    held = Held()
    app = limited(held, 2)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        under_way = [tasks.create_task(ask(app, "GET", "/")) for _ in range(2)]
        for _ in under_way:
            await held.waiting.acquire()
        refused = await ask(app, "GET", "/")
        assert refused.refusal == (429, "daemon_busy")
        assert refused.headers["retry-after"] == "1"
        held.go.set()
    assert [task.result().status for task in under_way] == [200, 200]
    assert (await ask(app, "GET", "/")).status == 200
    assert app.count == 0


@pytest.mark.req("D13")
@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError()])
async def test_a_place_is_given_back_whatever_happens(error: BaseException) -> None:
    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    app = InFlight(broken, Observer(), 1)
    for _ in range(2):
        with pytest.raises(type(error)):
            await ask(app, "GET", "/")
    assert app.count == 0


@pytest.mark.req("D13")
async def test_a_stream_does_not_take_the_place_of_a_request() -> None:
    counts: list[int] = []

    async def chunks(app: list[InFlight]):  # noqa: ANN202 - an async generator
        counts.append(app[0].count)
        yield b""

    async def handler(_: Request) -> StreamResponse:
        counts.append(box[0].count)
        return StreamResponse(chunks(box))

    box: list[InFlight] = []
    box.append(limited(handler, 1))

    async def slow_leaver(scope: Scope, receive: Receive, send: Send) -> None:
        async def never_gone() -> dict[str, str]:
            await asyncio.Event().wait()
            return await receive()

        await box[0](scope, never_gone, send)

    app: App = slow_leaver
    async with asyncio.timeout(30):
        await ask(app, "GET", "/")
    assert counts == [1, 0]
    assert box[0].count == 0


@pytest.mark.req("D13")
def test_streams_have_a_limit_of_their_own_and_a_place_is_given_back() -> None:
    streams = Streams(limit=2)
    with streams.opened():
        with streams.opened(), pytest.raises(TooManyStreams) as refused:
            streams.admit()
        assert refused.value.extras["retry_after_ms"]
        with pytest.raises(KeyError), streams.opened():
            raise KeyError
        streams.admit()
    assert streams.count == 0
