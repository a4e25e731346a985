"""What comes in by an import."""

import pytest

from tests import canaries
from tests.edge_doubles import Edge
from tests.fake_upstream import FakeUpstream

NOTE = {"agent": "builder", "summary": "parser done"}


@pytest.mark.req("R6", "R5")
@pytest.mark.parametrize("where", ["if_match", "read", "key", "query", "agent", "destination", "was", "passed"])
async def test_no_credential_comes_in_with_an_import(edge: Edge, upstream: FakeUpstream, where: str) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="good")
    (line,) = (await edge.operate("GET", "/outbox/export")).json["items"]
    line["idempotency_key"] = "other"
    secret = canaries.AUTHORIZATION
    match where:
        case "destination":
            line["destination"] = f"tasks/{secret}"
        case "agent":
            line["envelope"]["source"] = {"agent": secret}
        case "was":
            line["envelope"]["was"] = [{"status": secret}]
        case "passed":
            line["envelope"]["passed"] = ["doing", secret]
        case _:
            line["envelope"][where] = f"x={secret.replace('_', '%5F')}" if where == "query" else secret
    assert (await edge.operate("POST", "/outbox/import", {"lines": [line]})).status == 400


@pytest.mark.req("R5")
async def test_what_was_exported_under_a_random_key_can_be_imported(edge: Edge, upstream: FakeUpstream) -> None:
    key = "Zk3vQ9xLm2Rt8Wp5Yc7Nb4Hd6Jf1Gs0Ka"
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key=key)
    lines = (await edge.operate("GET", "/outbox/export")).json["items"]
    assert (await edge.operate("POST", "/outbox/import", {"lines": lines})).json == {"imported": 0, "known": 1}


@pytest.mark.req("R5")
async def test_a_body_that_the_door_would_not_let_in_is_not_imported_either(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="good")
    (line,) = (await edge.operate("GET", "/outbox/export")).json["items"]
    line["idempotency_key"] = "other"
    line["envelope"]["body"] = {"agent": "builder", "summary": "x", "details": deep(300)}
    refused = await edge.operate("POST", "/outbox/import", {"lines": [line]})
    assert (refused.status, refused.json["code"]) == (400, "invalid_request")


def deep(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value
