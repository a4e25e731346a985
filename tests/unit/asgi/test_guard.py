"""By TCP only those get in who know the token, and nobody's web page does."""

from pathlib import Path

import pytest

from claudemesh.asgi.events import RequestRefused, TokenExposed
from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.messages import Message, Request, Response, json_response
from claudemesh.asgi.policy import RateLimit
from claudemesh.asgi.routes import Route, Router
from claudemesh.asgi.tokens import TokenFile, read_token
from claudemesh.runtime.observe import Observer
from tests.unit.asgi.calling import Answer, HandClock, ask, recorded, scope_of

PORT = 7450
HOST = ("host", f"127.0.0.1:{PORT}")


async def ok(_: Request) -> Response:
    return json_response("ok")


class House:
    """A guard before two routes, with a token of its own."""

    def __init__(self, tmp_path: Path, limit: RateLimit | None = None) -> None:
        self.clock, self.observer = HandClock(), Observer()
        self.events = recorded(self.observer)
        self.tokens = TokenFile(tmp_path / "local_token", self.clock, self.observer)
        self.token = read_token(tmp_path / "local_token")
        paths = ("/v1/peers", "/v1/health")
        self.router = Router([Route(method="GET", path=p, handler=ok, summary="") for p in paths], self.observer)
        self.guard = LocalGuard(
            self.router,
            self.tokens,
            port=PORT,
            clock=self.clock,
            observer=self.observer,
            limit=limit or RateLimit(),
            public_paths=frozenset({"/v1/health"}),
        )

    async def get(self, *headers: tuple[str, str], target: str = "/v1/peers", method: str = "GET") -> Answer:
        return await ask(self.guard, method, target, headers=list(headers))

    def bearer(self, token: str | None = None) -> tuple[str, str]:
        return ("authorization", f"Bearer {token or self.token}")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.mark.req("D15")
async def test_the_token_lets_in_under_any_spelling_of_the_scheme(house: House) -> None:
    assert (await house.get(HOST, house.bearer())).json == "ok"
    assert (await house.get(HOST, ("authorization", f"bearer  {house.token} "))).json == "ok"


@pytest.mark.req("D15")
@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "token"])
async def test_no_bearer_is_a_401_that_says_so(house: House, value: str) -> None:
    answer = await house.get(HOST, *([("authorization", value)] if value else []))
    assert answer.refusal == (401, "missing_token")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.req("D15")
async def test_a_wrong_bearer_is_a_401_whatever_its_length(house: House) -> None:
    other = house.token[:-1] + ("a" if house.token[-1] != "a" else "b")
    for wrong in (other, house.token[:-1], house.token + "a", house.token.swapcase(), "\xe4"):
        assert (await house.get(HOST, house.bearer(wrong))).refusal == (401, "bad_token")


@pytest.mark.req("D15")
async def test_two_bearers_are_not_chosen_from(house: House) -> None:
    assert (await house.get(HOST, house.bearer(), house.bearer("x"))).refusal == (400, "invalid_request")


@pytest.mark.req("D15")
@pytest.mark.parametrize("query", ["token=abc", "access_token=abc", "a=1&Token=", "to%6Ben=abc"])
async def test_a_parameter_that_is_called_a_token_is_refused_and_told(house: House, query: str) -> None:
    answer = await house.get(HOST, house.bearer(), target=f"/v1/peers?{query}")
    assert answer.refusal == (400, "token_in_url")
    assert TokenExposed("127.0.0.1:5", is_ours=False) in house.events


@pytest.mark.req("D15")
@pytest.mark.parametrize("query", ["x={}", "{}", "x=1&y={}"])
async def test_our_token_anywhere_in_the_query_is_refused_and_told_without_it(house: House, query: str) -> None:
    answer = await house.get(HOST, house.bearer(), target=f"/v1/peers?{query.format(house.token)}")
    assert answer.refusal == (400, "token_in_url")
    assert TokenExposed("127.0.0.1:5", is_ours=True) in house.events
    assert house.token not in repr(house.events) + answer.body.decode()


async def test_a_query_that_cannot_be_read_is_a_400(house: House) -> None:
    for query in ("&".join(["a=1"] * 200), "a=\xff"):
        assert (await house.get(HOST, target=f"/v1/peers?{query}")).refusal == (400, "invalid_request")


@pytest.mark.req("D15")
async def test_the_name_is_judged_before_the_origin_before_the_query_before_the_token(house: House) -> None:
    host, origin, query = ("host", "evil.example"), ("origin", "null"), "/v1/peers?token=x"
    assert (await house.get(host, origin, target=query)).refusal == (403, "bad_host")
    assert (await house.get(HOST, origin, target=query)).refusal == (403, "bad_origin")
    assert (await house.get(HOST, target=query)).refusal == (400, "token_in_url")
    assert (await house.get(HOST)).refusal == (401, "missing_token")
    codes = [event.code for event in house.events if isinstance(event, RequestRefused)]
    assert codes == ["bad_host", "bad_origin", "token_in_url", "missing_token"]


@pytest.mark.req("D15")
async def test_a_preflight_is_a_403_without_a_word_about_origins(house: House) -> None:
    asked = ("access-control-request-method", "POST")
    for origin in ("https://evil.example", f"http://localhost:{PORT}"):
        answer = await house.get(HOST, house.bearer(), ("origin", origin), asked, method="OPTIONS")
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_public_path_needs_no_token_and_still_a_name(house: House) -> None:
    assert (await house.get(HOST, target="/v1/health")).json == "ok"
    assert (await house.get(("host", "evil.example"), target="/v1/health")).refusal == (403, "bad_host")


@pytest.mark.req("D15")
async def test_after_a_rotation_both_tokens_work_for_a_minute(house: House) -> None:
    old, new = house.token, house.tokens.rotate()
    assert old != new
    for token in (old, new):
        assert (await house.get(HOST, house.bearer(token))).status == 200
    house.clock.now_ms += 60_000
    assert (await house.get(HOST, house.bearer(old))).refusal == (401, "bad_token")
    assert (await house.get(HOST, house.bearer(new))).status == 200


@pytest.mark.req("D13")
async def test_a_token_has_its_rate_and_is_told_how_long_to_wait(tmp_path: Path) -> None:
    house = House(tmp_path, RateLimit(per_s=2, burst=3))
    statuses = [(await house.get(HOST, house.bearer())).status for _ in range(3)]
    assert statuses == [200] * 3
    answer = await house.get(HOST, house.bearer())
    assert answer.refusal == (429, "rate_limited")
    assert (answer.json["retry"], answer.json["retry_after_ms"]) == ("after", 500)
    assert answer.headers["retry-after"] == "1"
    house.clock.now_ms += 500
    assert (await house.get(HOST, house.bearer())).status == 200


@pytest.mark.req("D13")
async def test_those_without_the_token_do_not_use_up_its_rate(tmp_path: Path) -> None:
    house = House(tmp_path, RateLimit(per_s=1, burst=1))
    for _ in range(5):
        assert (await house.get(HOST, house.bearer("wrong"))).status == 401
        assert (await house.get(HOST)).status == 401
    assert (await house.get(HOST, house.bearer())).status == 200


async def test_without_tokens_and_limit_only_name_and_origin_are_judged(house: House) -> None:
    guard = LocalGuard(house.router, None, port=PORT, clock=house.clock, observer=house.observer, limit=None)
    assert [(await ask(guard, "GET", "/v1/peers", headers=[HOST])).status for _ in range(3)] == [200] * 3
    origin = ("origin", "https://evil.example")
    assert (await ask(guard, "GET", "/v1/peers", headers=[HOST, origin])).refusal == (403, "bad_origin")


@pytest.mark.req("D15")
async def test_a_websocket_is_judged_like_a_request(house: House) -> None:
    scope = scope_of("GET", "/v1/ws", [HOST, house.bearer(), ("origin", "https://evil.example")], b"")
    scope |= {"type": "websocket", "extensions": {"websocket.http.response": {}}}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await house.guard(scope, receive, send)
    assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 403)
