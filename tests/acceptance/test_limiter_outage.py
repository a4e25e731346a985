"""A broker that counts budgets in Redis, while that is away: what was accepted is answered, what is new waits."""

from pathlib import Path

import pytest

from claudemesh.broker.settings import Limits
from tests.acceptance.test_broker_promises import back, metric
from tests.integration.broker_client import broker, create_mesh, dm
from tests.integration.test_redis_limiter import OUTAGES, Outage
from tests.mesh import local_mesh
from tests.services.redis import private_redis

HOURLY = Limits(sends_per_window=2, window_s=3600)

outages = pytest.mark.parametrize("outage", [OUTAGES["gone"], OUTAGES["hanging"]], ids=["killed", "stopped"])


@pytest.mark.req("B1")
async def test_a_budget_in_redis_outlives_the_broker_and_a_denial_stores_nothing(tmp_path: Path) -> None:
    with private_redis() as redis:
        async with broker(tmp_path, limiter=redis.url, limits=HOURLY) as running:
            alice = await create_mesh(running)
            async with alice.connected() as wire:
                outcomes = await wire.send(*(dm(id_, alice) for id_ in ("m1", "m2", "m3")))
                assert [outcome.status for outcome in outcomes] == [201, 201, 429]
                assert 0 < (outcomes[2].retry_after_ms or 0) <= 3_600_000
        async with (
            broker(tmp_path, limiter=redis.url, limits=HOURLY) as again,
            back(alice, again).connected() as wire,
        ):
            outcomes = await wire.send(*(dm(id_, alice) for id_ in ("m1", "m2", "m3")))
            assert [outcome.status for outcome in outcomes] == [200, 200, 429]
            assert [one.client_message_id for one in await wire.deliveries(2)] == ["m1", "m2"]


@outages
@pytest.mark.req("B0", "B1")
async def test_without_its_limiter_a_broker_answers_retries_and_puts_off_what_is_new(
    tmp_path: Path, outage: Outage
) -> None:
    with private_redis() as redis:
        async with broker(tmp_path, limiter=redis.url) as running:
            alice = await create_mesh(running)
            async with alice.connected() as wire:
                [first] = await wire.send(dm("m1", alice))
                assert first.status == 201
                outage.begin(redis)
                try:
                    [retry, fresh, other] = await wire.send(
                        dm("m1", alice), dm("m2", alice), dm("m1", alice, "other")
                    )
                finally:
                    outage.end(redis)
                assert (retry.status, retry.duplicate, retry.history_id) == (200, True, first.history_id)
                assert (fresh.status, fresh.code) == (503, "limiter_unavailable")
                assert (fresh.retry_after_ms or 0) > 0
                assert (other.status, other.code) == (409, "idempotency_key_reused")
                assert await metric(running, "limiter_unavailable_total") == 1
                [later] = await wire.send(dm("m2", alice))  # over the same connection
                assert (later.status, later.history_id) == (201, 2)


@outages
@pytest.mark.req("B1")
async def test_what_a_daemon_sends_meanwhile_stays_pending_and_goes_out_by_itself(
    tmp_path: Path, outage: Outage
) -> None:
    with private_redis() as redis:
        async with local_mesh(tmp_path, "alice", "bob", limiter=redis.tcp_url) as (_, alice, bob):
            await alice.send("bob", "before", client_message_id="m1")
            await bob.receives(1)
            outage.begin(redis)
            try:
                for number in (2, 3):
                    answer = await alice.send("bob", "meanwhile", client_message_id=f"m{number}")
                    assert answer.status == 202
                refused = await alice.until(lambda found: found["row"]["last_error"], "/v1/outbox/m2")
                assert refused["row"]["last_error"] == "limiter_unavailable"
                assert refused["row"]["status"] in {"pending", "inflight"}
                assert len(await bob.inbox()) == 1
            finally:
                outage.end(redis)
            arrived = [one["client_message_id"] for one in await bob.receives(3)]
            assert arrived == ["m1", "m2", "m3"]
