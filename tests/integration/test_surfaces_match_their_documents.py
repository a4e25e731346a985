"""The OpenAPI documents of daemon, broker and hub are true, as an outsider finds by asking everything they allow.

And their metrics are what a real reader of metrics understands.
"""

import asyncio
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from claudemesh.daemon import identity
from claudemesh.daemon.settings import Config, Ipc
from tests.integration.hub_process import Hub
from tests.mesh import local_broker, local_daemon, local_mesh

SPEC_DAEMON = {
    "connected",
    "reconnects_total",
    "lag_ms",
    "outbox_depth",
    "outbox_age_seconds",
    "dedupe_total",
    "dedupe_history_pruned_total",
    "disk_pct",
    "send_total",
    "recv_total",
    "ipc_request_total",
    "ipc_duration_seconds",
    "local_token_rotations_total",
    "clone_suspected_total",
    "invalid_inbound_total",
}
SPEC_BROKER = {
    "dedupe_orphan_check_total",
    "atomicity_violation_found",
    "dedupe_fingerprint_mismatch_total",
    "dedupe_misconfig_total",
    "rate_limit_rejection_total",
    "rate_limit_consumed_then_b2_rejected_total",
    "accept_total",
    "delivery_depth",
}


async def schemathesis(url: str, folder: Path, *more: str, examples: int = 20) -> bool:
    """Ask all that the document allows, and much that it does not; say whether the answers were as it says."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{url}/openapi.json",
        f"--max-examples={examples}",
        "--seed=1",
        "--phases=examples,coverage,fuzzing",
        "--generation-database=none",
        "--no-color",
        "--exclude-path=/v1/events",  # it never ends
        # Some rules are between fields, or of what stands: no schema can say them, so a 400 may meet a valid body.
        "--exclude-checks=positive_data_acceptance",
        *more,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=folder
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        print(output.decode())  # noqa: T201  whole, where an assertion would cut it
    return process.returncode == 0


@pytest.mark.req("D14", "F7")
@pytest.mark.parametrize("part", ["--exclude-path-regex", "--include-path-regex"], ids=["daemon", "dashboard"])
async def test_the_daemons_document_is_true(tmp_path: Path, part: str) -> None:
    config = Config(ipc=Ipc(requests_per_s=100_000, burst=100_000))
    async with local_broker(tmp_path) as broker:
        (here,) = await broker.enrol("alice")
        async with local_daemon(here, keys=identity.load_keys(here), config=config, tcp=True) as daemon:
            await daemon.until(lambda health: health["connected"])
            port = (here / "http.port").read_text().strip()
            token = (here / "local_token").read_text().strip()
            is_true = await schemathesis(
                f"http://127.0.0.1:{port}",
                tmp_path,
                f"--header=Authorization: Bearer {token}",
                f"{part}=^/(v1/dashboard|ui)/",
                "--exclude-path=/v1/rotate-token",  # it would take away the token that is asked with
                "--exclude-path=/v1/presence/end",  # and this the connection that others are answered over
            )
            assert is_true
            assert (await daemon.get("/v1/health"))["connected"], "and it is none the worse for it"


@pytest.mark.req("F7", "N1")
async def test_the_brokers_document_is_true(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        assert await schemathesis(broker.url, tmp_path)


@pytest.mark.req("F7", "R2")
async def test_the_hubs_document_is_true(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    hub = Hub(home, f"sqlite:///{home / 'hub.db'}")
    with hub.serving("--token-file", str(home / "token")):
        hub.token = (home / "token").read_text().strip()
        hub.make("/tasks/", {"title": "t"})
        is_true = await schemathesis(
            f"http://{hub.listen}", tmp_path, f"--header=Authorization: Bearer {hub.token}", examples=10
        )
        assert is_true
        assert hub.ask("GET", "/health").json["status"] == "ok", "and it is none the worse for it"


def names_of(text: str) -> set[str]:
    families = list(text_string_to_metric_families(text))
    return {sample.name for family in families for sample in family.samples}


@pytest.mark.req("O1")
async def test_metrics_have_the_names_of_the_contract_and_a_real_reader_understands_them(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, bob):
        await alice.send("bob", "x", client_message_id="m1")
        await bob.receives(1)
        await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        await alice.send("bob", "x", client_message_id="m1")
        text = (await alice.request("GET", "/v1/metrics")).body
        names = names_of(text)
        assert {f"cm_daemon_{name}" for name in SPEC_DAEMON} <= {
            name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in names
        }
        samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples if not s.labels}
        assert samples["cm_daemon_connected"] == 1
        assert samples["cm_daemon_dedupe_total"] == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", int(broker.url.rsplit(":", 1)[1]))
        writer.write(f"GET /v1/metrics HTTP/1.1\r\nhost: {broker.url[7:]}\r\nconnection: close\r\n\r\n".encode())
        told = (await reader.read()).decode().partition("\r\n\r\n")[2]
        writer.close()
        assert {f"cm_broker_{name}" for name in SPEC_BROKER} <= names_of(told)
