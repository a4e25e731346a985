"""The rest of what a daemon can be asked: who is told what, by which parameters, and that it is all documented."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon.settings import Config, Ipc
from claudemesh.runtime.keys import KeyPair
from tests.mesh import WITHIN_S, LocalDaemon, local_daemon, local_mesh

# As the contract names them. Sessions and heartbeats come with presence.
ROUTES = {
    *(("POST", f"/v1/topic/{verb}") for verb in ("create", "subscribe", "unsubscribe", "post")),
    *(("POST", f"/v1/queue/{verb}") for verb in ("create", "work", "ack", "nack", "renew")),
    *(("POST", f"/v1/outbox/{verb}") for verb in ("requeue", "drop", "prune")),
    *(("POST", path) for path in ("/v1/send", "/v1/send/batch", "/v1/inbox/read", "/v1/profile")),
    *(
        ("GET", path)
        for path in (
            "/v1/inbox",
            "/v1/inbox/message/{id}",
            "/v1/inbox/search",
            "/v1/topic/list",
            "/v1/peers",
            "/v1/trace/{id}",
        )
    ),
    *(("GET", path) for path in ("/v1/outbox", "/v1/outbox/{id}", "/v1/events", "/v1/health", "/v1/metrics")),
    *(("GET", path) for path in ("/v1/version", "/v1/compat", "/v1/queue/list")),
}
# The dashboard's page, which holds nothing, and where a code opens it.
OPEN = {("GET", "/ui/"), ("GET", "/ui/{name}"), ("POST", "/v1/dashboard/login")}
HEALTH = "connected lag_ms queue_depth inflight mesh member_pubkey uptime_s schema_version daemon_version"
HEALTH += " broker_version degraded"
VERSION = "daemon_version ipc_api ipc_features schema_version broker_features_negotiated"


@pytest.mark.req("D14")
async def test_the_document_describes_every_route_and_parameter_of_the_contract(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate()) as daemon:
        document = await daemon.get("/openapi.json")
        described = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
        assert described >= ROUTES
        parameters = {one["name"] for one in document["paths"]["/v1/inbox"]["get"]["parameters"]}
        assert parameters == {"since", "topic", "from", "mentions", "unread", "limit", "cursor"}
        assert (await daemon.get("/v1/health")).keys() >= set(HEALTH.split())
        assert (await daemon.get("/v1/version")).keys() == set(VERSION.split())
        assert (await daemon.get("/v1/compat"))["ipc_api"] == ["v1"]


async def ask_by_tcp(daemon: LocalDaemon, method: str, path: str) -> int:
    """Ask without a token, and return the status."""
    port = int((daemon.state_dir / "http.port").read_text())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close", "content-length: 0"]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    status = await asyncio.wait_for(reader.readline(), WITHIN_S)
    writer.close()
    return int(status.split()[1])


@pytest.mark.req("D14")
@pytest.mark.parametrize("is_public", [False, True])
async def test_by_tcp_everything_needs_a_token_but_health_where_it_is_made_public(
    tmp_path: Path, *, is_public: bool
) -> None:
    config = Config(ipc=Ipc(public_health_check=is_public))
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), config=config, tcp=True) as daemon:
        document = await daemon.get("/openapi.json")
        asked = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
        let_in = {one for one in asked if await ask_by_tcp(daemon, *one) != 401}
        said_public = {
            (method.upper(), path)
            for path, found in document["paths"].items()
            for method, said in found.items()
            if said.get("security") == []
        }
        assert let_in == said_public == ({("GET", "/v1/health")} if is_public else set()) | OPEN
        assert document["security"] == [{"bearer": []}]
        assert {"400", "401", "403", "429"} <= document["paths"]["/v1/version"]["get"]["responses"].keys()


@pytest.mark.req("D14")
async def test_the_inbox_is_asked_by_time_sender_topic_mention_and_page(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        await alice.post("/v1/topic/create", {"topic": "news"})
        for daemon in (alice, bob, carol):
            await daemon.post("/v1/topic/subscribe", {"topic": "news"})
        await alice.send("bob", "direct")
        await bob.receives(1)
        await carol.post("/v1/topic/post", {"topic": "news", "message": "posted", "mentions": ["bob"]})
        await bob.receives(2)
        await carol.post("/v1/topic/post", {"topic": "news", "message": "last", "mentions": ["alice"]})
        last: dict[str, Any] = (await bob.receives(3))[-1]

        async def bodies(query: str) -> list[str]:
            return [message["body"] for message in (await bob.get(f"/v1/inbox?{query}"))["messages"]]

        assert await bodies("from=alice") == ["direct"]
        assert await bodies(f"from={carol.keys.pubkey}") == ["posted", "last"]
        assert await bodies("topic=news") == ["posted", "last"]
        assert await bodies("mentions=me") == ["posted"]
        assert await bodies(f"since={last['received_at']}") == ["last"]
        assert await bodies("since=2999-01-01T00:00:00Z") == []
        assert await bodies("topic=news&from=alice") == []
        page = await bob.get("/v1/inbox?limit=2")
        assert await bodies(f"limit=2&cursor={page['next_cursor']}") == ["last"]
        refused = [
            await bob.request("GET", f"/v1/inbox?{query}") for query in ("mentions=alice", "limit=0", "since=x")
        ]
        assert [answer.status for answer in refused] == [400] * 3


@pytest.mark.req("D14")
async def test_what_a_member_says_of_itself_is_shown_to_the_others_and_outlives_its_broker(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, bob):
        told = await alice.post("/v1/profile", {"about": "builds the releases"})
        assert (told.status, told.body) == (200, {"about": "builds the releases"})
        assert (await alice.post("/v1/profile", {"about": "x" * 281})).status == 400
        await broker.stop()
        for daemon in (alice, bob):
            await daemon.until(lambda health: not health["connected"])
        offline = await alice.post("/v1/profile", {"about": "unheard"})
        assert (offline.status, offline.body["code"]) == (503, "broker_unreachable")
        await broker.start()
        await bob.until(lambda health: health["connected"])
        peers = (await bob.get("/v1/peers?all=1"))["peers"]
        assert {peer["name"]: peer["about"] for peer in peers} == {"alice": "builds the releases", "bob": ""}


async def test_queues_are_listed_with_what_waits_in_them_and_what_is_leased(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice") as (_, alice):
        for name in ("builds", "empty"):
            await alice.post("/v1/queue/create", {"queue": name})
        for body in ("one", "two"):
            await alice.post("/v1/send", {"to": "queue:builds", "message": body})
        await alice.until(lambda health: not health["queue_depth"] and not health["inflight"])
        await alice.post("/v1/queue/work", {"queue": "builds"})
        listed = (await alice.get("/v1/queue/list"))["queues"]
        assert [(one["name"], one["ready"], one["leased"]) for one in listed] == [("builds", 1, 1), ("empty", 0, 0)]
        assert all(one["created_at"].endswith("Z") for one in listed)
