"""Whatever is refused, by the daemon or the broker: one form, with what went wrong and what a retry may be."""

from pathlib import Path

import pytest

from claudemesh.kernel.errors import MeshError
from claudemesh.wire.problem import BY_CODE
from tests.integration.broker_client import request
from tests.mesh import local_broker, rejoin


@pytest.mark.req("F7")
async def test_every_refusal_is_a_problem_with_a_code_and_what_a_retry_may_be(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        (here,) = await broker.enrol("alice")
        asked = [("GET", "/nowhere", None), ("DELETE", "/v1/health", None), ("POST", "/v1/meshes", {"slug": 1})]
        of_broker = [await request(method, broker.url + path, body) for method, path, body in asked]
        await broker.stop()
        async with rejoin(here) as daemon:
            await daemon.send("queue:q", "x", client_message_id="m1")
            of_daemon = [
                await daemon.request("GET", "/v1/nowhere"),
                await daemon.request("DELETE", "/v1/health"),
                await daemon.post("/v1/send", {"to": 1}),
                await daemon.send("queue:q", "y", client_message_id="m1"),
                await daemon.send("nobody", "x"),
                await daemon.request("GET", "/v1/inbox?cursor=0123.1"),
                await daemon.post("/v1/topic/create", {"topic": "news"}),
                await daemon.post("/v1/outbox/drop", {"id": "unknown"}),
            ]
    heads = [(answer.status, answer.headers["content-type"]) for answer in of_daemon]
    heads += [(answer.status, answer.headers["content-type"]) for answer in of_broker]
    problems = [answer.body for answer in of_daemon] + [answer.json for answer in of_broker]
    assert {kind for _, kind in heads} == {"application/problem+json"}
    assert [(problem["status"], problem["code"], problem["retry"]) for problem in problems] == [
        (404, "not_found", "no"),
        (405, "method_not_allowed", "no"),
        (400, "invalid_request", "no"),
        (409, "idempotency_key_reused", "no"),
        (404, "unknown_destination", "no"),
        (410, "cursor_expired", "no"),
        (503, "broker_unreachable", "same_id"),
        (404, "not_found", "no"),
        (404, "not_found", "no"),
        (405, "method_not_allowed", "no"),
        (400, "invalid_request", "no"),
    ]
    assert [status for status, _ in heads] == [problem["status"] for problem in problems]
    for problem in problems:
        kind: type[MeshError] = BY_CODE[problem["code"]]
        assert (problem["title"], problem["type"]) == (kind.title, f"urn:claudemesh:problem:{kind.code}")
