"""The middleware against draft-ietf-httpapi-idempotency-key-header, rule by rule; each test names its section.

One rule is kept otherwise, and the policy document says so: another request under a used key is a 409 here.
"""

import asyncio
from collections.abc import Callable

import pytest

from claudemesh.asgi.messages import Receive, Scope, Send
from tests.unit.asgi.calling import Answer, ask
from tests.unit.idempotency.stage import Client, Stage, answering

pytestmark = pytest.mark.req("R1")

Staged = Callable[..., Stage]

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
REPLAYED = "idempotent-replayed"


def assert_described(answer: Answer, status: int) -> None:
    """Check that it is a problem document, and links to what is published about keys."""
    assert answer.refusal[0] == status
    assert answer.json["title"]
    assert answer.headers["link"] == '</.well-known/idempotency-policy>; rel="describedby"'


@pytest.mark.parametrize("key", [f'"{UUID}"', r'"with\"quote\\and-backslash"', '"!#$%&()*+,-./:;<=>?@[]^_`{|}~"'])
async def test_2_1_a_key_is_a_structured_fields_string(staged: Staged, key: str) -> None:
    stage = staged()
    assert (await stage.post(key=key)).status == 201
    assert (await stage.post(key=key)).headers[REPLAYED] == "true"


@pytest.mark.parametrize("key", ['"', f'"{UUID}', f'{UUID}"', r'"bad\escape"', '"a" "b"', '"a"; b', f'"{UUID}",'])
async def test_2_1_what_begins_as_a_string_and_is_none_is_refused(staged: Staged, key: str) -> None:
    stage = staged()
    assert_described(await stage.post(key=key), 400)
    assert stage.runs == 0


async def test_2_1_a_request_has_one_key_at_most(staged: Staged) -> None:
    stage = staged()
    assert_described(await stage.post(key=f'"{UUID}"', headers=[("Idempotency-Key", '"other"')]), 400)
    assert_described(await stage.post(key=f'"{UUID}"', headers=[("Idempotency-Key", f'"{UUID}"')]), 400)
    assert stage.runs == 0


async def test_2_1_the_name_of_the_header_is_written_in_any_case(staged: Staged) -> None:
    stage = staged()
    for name in ("idempotency-key", "IDEMPOTENCY-KEY"):
        await stage.post(key=None, headers=[(name, UUID)])
    assert stage.runs == 1


async def test_2_2_a_key_is_not_reused_for_another_payload(staged: Staged) -> None:
    stage = staged()
    await stage.post(b'{"amount":1}', key=UUID)
    assert_described(await stage.post(b'{"amount":2}', key=UUID), 409)
    assert stage.runs == 1


async def test_2_2_random_identifiers_are_good_keys(staged: Staged) -> None:
    stage = staged()
    for key in (UUID, "01JAB5T8Q0KZ4XJ3N8V2M7WYEH", "f" * 64, "Zk3xwPq9VbT1sYd8LmN0cRf5HjG7uKaE2oXiQwBtM4v"):
        assert (await stage.post(key=key)).status == 201


async def test_2_3_keys_expire_and_when_is_published(staged: Staged) -> None:
    stage = staged()
    policy = (await ask(stage.app, "GET", "/.well-known/idempotency-policy")).json
    await stage.post()
    stage.clock.advance(policy["expiry_s"] * 1_000 - 1)
    assert REPLAYED in (await stage.post()).headers
    stage.clock.advance(1)
    assert REPLAYED not in (await stage.post()).headers
    assert stage.runs == 2


async def test_2_4_the_fingerprint_is_of_the_bytes_that_were_sent(staged: Staged) -> None:
    """Two JSON texts that mean the same are two payloads: no server is asked to know what an app's bodies mean."""
    stage = staged()
    await stage.post(b'{"a":1,"b":2}')
    assert (await stage.post(b'{"b":2,"a":1}')).status == 409
    assert (await stage.post([b'{"a":1', b',"b":2}'])).headers[REPLAYED] == "true"


async def test_2_4_headers_are_no_part_of_the_fingerprint(staged: Staged) -> None:
    stage = staged()
    await stage.post(headers=[("User-Agent", "a/1"), ("Date", "yesterday")])
    assert (await stage.post(headers=[("User-Agent", "a/2")])).headers[REPLAYED] == "true"


async def test_2_5_what_holds_for_keys_is_published_with_format_and_expiry(staged: Staged) -> None:
    policy = (await ask(staged().app, "GET", "/.well-known/idempotency-policy")).json
    assert {"header", "key_format", "expiry_s", "methods", "conflict_status"} <= set(policy)


async def test_2_5_a_client_that_sends_no_key_asks_for_nothing(staged: Staged) -> None:
    stage = staged()
    assert [(await stage.post(key=None)).status for _ in range(2)] == [201, 201]
    assert stage.runs == 2


async def test_2_6_a_first_request_is_processed_as_if_it_had_no_key(staged: Staged) -> None:
    app = answering(201, b"{}", (b"x-anything", b"1"), (b"set-cookie", b"a=b"))
    keyed, plain = await staged(app).post(), await staged(app).post(key=None)
    assert keyed.sent == plain.sent


@pytest.mark.parametrize("status", [200, 201, 204, 400, 404, 422])
async def test_2_6_a_retry_gets_the_result_that_was_success_or_error(staged: Staged, status: int) -> None:
    stage = staged(answering(status, b"" if status == 204 else b'{"x":1}'))
    first, retry = await stage.post(), await stage.post()
    assert (first.status, first.body) == (retry.status, retry.body)
    assert stage.runs == 1


async def test_2_6_a_request_that_meets_the_first_one_still_under_way_is_a_conflict(staged: Staged) -> None:
    runs, may_answer = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        runs.set()
        await may_answer.wait()
        await answering(201)(scope, receive, send)

    stage = staged(app)
    client = Client(stage.app)
    await runs.wait()
    assert_described(await stage.post(), 409)
    may_answer.set()
    await client.done()
    assert (await stage.post()).status == 201  # nothing about it had to be corrected


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_2_7_where_a_key_is_documented_as_required_its_absence_is_a_400(staged: Staged, method: str) -> None:
    stage = staged(required=True)
    assert_described(await stage.post(key=None, method=method), 400)
    assert stage.runs == 0


async def test_2_7_another_payload_is_refused_with_the_status_that_is_published(staged: Staged) -> None:
    stage = staged()
    policy = (await ask(stage.app, "GET", "/.well-known/idempotency-policy")).json
    await stage.post()
    refused = await stage.post(b"[]")
    assert refused.status == policy["conflict_status"]
    assert (refused.json["code"], refused.json["retry"]) == ("key_reused", "no")


async def test_2_7_a_request_that_was_refused_is_refused_again_until_it_is_corrected(staged: Staged) -> None:
    stage = staged()
    await stage.post()
    for _ in range(2):
        assert_described(await stage.post(b"[]"), 409)
    assert (await stage.post(b"[]", key="another")).status == 201


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503, 504])
async def test_2_7_other_errors_may_be_tried_again_with_the_same_key(staged: Staged, status: int) -> None:
    stage = staged(answering(status))
    assert [(await stage.post()).status for _ in range(2)] == [status, status]
    assert stage.runs == 2


@pytest.mark.parametrize("key", ["'; DROP TABLE x--", "a\tb", "a\rb", "k" * 256, "ключ".encode().decode("latin-1")])
async def test_5_what_is_no_key_is_not_looked_up(staged: Staged, key: str) -> None:
    stage = staged()
    assert_described(await stage.post(key=key), 400)
    assert stage.store.calls == []


async def test_5_a_key_of_one_client_opens_nothing_of_another(staged: Staged) -> None:
    stage = staged(answering(201, b"of alice"))
    await stage.post(key="1", headers=[("Authorization", "Bearer alice")])
    guessed = await stage.post(key="1", headers=[("Authorization", "Bearer mallory")])
    assert REPLAYED not in guessed.headers
    assert stage.runs == 2
