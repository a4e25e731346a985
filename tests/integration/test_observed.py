"""What happens is counted where it happens, and no log says more than it should."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from claudemesh.runtime.logs import JsonLog
from claudemesh.wire import frames
from tests.canaries import PLANTED, found_in
from tests.integration.broker_client import RunningBroker, broker, create_mesh, dm, request
from tests.mesh import local_mesh

WITHIN_S = 30.0


def read(text: str) -> dict[str, float]:
    """Return every sample by its name and its labels' values."""
    families = text_string_to_metric_families(text)
    return {" ".join([one.name, *one.labels.values()]): one.value for family in families for one in family.samples}


async def broker_metrics(running: RunningBroker) -> dict[str, float]:
    return read((await request("GET", f"{running.url}/v1/metrics")).body.decode())


@pytest.mark.req("O1")
@pytest.mark.parametrize("code", [frames.CLOSE_FEATURE_PARAM_INVALID, frames.CLOSE_FEATURE_PARAM_BELOW_FLOOR])
async def test_a_broker_counts_daemons_that_do_not_agree_to_when_it_forgets_ids(tmp_path: Path, code: int) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected():
            pass  # one that just leaves is not counted
        async with alice.connected() as wire:
            await wire.socket.close(code, "client_message_id_dedupe")
        async with asyncio.timeout(WITHIN_S):
            while not (found := await broker_metrics(running))["cm_broker_dedupe_misconfig_total"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found["cm_broker_dedupe_misconfig_total"] == 1


@pytest.mark.req("O1")
async def test_a_brokers_counts_follow_what_became_of_each_message(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            before = await broker_metrics(running)
            await wire.send(dm("1", alice), dm("1", alice), dm("1", alice, "other"))
            after = await broker_metrics(running)
    moved = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert {name: moved.get(name) for name in (
        "cm_broker_accept_total accepted", "cm_broker_accept_total duplicate", "cm_broker_accept_total refused",
        "cm_broker_dedupe_fingerprint_mismatch_total",
    )} == {
        "cm_broker_accept_total accepted": 1, "cm_broker_accept_total duplicate": 1,
        "cm_broker_accept_total refused": 1, "cm_broker_dedupe_fingerprint_mismatch_total": 1,
    }  # fmt: skip


@pytest.mark.req("O1")
async def test_a_daemons_counts_follow_its_life(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker_, alice, bob):

        async def metrics(daemon: Any) -> dict[str, float]:  # noqa: ANN401 - a daemon of the mesh
            return read((await daemon.request("GET", "/v1/metrics")).body)

        before = await metrics(alice)
        await alice.send("bob", "x", client_message_id="m1")
        await bob.receives(1)
        await alice.until(lambda found: found["state"] in ("accepted", "delivered"), "/v1/trace/m1")
        await alice.send("bob", "x", client_message_id="m1")
        await alice.post("/v1/rotate-token", {})
        await alice.get("/v1/nowhere")
        await alice.send("queue:nowhere", "x", client_message_id="m2")
        await alice.until(lambda health: health["dead"] == 1)
        await broker_.stop()
        await alice.until(lambda health: not health["connected"])
        await alice.send("bob", "x", client_message_id="m3")
        waiting = await metrics(alice)
        await broker_.start()
        await alice.until(lambda health: health["connected"] and not health["queue_depth"] + health["inflight"])
        after = await metrics(alice)
    assert (moved := read_of(after, before))["cm_daemon_send_total accepted"] == 2
    for name in (
        "cm_daemon_dedupe_total", "cm_daemon_local_token_rotations_total", "cm_daemon_send_total refused",
        "cm_daemon_outbox_depth dead", "cm_daemon_reconnects_total",
    ):  # fmt: skip
        assert moved[name] == 1, name
    assert moved["cm_daemon_ipc_request_total 4xx"] >= 1
    assert moved["cm_daemon_ipc_request_total 2xx"] >= 5
    assert moved["cm_daemon_ipc_duration_seconds_count"] >= 6
    assert (waiting["cm_daemon_connected"], after["cm_daemon_connected"]) == (0, 1)
    assert waiting["cm_daemon_outbox_depth pending"] + waiting["cm_daemon_outbox_depth inflight"] == 1
    assert waiting["cm_daemon_outbox_age_seconds"] == waiting["cm_daemon_lag_ms"] / 1000


def read_of(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


@pytest.mark.req("O1")
async def test_bodies_and_secrets_are_in_no_log_even_where_everything_is_logged(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o700)
    async with local_mesh(tmp_path, "alice", "bob") as (broker_, alice, bob):
        everything = [
            JsonLog(daemon.world.clock, logs / f"{daemon.state_dir.name}-{number}.log", level="debug")
            for number, daemon in enumerate((alice, bob))
        ]
        for log, daemon in zip(everything, (alice, bob), strict=True):
            log.attach(daemon.world.observer)
        own = [(daemon.state_dir / "local_token").read_text().strip() for daemon in (alice, bob)]
        own += [daemon.keys.seed.hex() for daemon in (alice, bob)]
        for number, secret in enumerate(PLANTED):
            await alice.send("bob", f"see {secret}", meta={"key": secret}, client_message_id=f"m{number}")
            await alice.send("bob", f"other {secret}", client_message_id=f"m{number}")  # a conflict
            await alice.post("/v1/send", {"to": secret, "message": secret, "priority": secret})  # refused
            await alice.get(f"/v1/trace/{secret}")
        await bob.receives(len(PLANTED))
        await broker_.stop()
        await alice.until(lambda health: not health["connected"])
        for log in everything:
            log.close()
        for daemon in (alice, bob):
            (logs / f"{daemon.keys.pubkey}.log").write_bytes((daemon.state_dir / "daemon.log").read_bytes())
    lines = [json.loads(line) for path in logs.iterdir() for line in path.read_text().splitlines()]
    assert {"daemon.send_judged", "daemon.rows_settled", "daemon.message_received"} <= {
        line["event"] for line in lines
    }
    assert all(line.keys() >= {"at", "level", "event"} for line in lines)
    assert found_in(logs, (*PLANTED, *own)) == []


@pytest.mark.req("C5")
async def test_health_counts_what_was_not_read(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await alice.send("bob", "x", client_message_id="m1")
        await alice.send("bob", "y", client_message_id="m2")
        messages = await bob.receives(2)
        assert (await bob.get("/v1/health"))["unread"] == 2
        await bob.post("/v1/inbox/read", {"ids": [messages[0]["broker_message_id"]]})
        assert (await bob.get("/v1/health"))["unread"] == 1
