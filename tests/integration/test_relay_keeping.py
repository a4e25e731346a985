"""What a relay keeps: its file, over restarts, damage and a full disk; what is taken elsewhere and measured."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest

from claudemesh.edge.events import OutboxUnusable, Recovered, RelayStarted, UpstreamReached, Warned
from claudemesh.edge.settings import Keeping, Limits
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import StoreFull
from claudemesh.runtime.home import write_private
from tests.doubles import ManualClock
from tests.edge_doubles import WITHIN_S, Edge, at, running_hub
from tests.fake_upstream import LOSE, Act, FakeUpstream, say
from tests.ports import own_address

NOTE = {"agent": "builder", "summary": "parser done"}


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if not path.is_socket()}


def spoil(file: Path) -> None:
    """Overwrite all of it but the first page, which says what it is."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (size - 4096))


# --- the file ------------------------------------------------------------------------------------------


@pytest.mark.req("R5")
async def test_its_files_are_its_owners_alone(edge: Edge, upstream: FakeUpstream, relay_folder: Path) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE)
    modes = modes_in(relay_folder)
    assert {"outbox.db", "outbox.db-wal", "edge.log"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert modes_in(relay_folder.parent)["edge"] == 0o700


@pytest.mark.req("R5")
async def test_an_envelope_says_all_that_is_known_of_it(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    sources = {"x_source_agent": "a", "x_source_host": "h", "x_source_repo": "r", "x_source_session": "s"}
    receipt = await edge.queue("PATCH", "/tasks/1?x=1", at(row, status="done"), key="k1", if_match='"1"', **sources)
    shown = await edge.show(receipt["outbox_id"])
    seen = shown["seen"]
    assert (seen["idempotency_key"], seen["state"], seen["route_class"]) == ("k1", "queued", "replace")
    assert (seen["request"], seen["entity"], seen["attempts"]) == ("PATCH /tasks/1", "tasks/1", 0)
    assert seen["source"] == {"agent": "a", "host": "h", "repo": "r", "session": "s"}
    assert seen["expectation"] == {"if_match": '"1"', "updated_at": row["updated_at"]}
    assert shown["mine"] == at(row, status="done")
    assert await edge.show("k1") == shown
    listed = (await edge.operate("GET", "/outbox?state=queued")).json["items"]
    assert [one["id"] for one in listed] == [receipt["outbox_id"]]
    assert (await edge.operate("GET", "/outbox?state=acked")).json["items"] == []


@pytest.mark.req("R5", "R7")
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_what_was_being_sent_when_the_relay_ended_is_sent_again_under_its_key(
    edge: Edge, upstream: FakeUpstream, how: str
) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.acts.append(Act(waits=asyncio.Event()))
    await edge.go_online(upstream)
    await upstream.until(lambda: bool(upstream.writes_of("k1")))
    await (edge.stop() if how == "stop" else edge.kill())
    await edge.start()
    shown = await edge.until_state(receipt["outbox_id"], "acked")
    assert shown["seen"]["attempts"] == 1
    assert [event["became"] for event in shown["happened"]] == ["queued", "sending", "queued", "sending", "acked"]
    assert upstream.applied["k1"] == 1


@pytest.mark.req("R5")
async def test_all_that_waits_survives_a_restart_in_its_order(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    for number in range(5):
        await edge.queue("PATCH", "/tasks/1", at(row, title=str(number)), key=f"k{number}")
    await edge.kill()
    await edge.start()
    assert (await edge.status())["pending"] == 5
    assert (await edge.queue("PATCH", "/tasks/1", at(row, title="0"), key="k0"))["state"] in {"queued", "sending"}
    await edge.go_online(upstream)
    await edge.until_settled()
    assert [body["title"] for path, body in upstream.log if "tasks" in path] == list("01234")


@pytest.mark.req("R5")
async def test_the_body_of_what_is_acked_goes_after_its_days_and_its_key_stays_known(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    clock = ManualClock()
    edge = Edge(relay_folder, upstream.url, clock=clock, settings={"keeping": Keeping(acked_days=30)})
    await edge.start()
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    for days, mine in ((29, NOTE), (2, None)):
        await edge.stop()
        clock.advance(days * DAY_MS)
        await edge.start()
        async with asyncio.timeout(WITHIN_S):  # the sweep is beside all else
            while (await edge.show("k1"))["mine"] != mine:
                assert (await edge.status())["pending"] == 0
    again = await edge.ask("POST", "/progress/", NOTE, key="k1")
    assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
    await edge.stop()


@pytest.mark.req("R5")
async def test_with_a_damaged_file_nothing_is_queued_and_forwarding_goes_on(
    edge: Edge, upstream: FakeUpstream, relay_folder: Path
) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="k1")
    await edge.stop()
    file = relay_folder / "outbox.db"
    damaged = b"not a database, but somebody's only copy" * 200
    file.write_bytes(damaged)
    for beside in ("-wal", "-shm"):
        file.with_name(file.name + beside).unlink(missing_ok=True)
    await upstream.open()
    await edge.start()
    assert edge.heard(OutboxUnusable)
    assert (await edge.ask("POST", "/progress/", NOTE, key="k2")).status == 201
    row = upstream.row("/tasks/1")
    assert (await edge.ask("PATCH", "/tasks/1", at(row, title="x"))).status == 200
    assert (await edge.ask("GET", "/tasks/1")).status == 200
    health = (await edge.ask("GET", "/health")).json
    assert (health["ok"], health["outbox_usable"], (await edge.status())["outbox_usable"]) == (True, False, False)
    await edge.go_offline(upstream)
    refused = await edge.ask("POST", "/progress/", NOTE, key="k3")
    assert (refused.status, refused.code) == (503, "store_unavailable")
    assert (await edge.ask("DELETE", "/tasks/1")).json["reason"] == "online_only"
    assert (await edge.operate("GET", "/outbox")).status == 503
    assert (await edge.ask("GET", "/metrics")).status == 200
    assert file.read_bytes() == damaged


@pytest.mark.req("R5")
async def test_a_file_of_which_a_table_is_damaged_keeps_nothing_from_being_forwarded(
    edge: Edge, upstream: FakeUpstream, relay_folder: Path
) -> None:
    row = upstream.row("/tasks/1")
    await edge.stop()
    connection = apsw.Connection(str(relay_folder / "outbox.db"))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET rootpage = 9999 WHERE name IN ('outbox', 'outbox_open')")
    connection.close()
    await edge.start()
    assert (await edge.ask("PATCH", "/tasks/1", at(row, title="x"), key="k1")).status == 200
    assert (await edge.ask("POST", "/progress/", NOTE, key="k2")).status == 201
    await edge.go_offline(upstream)
    refused = await edge.ask("POST", "/progress/", NOTE, key="k3")
    assert refused.status == 503


@pytest.mark.req("R5")
async def test_a_file_that_is_damaged_while_the_relay_runs_keeps_nothing_from_being_forwarded(
    edge: Edge, upstream: FakeUpstream, relay_folder: Path
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    for number in range(100):
        await edge.queue("POST", "/progress/", {**NOTE, "summary": "x" * 2_000}, key=f"k{number}")
    await edge.restart()
    spoil(relay_folder / "outbox.db")
    await edge.ask("GET", "/tasks/")  # whoever comes first may be told to come again
    await edge.until_heard(OutboxUnusable)
    await edge.until_heard(RelayStarted, 3)
    await upstream.open()
    assert (await edge.ask("PATCH", "/tasks/1", at(row, title="x"), key="n1")).status == 200
    assert (await edge.ask("POST", "/progress/", NOTE, key="n2")).status == 201
    assert (await edge.ask("GET", "/health")).json["outbox_usable"] is False
    upstream.acts.append(LOSE)
    unknown = await edge.ask("POST", "/progress/", NOTE, key="n3")
    assert (unknown.status, unknown.code) == (504, "outcome_unknown")
    refused = await edge.ask("POST", "/progress/", NOTE, key="n4")
    assert (refused.status, refused.code) == (503, "store_unavailable")


@pytest.mark.req("R5", "R4")
async def test_what_may_have_arrived_and_finds_no_room_has_an_unknown_outcome(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    edge = Edge(relay_folder, upstream.url, settings={"limits": Limits(reserved_bytes=1 << 20)})
    await edge.start()
    await edge.go_offline(upstream)
    large = {"agent": "a", "summary": "x" * 250_000}
    statuses = [(await edge.ask("POST", "/progress/", large)).status for _ in range(8)]
    assert statuses[-1] == 507
    await edge.go_online(upstream)
    await edge.until_settled()
    upstream.rule = lambda seen: LOSE if seen.key == "k1" else None
    unknown = await edge.ask("POST", "/progress/", NOTE, key="k1")
    assert (unknown.status, unknown.code) == (504, "outcome_unknown")
    await edge.stop()


@pytest.mark.req("R5")
async def test_56_when_there_is_no_room_a_write_is_refused_and_nothing_is_dropped(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    edge = Edge(relay_folder, upstream.url, settings={"limits": Limits(reserved_bytes=1 << 20)})
    await edge.start()
    await edge.go_offline(upstream)
    large = {"agent": "a", "summary": "x" * 100_000}
    queued = []
    for number in range(30):
        reply = await edge.ask("POST", "/progress/", large, key=f"k{number}")
        if reply.status != 202:
            break
        queued.append(reply.json["outbox_id"])
    assert (reply.status, reply.code) == (507, "insufficient_storage")
    assert 3 < len(queued) < 15
    assert (await edge.queue("POST", "/progress/", large, key="k0"))["outbox_id"] == queued[0]
    assert (await edge.status())["pending"] == len(queued)
    await edge.go_online(upstream)
    await edge.until_settled()
    assert all(upstream.applied[f"k{number}"] == 1 for number in range(len(queued)))
    await edge.stop()


# --- to another machine ----------------------------------------------------------------------------------


@pytest.mark.req("R5")
async def test_what_waits_can_be_taken_to_another_relay_and_is_done_once(
    edge: Edge, upstream: FakeUpstream, tmp_path: Path, relay_folder: Path
) -> None:
    row = upstream.row("/tasks/1")
    upstream.acts.append(LOSE)
    await edge.queue("POST", "/progress/", NOTE, key="lost")
    await edge.queue("PATCH", "/tasks/1", at(row, title="one"), key="k1")
    await edge.queue("PATCH", "/tasks/1", at(row, title="two"), key="k2")
    exported = (await edge.operate("GET", "/outbox/export")).json["items"]
    (relay_folder / "export.jsonl").write_text("\n".join(map(json.dumps, exported)))
    other = Edge(tmp_path / "other", upstream.url)
    await other.start()
    taken = await other.operate("POST", "/outbox/import", {"lines": exported})
    assert taken.json == {"imported": 3, "known": 0}
    assert (await other.operate("POST", "/outbox/import", {"lines": exported})).json == {"imported": 0, "known": 3}
    await other.go_online(upstream)
    await other.until_settled()
    assert {key: upstream.applied[key] for key in ("lost", "k1", "k2")} == {"lost": 1, "k1": 1, "k2": 1}
    assert upstream.rows["/tasks/1"]["title"] == "two"
    await edge.go_online(upstream)
    await edge.until_settled()
    assert {key: upstream.applied[key] for key in ("lost", "k1", "k2")} == {"lost": 1, "k1": 1, "k2": 1}
    await other.stop()


@pytest.mark.req("R7", "R5")
@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "http://elsewhere/"},
        {"path": "/a\r\nb: c"},
        {"if_match": "\u2028"},
        {"key": "a\r\nb"},
        {"source": {"agent": "x\ny"}},
        {"method": "get it"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_an_imported_envelope_that_is_no_request_dies_alone(
    edge: Edge, upstream: FakeUpstream, wrong: dict[str, Any]
) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="good")
    (line,) = (await edge.operate("GET", "/outbox/export")).json["items"]
    line["idempotency_key"] = "bad"
    line["envelope"] |= {"key": "bad", **wrong}
    assert (await edge.operate("POST", "/outbox/import", {"lines": [line]})).json["imported"] == 1
    await edge.go_online(upstream)
    assert (await edge.until_state("bad", "dead"))["seen"]["last_error"] == "unsendable"
    await edge.until_state("good", "acked")
    later = await edge.ask("POST", "/progress/", NOTE)
    assert (later.status, edge.is_alive) == (201, True)
    assert all(seen.key != "bad" for seen in upstream.writes)


@pytest.mark.req("R6", "R7")
async def test_a_credential_that_cannot_be_read_holds_writes_back_and_loses_none(
    relay_folder: Path, upstream: FakeUpstream, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    write_private(token, b"first\n")
    edge = Edge(relay_folder, upstream.url, settings={"token_file": str(token)})
    await edge.start()
    assert (await edge.ask("POST", "/progress/", NOTE)).status == 201
    token.unlink()
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    assert edge.is_alive
    write_private(token, b"second\n")
    await edge.ask("POST", "/replay")
    await edge.until_state(receipt["outbox_id"], "acked")
    assert upstream.writes_of("k1")[-1].get("authorization") == "Bearer second"
    await edge.stop()


# --- figures and the end of an outage --------------------------------------------------------------------


def metric(text: str, name: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith(name) and not line.startswith("#")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.req("R10", "R4")
async def test_status_and_metrics_tell_what_waits_how_long_and_what_failed(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    clock = ManualClock()
    edge = Edge(relay_folder, upstream.url, clock=clock)
    await edge.start()

    async def figures() -> dict[str, float]:
        text = (await edge.ask("GET", "/metrics")).body.decode()
        names = ("outbox_pending", "outbox_oldest_age_seconds", "replay_failures_total", "conflicts")
        return {name: metric(text, f"cm_edge_{name}") for name in names}

    assert set((await figures()).values()) == {0}
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="dies")
    clock.advance(90_000)
    await edge.queue("PATCH", "/tasks/1", at(row, title="x"), key="conflicts")
    status = await edge.status()
    assert (status["upstream_reachable"], status["pending"], status["oldest_pending_age_s"]) == (False, 2, 90)
    found = await figures()
    assert (found["outbox_pending"], found["outbox_oldest_age_seconds"]) == (2, 90)
    upstream.row("/tasks/1")
    upstream.rule = lambda seen: say(400) if seen.key == "dies" else None
    await edge.go_online(upstream)
    await edge.until_settled()
    status = await edge.status()
    assert (status["upstream_reachable"], status["conflicts"], status["dead"]) == (True, 1, 1)
    assert status["oldest_pending_age_s"] == 0
    found = await figures()
    assert found == {
        "outbox_pending": 0, "outbox_oldest_age_seconds": 0, "replay_failures_total": 2, "conflicts": 1,
    }  # fmt: skip
    await edge.stop()


@pytest.mark.req("R10")
async def test_the_end_of_an_outage_is_told_once_with_its_results(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    clock = ManualClock()
    edge = Edge(relay_folder, upstream.url, clock=clock)
    await edge.start()
    row, other = upstream.row("/tasks/1"), upstream.row("/tasks/2")
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="acked")
    await edge.queue("POST", "/progress/", NOTE, key="dead")
    await edge.queue("PATCH", "/tasks/1", at(row, status="a"))
    await edge.queue("PATCH", "/tasks/1", at(row, status="b"))
    await edge.queue("PATCH", "/tasks/2", at(other, status="c"))
    given_up = await edge.queue("POST", "/progress/", NOTE)
    await edge.decide(given_up["outbox_id"], "cancel")
    upstream.row("/tasks/2")
    clock.advance(125_000)
    upstream.rule = lambda seen: say(400) if seen.key == "dead" else None
    await edge.go_online(upstream)
    await edge.until_heard(Recovered)
    (told,) = edge.heard(Recovered)
    assert (told.outage_s, told.acked, told.conflicts, told.dead) == (125, 2, 1, 1)
    assert (told.coalesced, told.cancelled) == (1, 1)
    (report,) = [body for path, body in upstream.log if body.get("agent") == "statehub-edge"]
    assert report["details"]["acked"] == 2
    assert [seen.key for seen in upstream.writes].count(f"recovery-{told.outage_id}") == 1
    await edge.restart()
    await edge.ask("POST", "/progress/", NOTE)
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="next")
    await edge.go_online(upstream)
    await edge.until_heard(Recovered, 2)
    assert [seen.key for seen in upstream.writes].count(f"recovery-{told.outage_id}") == 1
    assert len({event.outage_id for event in edge.heard(Recovered)}) == 2
    await edge.stop()


@pytest.mark.req("R10")
async def test_an_outage_over_a_restart_is_one_outage(relay_folder: Path, upstream: FakeUpstream) -> None:
    clock = ManualClock()
    edge = Edge(relay_folder, upstream.url, clock=clock)
    await edge.start()
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="k1")
    clock.advance(60_000)
    await edge.stop()
    clock.advance(60_000)
    await edge.start()
    await edge.queue("POST", "/progress/", NOTE, key="k2")
    clock.advance(60_000)
    await edge.go_online(upstream)
    await edge.until_heard(Recovered)
    (told,) = edge.heard(Recovered)
    assert (told.outage_s, told.acked) == (180, 2)
    assert [body.get("agent") for _, body in upstream.log].count("statehub-edge") == 1
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="k3")
    await edge.go_online(upstream)
    await edge.until_heard(Recovered, 2)
    first, second = edge.heard(Recovered)
    assert first.outage_id != second.outage_id
    assert second.acked == 1
    await edge.stop()


@pytest.mark.req("R10")
async def test_an_upstream_that_went_away_and_kept_nobody_waiting_is_no_outage(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    await edge.go_online(upstream)
    await edge.until_heard(UpstreamReached)
    assert (await edge.ask("POST", "/progress/", NOTE)).status == 201
    await edge.stop()
    assert not edge.heard(Recovered)
    assert len(upstream.writes) == 1


@pytest.mark.req("R10")
async def test_a_report_that_does_not_get_through_waits_like_any_write(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/messages/", NOTE, key="k1")
    upstream.rule = lambda seen: LOSE if (seen.key or "").startswith("recovery-") else None
    await edge.go_online(upstream)
    await edge.until_heard(Recovered)
    upstream.rule = lambda _: None
    await edge.go_online(upstream)
    await edge.until_settled()
    (report,) = [key for key in upstream.applied if key.startswith("recovery-")]
    assert upstream.applied[report] == 1


@pytest.mark.req("R7")
async def test_a_full_disk_when_the_old_are_given_up_does_not_end_the_relay(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_room(*_: object) -> NoReturn:
        raise StoreFull("no room")

    monkeypatch.setattr(SqliteEnvelopeStore, "overdue", no_room)
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE)
    await edge.restart()
    await edge.until_heard(Warned)
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    assert edge.is_alive


@pytest.mark.req("R4", "R7")
async def test_a_key_with_a_quote_in_it_reaches_a_hub_as_the_same_key(tmp_path: Path, relay_folder: Path) -> None:
    address = own_address()
    edge = Edge(relay_folder, f"http://{address}")
    await edge.start()
    receipts = [
        await edge.queue("POST", "/progress/", {**NOTE, "summary": key}, key=key)
        for key in ('"a\\"b"', '"\\"x\\""', "x")
    ]
    async with running_hub(tmp_path, address):
        await edge.ask("POST", "/replay")
        for receipt in receipts:
            await edge.until_state(receipt["outbox_id"], "acked", "dead")
            assert await edge.state(receipt["outbox_id"]) == "acked"
    await edge.stop()
