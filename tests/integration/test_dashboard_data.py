"""What the dashboard shows and decides: of the daemon, and of the relay, the ledger and the lake of its home."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon import identity
from claudemesh.ledger import MessageCassette
from claudemesh.pipeline.lake import Cut, Lake, write_durably
from claudemesh.runtime.home import InstanceLock
from claudemesh.wire.instants import render_instant
from tests.edge_doubles import Edge
from tests.fake_upstream import FakeUpstream
from tests.integration.dashboard_page import Page, opened
from tests.integration.test_relay_operators import conflicting
from tests.mesh import local_broker, local_daemon

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>{{7*7}} javascript:alert(3) \u202e\u0000"
REQUEUE, DROP = "/v1/dashboard/outbox/requeue", "/v1/dashboard/outbox/drop"


def all_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


# --- nothing there yet ---------------------------------------------------------------------------------


@pytest.mark.req("C4")
async def test_a_home_with_nothing_in_it_is_shown_as_that_and_nothing_is_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        before = all_of(tmp_path)
        overview = await page.get("/v1/dashboard/overview")
        assert (overview["connected"], overview["queues"], overview["unread"]) == (False, None, 0)
        assert (overview["relay"]["state"], overview["relay"]["conflicts"]) == ("none", 0)
        assert (await page.get("/v1/dashboard/relay/envelopes")) == {
            "state": "none",
            "items": [],
            "next_after": None,
        }
        ledger = await page.get("/v1/dashboard/ledger")
        assert (ledger["state"], ledger["steps"]) == ("none", [])
        pipeline = await page.get("/v1/dashboard/pipeline")
        assert (pipeline["state"], pipeline["command"]) == ("none", "claudemesh pipeline report")
        for path in ("relay/envelope?id=x", "ledger/step?id=x"):
            assert (await page.ask("GET", f"/v1/dashboard/{path}")).refusal == (404, "not_found")
        assert all_of(tmp_path) == before


# --- the outbox ----------------------------------------------------------------------------------------


async def send(page: Page, *ids: str) -> list[str]:
    """Have messages wait, and return their rows' ids, oldest first."""
    for one in ids:
        answer = await page.daemon.send("b" * 64, HOSTILE.rstrip("\0"), client_message_id=one)
        assert answer.status == 202, answer.body
    rows = (await page.get("/v1/dashboard/outbox"))["rows"]
    return [row["id"] for row in reversed(rows)]


@pytest.mark.req("C4")
async def test_the_outbox_is_paged_from_its_newest_row(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        rows = await send(page, "m1", "m2", "m3")
        first = await page.get("/v1/dashboard/outbox?limit=2&state=open")
        rest = await page.get(f"/v1/dashboard/outbox?limit=2&state=open&before={first['next_before']}")
        assert [row["id"] for row in first["rows"] + rest["rows"]] == rows[::-1]
        assert rest["next_before"] is None
        assert (await page.get("/v1/dashboard/outbox?state=dead"))["rows"] == []
        assert (await page.ask("GET", "/v1/dashboard/outbox?state=secret")).refusal == (400, "invalid_request")


@pytest.mark.req("C4")
async def test_a_row_is_requeued_once_for_each_key(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        (row,) = await send(page, "m1")
        asked = {"id": row, "key": "key-1"}
        first = await page.post(REQUEUE, **asked)
        assert (first["status"], first["client_message_id"], first["replayed"]) == ("aborted", "key-1", False)
        again = await page.post(REQUEUE, **asked)
        assert again == {**first, "replayed": True}
        assert len((await page.get("/v1/dashboard/outbox"))["rows"]) == 2, "it was sent anew once"
        other = await page.ask("POST", REQUEUE, {**asked, "key": "key-2"})
        assert other.refusal == (409, "transition_refused")
        assert (await page.ask("POST", DROP, asked)).refusal == (409, "transition_refused")


@pytest.mark.req("C4")
async def test_a_row_is_dropped_once_and_another_key_is_told_that_it_came_late(tmp_path: Path) -> None:
    async with opened(tmp_path) as page:
        (row,) = await send(page, "m1")
        assert (await page.post(DROP, id=row, key="k1"))["replayed"] is False
        assert (await page.post(DROP, id=row, key="k1"))["replayed"] is True
        assert (await page.ask("POST", DROP, {"id": row, "key": "k2"})).refusal == (409, "transition_refused")
        assert (await page.ask("POST", DROP, {"id": "nobody", "key": "k3"})).refusal == (404, "not_found")
        for key in ("", "a b", "k\n", "x" * 129, HOSTILE):
            refused = await page.ask("POST", DROP, {"id": row, "key": key})
            assert refused.refusal == (400, "invalid_request"), key


# --- traffic -------------------------------------------------------------------------------------------


@pytest.mark.req("C4")
async def test_traffic_tells_what_was_sent_accepted_and_received_and_how_long_it_took(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        (here,) = await broker.enrol("alice")
        async with local_daemon(here, keys=identity.load_keys(here), tcp=True) as daemon:
            await daemon.until(lambda health: health["connected"])
            for number in range(3):
                await daemon.send("alice", HOSTILE.rstrip("\0"), client_message_id=f"m{number}")
            await daemon.receives(3)
            await daemon.until(lambda health: health["queue_depth"] + health["inflight"] == 0)
            page = Page(daemon)
            await page.login()
            traffic = await page.get("/v1/dashboard/traffic?span=day")
            assert (len(traffic["buckets"]), traffic["bucket_s"], traffic["is_cut"]) == (96, 900, False)
            sums = {name: sum(one[name] for one in traffic["buckets"]) for name in ("sent", "accepted", "received")}
            assert sums == {"sent": 3, "accepted": 3, "received": 3}
            (measured,) = [one for one in traffic["buckets"] if one["accepted"]] or [None]
            assert measured is not None
            assert 0 <= measured["send_p50_ms"] <= measured["send_p99_ms"]
            assert (await page.get("/v1/dashboard/overview"))["queues"] == {"count": 0, "ready": 0, "leased": 0}
            assert (await page.get("/v1/trace/m1"))["direction"] == "sent"


# --- the relay -----------------------------------------------------------------------------------------


async def decide(page: Page, envelope: str, decision: str, key: str = "k1") -> Any:  # noqa: ANN401  any document
    return await page.post("/v1/dashboard/relay/decide", id=envelope, key=key, decision=decision)


def decided(shown: Any) -> list[Any]:  # noqa: ANN401  any document
    """Return what was decided of a conflict; what a relay that runs tried since then is left out."""
    return [one for one in shown["happened"] if one["was"] == "conflict"]


@pytest.mark.req("C4")
@pytest.mark.parametrize("running", ["running", "stopped"])
@pytest.mark.parametrize("decision", ["keep-mine", "keep-theirs", "retry", "cancel"])
async def test_a_conflict_is_shown_with_both_values_and_decided_once_for_each_key(
    tmp_path: Path, edge: Edge, upstream: FakeUpstream, decision: str, running: str
) -> None:
    envelope, _ = await conflicting(edge, upstream)
    await upstream.close()  # so that what is decided waits, and can be looked at
    if running == "stopped":
        await edge.stop()
    async with opened(tmp_path) as page:
        overview = (await page.get("/v1/dashboard/overview"))["relay"]
        assert (overview["state"], overview["conflicts"]) == (running, 1)
        assert "conflicts" in overview["concerns"]
        listed = await page.get("/v1/dashboard/relay/envelopes?state=conflict")
        assert [one["id"] for one in listed["items"]] == [envelope]
        shown = await page.get(f"/v1/dashboard/relay/envelope?id={envelope}")
        assert (shown["mine"]["title"], shown["theirs"]["title"]) == ("mine", "theirs")
        assert shown["created_at"].endswith("Z")

        first = await decide(page, envelope, decision)
        waiting = {"queued"} if running == "stopped" else {"queued", "sending"}  # a relay that runs tries at once
        assert first["state"] in ({"cancelled"} if decision in {"cancel", "keep-theirs"} else waiting)
        assert first["replayed"] is False
        again = await decide(page, envelope, decision)
        assert again["replayed"] is True
        assert decided(again) == decided(first), "nothing was decided a second time"
        assert len(decided(first)) == 1
        other = "retry" if decision == "cancel" else "cancel"
        reused = {"id": envelope, "key": "k1", "decision": other}
        refused = await page.ask("POST", "/v1/dashboard/relay/decide", reused)
        assert refused.refusal == (409, "key_reused")
        assert (await page.get("/v1/dashboard/overview"))["relay"]["conflicts"] == 0


@pytest.mark.req("C4")
async def test_a_relay_that_is_stopped_is_shown_to_all_who_ask_at_once(
    tmp_path: Path, edge: Edge, upstream: FakeUpstream
) -> None:
    envelope, _ = await conflicting(edge, upstream)
    await edge.stop()
    async with opened(tmp_path) as page:
        shown = ("overview", "relay/envelopes?state=conflict", f"relay/envelope?id={envelope}")
        told = await asyncio.gather(*(page.get(f"/v1/dashboard/{path}") for path in shown * 4))
        for overview, listed, one in zip(told[::3], told[1::3], told[2::3], strict=True):
            assert (overview["relay"]["state"], overview["relay"]["conflicts"]) == ("stopped", 1)
            assert (listed["state"], [row["id"] for row in listed["items"]]) == ("stopped", [envelope])
            assert one["id"] == envelope


@pytest.mark.req("C4")
async def test_a_relay_that_hangs_is_told_so_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "edge"
    folder.mkdir(mode=0o700)
    with InstanceLock(folder / "pid"), socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "sock"))
        (folder / "sock").chmod(0o600)
        silent.listen()
        async with opened(tmp_path) as page:
            asked = [asyncio.create_task(page.get("/v1/dashboard/overview")) for _ in range(6)]
            assert (await page.daemon.send("b" * 64, "x")).status == 202, "sends go on meanwhile"
            assert (await page.get("/v1/dashboard/ledger"))["state"] == "none", "and so does whatever else is asked"
            for overview in await asyncio.gather(*asked):
                assert overview["relay"]["state"] == "unusable"
                assert overview["relay"]["detail"].startswith("the relay did not answer")
            assert (await page.get("/v1/dashboard/relay/envelopes"))["state"] == "unusable"


# --- the ledger ----------------------------------------------------------------------------------------


@pytest.mark.req("C4")
async def test_the_ledger_is_shown_with_leases_and_receipts(tmp_path: Path) -> None:
    with MessageCassette(db_path=tmp_path / "ledger.db") as ledger:
        for number in range(3):
            ledger.post_message({"intent": HOSTILE.rstrip("\0"), "n": number}, "nightly", "USER")
        done = ledger.claim_step("nightly", "w1")
        ledger.complete_step("nightly", done["step_id"], "w1", done["fencing_token"], {"ok": HOSTILE}, "SUCCESS")
        held = ledger.claim_step("nightly", "w2", 0.001)
    async with opened(tmp_path) as page:
        board = await page.get("/v1/dashboard/ledger?limit=2")
        assert (board["state"], board["counts"]) == (
            "there",
            {"PENDING": 1, "LEASED": 1, "COMMITTED": 1, "expired": 1},
        )
        assert [step["status"] for step in board["steps"]] == ["PENDING", "LEASED"], "the newest first"
        (older,) = (await page.get(f"/v1/dashboard/ledger?before={board['next_before']}"))["steps"]
        assert (older["step_id"], older["outcome"]) == (done["step_id"], "SUCCESS")
        (leased,) = (await page.get("/v1/dashboard/ledger?status=LEASED"))["steps"]
        assert (leased["step_id"], leased["lease_owner"], leased["is_expired"]) == (held["step_id"], "w2", True)
        shown = await page.get(f"/v1/dashboard/ledger/step?id={done['step_id']}")
        assert (shown["payload"]["n"], shown["receipt"]["receipt"]) == (0, {"ok": HOSTILE})
        assert (await page.get(f"/v1/dashboard/ledger/step?id={held['step_id']}"))["receipt"] is None


@pytest.mark.req("C4")
async def test_a_file_that_is_no_ledger_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("nonsense " * 1000)
    async with opened(tmp_path) as page:
        board = await page.get("/v1/dashboard/ledger")
        assert board["state"] == "unusable"
        assert board["detail"]


# --- the lake ------------------------------------------------------------------------------------------


def report(**more: object) -> dict[str, Any]:
    verdicts = [{"name": "orphans", "about": HOSTILE, "violations": 0, "items": []}]
    return {"cut": 1, "at": "2026-01-01T00:00:00.000Z", "since": None, "ok": True, "verdicts": verdicts, **more}


@pytest.mark.req("C4")
async def test_the_newest_report_is_shown_with_when_it_was_made(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for number in (1, 2):
        lake.publish(Cut(number=number, at_ms=number * 1000, sources={}, read=[]))
    async with opened(tmp_path) as page:
        nothing = await page.get("/v1/dashboard/pipeline")
        assert (nothing["state"], nothing["cut"], nothing["report"]) == ("none", 2, None)
        traffic = [{"hour_at": hour, "messages": 1} for hour in range(3_000)]
        sources = [{"name": "broker-1", "kind": "broker", "totals": {}, "traffic": traffic}]
        file = lake.gold("report", 1) / "report.json"
        write_durably(file, json.dumps(report(sources=sources)).encode())
        shown = await page.get("/v1/dashboard/pipeline")
        assert (shown["state"], shown["cut"], shown["report"]["cut"]) == ("there", 2, 1)
        assert shown["report"]["verdicts"][0]["about"] == HOSTILE
        assert shown["report"]["made_at"] == render_instant(file.stat().st_mtime_ns // 1_000_000)
        (source,) = shown["report"]["sources"]
        assert (len(source["traffic"]), source["shortened"]) == (2_000, ["traffic"])
        assert source["traffic"][-1]["hour_at"] == 2_999
        write_durably(file, b'{"cut": 1')
        broken = await page.get("/v1/dashboard/pipeline")
        assert broken["state"] == "unusable"
