"""The document says what the routes do, because it is made of them."""

from typing import Annotated

import msgspec
import pytest

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.routes import Header, Route
from claudemesh.kernel.errors import BadToken, DaemonBusy, MissingToken, RateLimited, UnknownDestination


class Inner(msgspec.Struct):
    n: int


class Asked(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(min_length=1)]
    inner: Inner | None = None


class Answered(msgspec.Struct):
    id: str


class Page(msgspec.Struct):
    since: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10


async def handler(_: Request) -> Response:
    return json_response(None)


ROUTES = [
    Route(
        method="POST",
        path="/v1/send",
        handler=handler,
        summary="Send.",
        request=Asked,
        response=Answered,
        status=202,
        statuses={200: "It was accepted before."},
        headers=(Header("Idempotency-Key", "The id of the send."),),
        errors=(UnknownDestination, RateLimited),
    ),
    Route(method="GET", path="/v1/page", handler=handler, summary="A page.", query=Page, response=list[Answered]),
    Route(method="GET", path="/v1/trace/{id}", handler=handler, summary="One.", response=Answered),
    Route(method="DELETE", path="/v1/trace/{id}", handler=handler, summary="None.", status=204),
    Route(method="GET", path="/v1/metrics", handler=handler, summary="Metrics.", content_type="text/plain"),
]
DOCUMENT = openapi_document("toy", "1", ROUTES, everywhere=(MissingToken, BadToken, DaemonBusy))


@pytest.mark.req("D14")
def test_every_route_is_in_the_document_once() -> None:
    found = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert sorted(ids) == [
        "delete_v1_trace_id",
        "get_v1_metrics",
        "get_v1_page",
        "get_v1_trace_id",
        "post_v1_send",
    ]
    assert DOCUMENT["openapi"].startswith("3.1")


@pytest.mark.req("D14")
def test_bodies_are_described_by_the_types_that_check_them() -> None:
    operation = DOCUMENT["paths"]["/v1/send"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Asked"}
    asked = DOCUMENT["components"]["schemas"]["Asked"]
    assert asked["required"] == ["text"]
    assert asked["properties"]["text"] == {"type": "string", "minLength": 1}
    assert "Inner" in DOCUMENT["components"]["schemas"]
    for status in ("200", "202"):
        answer = operation["responses"][status]["content"]["application/json"]["schema"]
        assert answer == {"$ref": "#/components/schemas/Answered"}


def test_parameters_are_described_wherever_they_stand() -> None:
    page = DOCUMENT["paths"]["/v1/page"]["get"]["parameters"]
    assert [(p["name"], p["in"], p["required"]) for p in page] == [
        ("since", "query", True),
        ("limit", "query", False),
    ]
    assert page[1]["schema"]["maximum"] == 1_000
    trace = DOCUMENT["paths"]["/v1/trace/{id}"]["get"]["parameters"]
    assert [(p["name"], p["in"], p["required"]) for p in trace] == [("id", "path", True)]
    send = DOCUMENT["paths"]["/v1/send"]["post"]["parameters"]
    assert [(p["name"], p["in"], p["required"]) for p in send] == [("Idempotency-Key", "header", False)]


@pytest.mark.req("F7")
def test_every_error_that_a_route_can_meet_is_a_problem_with_its_codes() -> None:
    def codes(path: str, method: str) -> dict[str, list[str]]:
        responses = DOCUMENT["paths"][path][method]["responses"]
        schemas = {
            status: answer["content"]["application/problem+json"]["schema"]["allOf"]
            for status, answer in responses.items()
            if status >= "400"
        }
        assert all(schema[0] == {"$ref": "#/components/schemas/Problem"} for schema in schemas.values())
        return {status: schema[1]["properties"]["code"]["enum"] for status, schema in schemas.items()}

    everywhere = {"401": ["bad_token", "missing_token"], "429": ["daemon_busy"], "500": ["internal_error"]}
    assert codes("/v1/trace/{id}", "get") == everywhere
    assert codes("/v1/page", "get") == {**everywhere, "400": ["invalid_request"]}
    assert codes("/v1/send", "post") == {
        **everywhere,
        "400": ["invalid_request"],
        "404": ["unknown_destination"],
        "413": ["payload_too_large"],
        "415": ["json_only"],
        "429": ["daemon_busy", "rate_limited"],
    }


def test_a_token_is_asked_for_where_something_refuses_those_without() -> None:
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert "security" not in openapi_document("toy", "1", ROUTES, everywhere=(DaemonBusy,))
    public = frozenset({"/v1/page", "/v1/other"})
    paths = openapi_document("toy", "1", ROUTES, everywhere=(MissingToken,), public_paths=public)["paths"]
    assert paths["/v1/page"]["get"]["security"] == []
    assert "security" not in paths["/v1/send"]["post"]


def test_an_answer_without_json_is_described_as_such() -> None:
    assert "content" not in DOCUMENT["paths"]["/v1/trace/{id}"]["delete"]["responses"]["204"]
    metrics = DOCUMENT["paths"]["/v1/metrics"]["get"]["responses"]["200"]
    assert list(metrics["content"]) == ["text/plain"]
