"""From an agent through the relay to the hub, over an outage: told as queued while it waits, and committed once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fake_upstream import FakeUpstream
from tests.integration.hub_process import Hub
from tests.integration.mcp_client import ERAS, Agent, inside, process
from tests.integration.relay_process import Relay

WITHIN_S = 30


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    (tmp_path / "hub").mkdir(mode=0o700)
    return Hub(tmp_path / "hub", f"sqlite:///{tmp_path / 'hub' / 'hub.db'}")


@contextmanager
def relay_to(hub: Hub, home: Path) -> Iterator[Relay]:
    relay = Relay(home, f"http://{hub.listen}")
    with relay.serving():
        yield relay


@pytest.mark.req("C3")
async def test_a_write_goes_where_the_relay_listens_and_nobody_where_its_settings_say_hears_of_it(
    hub: Hub, upstream: FakeUpstream, tmp_path: Path
) -> None:
    home, stranger = tmp_path / "home", upstream
    relay = Relay(home, f"http://{hub.listen}")
    (home / "edge.toml").write_text(f'listen = "{stranger.address}"\nrequire_token = true\n')
    with relay.serving():
        async with process(home, ERAS[0], CLAUDEMESH_EDGE__LISTEN=stranger.address) as agent:
            told = await agent.use("write", path="/progress/", body={"agent": "tester", "summary": "half way"})
            assert (told["outcome"], told["is_done"]) == ("queued", False), "the hub is away"
            assert (await agent.use("status"))["relay"]["pending"] == 1
    assert stranger.seen == []


async def until(agent: Agent, is_so: Any) -> dict[str, Any]:  # noqa: ANN401  a predicate
    async with asyncio.timeout(WITHIN_S):
        while not is_so(found := await agent.use("status")):  # noqa: ASYNC110  another's to be so
            await asyncio.sleep(0.05)
        return found


@pytest.mark.req("C3", "R4")
@pytest.mark.parametrize("era", ERAS)
async def test_a_write_over_an_outage_is_queued_told_so_and_committed_once(
    hub: Hub, tmp_path: Path, era: str
) -> None:
    progress = {"agent": "tester", "summary": "half way"}
    asked = {"path": "/progress/", "body": progress, "idempotency_key": "p1"}
    with relay_to(hub, tmp_path / "home"):
        async with process(tmp_path / "home", era) as agent:
            queued = await agent.use("write", **asked)
            assert (queued["outcome"], queued["is_done"], queued["replayed"]) == ("queued", False, False)
            assert queued["said"].startswith("Queued")
            again = await agent.use("write", **asked)
            assert (again["is_done"], again["replayed"], again["outbox_id"]) == (False, True, queued["outbox_id"])
            refused = await agent.fail("write", path="/tasks/1", method="DELETE")
            assert (refused["code"], refused["reason"]) == ("not_queueable", "online_only")
            status = await agent.use("status")
            assert (status["nothing_waits"], status["relay"]["pending"]) == (False, 1)
            told = await agent.prompt("hand_over_work")
            assert "NOT EVERYTHING HAS HAPPENED" in told
            assert "1 writes are queued at the relay" in told

            with hub.serving():
                await until(agent, lambda found: found["relay"]["pending"] == 0)
                done = await agent.use("write", **asked)
                assert (done["outcome"], done["is_done"], done["replayed"]) == ("forwarded", True, True)
                items = hub.ask("GET", "/progress/").json["items"]
                assert [item["summary"] for item in items if item["agent"] == "tester"] == ["half way"]
                other = await agent.fail("write", **asked | {"body": {**progress, "summary": "other"}})
                assert other["retry"] == "no"


@pytest.mark.req("C3")
async def test_a_conflict_is_shown_with_both_values_and_decided_once_for_a_key(hub: Hub, tmp_path: Path) -> None:
    with relay_to(hub, tmp_path / "home"):
        async with inside(tmp_path / "home", ERAS[0]) as agent:
            with hub.serving():
                tasks = [hub.make("/tasks/", {"title": f"task {number}"}) for number in range(2)]
                await until(agent, lambda found: found["relay"]["is_hub_reachable"])
            for task in tasks:
                body = {"status": "done", "expected_updated_at": task["updated_at"]}
                queued = await agent.use("write", method="PATCH", path=f"/tasks/{task['id']}", body=body)
                assert queued["outcome"] == "queued"
            with _changed(hub, tasks):
                await until(agent, lambda found: found["relay"]["conflicts"] == 2)
                first = await agent.use("conflicts", limit=1)
                [one] = first["conflicts"]
                rest = await agent.use("conflicts", limit=1, cursor=first["next_cursor"])
                [two] = rest["conflicts"]
                assert '"status":"done"' in one["mine"]
                assert '"status":"blocked"' in one["theirs"]
                assert (await agent.use("status"))["nothing_waits"] is False
                kept = await agent.use("conflicts", id=one["id"], keep="theirs", idempotency_key="k1")
                again = await agent.use("conflicts", id=one["id"], keep="theirs", idempotency_key="k1")
                assert (kept["resolved"], kept["replayed"], again["replayed"]) == ("theirs", False, True)
                assert (await agent.fail("conflicts", id=one["id"], keep="mine"))["retry"] == "no"
                ours = await agent.use("conflicts", id=two["id"], keep="mine", idempotency_key="k2")
                assert (ours["resolved"], "not done yet" in ours["said"]) == ("mine", True)
                await until(
                    agent, lambda found: found["nothing_waits"] is False and not found["relay"]["conflicts"]
                )
                await until(agent, lambda found: found["relay"]["pending"] == 0)
                states = {hub.ask("GET", f"/tasks/{task['id']}").json["status"] for task in tasks}
                assert states == {"done", "blocked"}


@contextmanager
def _changed(hub: Hub, tasks: list[dict[str, Any]]) -> Iterator[None]:
    """Have the hub back, after somebody else changed the tasks there."""
    quiet = Hub(hub.home, hub.store)  # at another address, which the relay does not know
    with quiet.serving():
        for task in tasks:
            assert quiet.ask("PATCH", f"/tasks/{task['id']}", {"status": "blocked"}).status == 200
    with hub.serving():
        yield


@pytest.mark.req("C3")
async def test_a_decision_that_crashed_before_it_was_kept_is_found_and_not_made_twice(
    hub: Hub, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with relay_to(hub, home):
        async with inside(home, ERAS[0]) as agent:
            with hub.serving():
                task = hub.make("/tasks/", {"title": "a task"})
                await until(agent, lambda found: found["relay"]["is_hub_reachable"])
            body = {"status": "done", "expected_updated_at": task["updated_at"]}
            await agent.use("write", method="PATCH", path=f"/tasks/{task['id']}", body=body)
            with _changed(hub, [task]):
                await until(agent, lambda found: found["relay"]["conflicts"] == 1)
                [one] = (await agent.use("conflicts"))["conflicts"]
                await agent.use("conflicts", id=one["id"], keep="mine", idempotency_key="k1")
                await until(agent, lambda found: found["relay"]["pending"] == 0)
        for file in [*(home / "mcp").iterdir()]:  # what it kept is lost
            file.unlink()
        async with inside(home, ERAS[0]) as agent:
            again = await agent.use("conflicts", id=one["id"], keep="mine", idempotency_key="k1")
            assert (again["resolved"], again["replayed"]) == ("mine", True)
            assert (await agent.fail("conflicts", id=one["id"], keep="mine", idempotency_key="k2"))["retry"] == "no"
