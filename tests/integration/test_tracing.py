"""Messages as spans, in a real collector's hands."""

import asyncio
import builtins
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from claudemesh.daemon import identity
from claudemesh.daemon.settings import Config, Tracing
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.keys import KeyPair
from tests.integration.collector import collecting
from tests.mesh import local_broker, local_daemon

pytestmark = pytest.mark.req("O1")

WITHIN_S = 30.0
NOBODY = "http://127.0.0.1:9/v1/traces"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@asynccontextmanager
async def traced_mesh(folder: Path, *names: str, tracing: Tracing) -> AsyncIterator[list[Any]]:
    async with local_broker(folder) as broker, AsyncExitStack() as stack:
        daemons = []
        for place in await broker.enrol(*names):
            daemon = local_daemon(place, keys=identity.load_keys(place), config=Config(tracing=tracing))
            daemons.append(await stack.enter_async_context(daemon))
        for daemon in daemons:
            await daemon.until(lambda health: health["connected"])
        yield daemons


def said(span: Span) -> dict[str, object]:
    values = {one.key: one.value for one in span.attributes}
    return {key: value.string_value or value.int_value for key, value in values.items()}


async def test_a_message_is_one_trace_from_its_senders_outbox_to_each_inbox(tmp_path: Path) -> None:
    with collecting() as collector:
        tracing = Tracing(endpoint=collector.endpoint)
        async with traced_mesh(tmp_path, "alice", "bob", "carol", tracing=tracing) as (alice, bob, carol):
            assert (await alice.post("/v1/topic/create", {"topic": "news"})).status == 200
            for one in (alice, bob, carol):
                assert (await one.post("/v1/topic/subscribe", {"topic": "news"})).status == 200
            body = "a body that stays here"
            answer = await alice.send("#news", body, client_message_id="m1", meta={"k": "secret"})
            assert answer.status == 202
            await bob.receives(1)
            await carol.receives(1)
            spans = await asyncio.to_thread(collector.wait_for, 3)
    sent, bobs, carols = (spans[f"{who} claudemesh {what}"] for who, what in (
        ("alice", "send"), ("bob", "deliver"), ("carol", "deliver"),
    ))  # fmt: skip
    assert {span.trace_id for span in spans.values()} == {sent.trace_id}
    assert (sent.parent_span_id, bobs.parent_span_id, carols.parent_span_id) == (b"", sent.span_id, sent.span_id)
    assert len({span.span_id for span in spans.values()}) == 3
    assert (sent.kind, bobs.kind) == (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER)
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())
    assert {said(span)["messaging.message.id"] for span in spans.values()} == {"m1"}
    assert said(sent) == {
        "messaging.system": "claudemesh",
        "messaging.operation.type": "send",
        "messaging.message.id": "m1",
        "messaging.destination.name": "topic:news",
        "claudemesh.outcome": "accepted",
        "claudemesh.attempts": 1,
    }
    assert sent.status.code == Status.STATUS_CODE_UNSET
    raw = b"".join(collector.raw)
    assert b"stays here" not in raw
    assert b"secret" not in raw


async def test_a_send_that_died_is_a_span_with_its_reason(tmp_path: Path) -> None:
    with collecting() as collector:
        async with traced_mesh(tmp_path, "alice", tracing=Tracing(endpoint=collector.endpoint)) as (alice,):
            await alice.send("queue:nowhere", "x", client_message_id="m1")
            await alice.until(lambda health: health["dead"] == 1)
            span = (await asyncio.to_thread(collector.wait_for, 1))["alice claudemesh send"]
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert span.status.message
    assert said(span)["claudemesh.outcome"] == "refused"


async def test_what_waits_is_sent_when_a_daemon_stops_and_a_share_of_none_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with collecting() as collector:
        for share in (0.0, 1.0):
            tracing = Tracing(endpoint=collector.endpoint, share=share)
            async with traced_mesh(tmp_path / f"{share}", "alice", tracing=tracing) as (alice,):
                await alice.send("alice", "x", client_message_id="m1")
                await alice.receives(1)
                await alice.until(lambda found: found["state"] != "queued", "/v1/trace/m1")
        assert sorted(collector.wait_for(2)) == ["alice claudemesh deliver", "alice claudemesh send"]


async def test_a_collector_that_is_away_holds_up_nothing_and_is_told_of_once(tmp_path: Path) -> None:
    async with traced_mesh(tmp_path, "alice", tracing=Tracing(endpoint=NOBODY)) as (alice,):
        for place in range(20):
            assert (await alice.send("alice", "x", client_message_id=f"m{place}")).status == 202
        assert len(await alice.receives(20)) == 20

        def warnings() -> list[dict[str, Any]]:
            lines = (alice.state_dir / "daemon.log").read_text().splitlines()
            return [line for line in map(json.loads, lines) if line["event"] == "daemon.warned"]

        async with asyncio.timeout(WITHIN_S):
            while not warnings():  # noqa: ASYNC110 - the library's own thread writes it
                await asyncio.sleep(0.01)
    assert [line["what"] for line in warnings()] == ["tracing"]


async def test_without_the_extra_a_daemon_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def bare(name: str, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        if name == "claudemesh.daemon.spans":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", bare)
    config = Config(tracing=Tracing(endpoint=NOBODY))
    with pytest.raises(ConfigError, match=r"claudemesh\[otel\]"):
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), config=config):
            pass
