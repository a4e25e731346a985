"""Replay: order, expectations, conflicts, and what each answer makes of an envelope."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from claudemesh.edge import policy
from claudemesh.edge.events import UpstreamReached, UpstreamRefusedUs, Warned
from claudemesh.edge.stores.sqlite.outbox import TOO_DEEP
from claudemesh.kernel.clock import DAY_MS
from claudemesh.outbox.sender import UNEXPECTED
from tests.doubles import ManualClock
from tests.edge_doubles import Edge, at, running_hub
from tests.fake_upstream import LOSE, Act, FakeUpstream, Say, Seen, problem, say
from tests.ports import own_address

NOTE = {"agent": "builder", "summary": "parser done"}


# --- what an answer makes of an envelope ---------------------------------------------------------------


@pytest.mark.req("R7")
@pytest.mark.parametrize(
    "act",
    [
        *(say(status) for status in (408, 425, 429, 500, 502, 503, 504, 507)),
        problem(409, "key_in_progress", retry_after="0"),
        problem(409, "key_in_progress", retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        say(202, {"queued": True, "outbox_id": "o1"}),  # of a relay in between: it waits there, and is not done
        say(302, location="http://127.0.0.1/"),
        Act(applies=False, says=b"SSH-2.0-OpenSSH\r\n"),
        Act(applies=False, loses=True),
    ],
    ids=lambda act: f"{act.says.status}" if hasattr(act.says, "status") else "broken",
)
async def test_what_may_pass_is_tried_again_under_the_same_key(
    edge: Edge, upstream: FakeUpstream, act: Act
) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.acts.extend([act, act])
    await edge.go_online(upstream)
    shown = await edge.until_state(receipt["outbox_id"], "acked", "dead", "conflict")
    assert shown["seen"]["state"] == "acked"
    assert len(upstream.writes_of("k1")) == 3
    assert upstream.applied["k1"] == 1
    assert shown["seen"]["attempts"] >= 1  # what breaks off on an idle connection is sent once more at once


@pytest.mark.req("R7")
@pytest.mark.parametrize("act", [say(400), say(404), problem(409, "key_reused"), say(410), say(413), say(422)])
async def test_another_refusal_is_the_end_of_it(edge: Edge, upstream: FakeUpstream, act: Act) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.rule = lambda seen: act if seen.key == "k1" else None
    await edge.go_online(upstream)
    shown = await edge.until_state(receipt["outbox_id"], "dead")
    assert isinstance(shown["seen"]["last_error"], str)
    assert len(upstream.writes_of("k1")) == 1
    assert (await edge.status())["dead"] == 1


@pytest.mark.req("R7")
@pytest.mark.parametrize("act", [problem(412, "stale_version"), problem(409, "revision_conflict")])
async def test_an_append_that_conflicts_goes_on_when_its_operator_says_so(
    edge: Edge, upstream: FakeUpstream, act: Act
) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", [1, 2], key="k1")
    upstream.acts.append(act)
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "conflict")
    assert edge.is_alive
    assert (await edge.decide(receipt["outbox_id"], "retry")).status == 200
    await edge.until_state(receipt["outbox_id"], "acked")


@pytest.mark.req("R7")
async def test_a_body_that_is_no_object_conflicts_and_is_rebased_like_any_other(
    edge: Edge, upstream: FakeUpstream
) -> None:
    upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", {"title": "x"}, if_match='"1"')
    second = await edge.queue("PATCH", "/tasks/1", [1], if_match='"1"')
    upstream.rule = lambda seen: problem(412, "stale_version") if seen.body == b"[1]" else None
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "acked")
    shown = await edge.until_state(second["outbox_id"], "conflict")
    assert (shown["mine"], shown["seen"]["expectation"]) == ([1], {"if_match": '"2"'})
    assert edge.is_alive


@pytest.mark.req("R7")
async def test_an_answer_that_the_upstream_did_not_keep_is_an_ack(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.acts.append(LOSE)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.rule = lambda seen: problem(409, "answer_not_kept", status_code=201) if seen.key == "k1" else None
    await edge.go_online(upstream)
    shown = await edge.until_state(receipt["outbox_id"], "acked", "dead")
    assert (shown["seen"]["state"], shown["seen"]["answer_status"]) == ("acked", 201)
    again = await edge.ask("POST", "/progress/", NOTE, key="k1")
    assert (again.status, again.json["acked"]) == (201, True)


@pytest.mark.req("R7")
async def test_a_wait_that_the_upstream_asks_for_is_kept_until_somebody_says_replay(
    edge: Edge, upstream: FakeUpstream
) -> None:
    await edge.go_offline(upstream)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    upstream.acts.append(say(429, retry_after="3600"))
    await edge.go_online(upstream)
    await edge.until(lambda: any(getattr(event, "error", None) == "status_429" for event in edge.events))
    shown = await edge.show(receipt["outbox_id"])
    assert shown["seen"]["next_attempt_at"] - shown["seen"]["updated_at"] > 3_500_000
    assert len(upstream.writes_of("k1")) == 1
    assert (await edge.ask("POST", "/replay")).json == {"pending": 1}
    await edge.until_state(receipt["outbox_id"], "acked")


@pytest.mark.req("R7")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_the_relay_itself_pauses_it_and_alarms(
    edge: Edge, upstream: FakeUpstream, status: int
) -> None:
    await edge.go_offline(upstream)
    receipts = [await edge.queue("POST", "/progress/", NOTE) for _ in range(40)]
    upstream.rule = lambda _: say(status)
    await edge.go_online(upstream)
    await edge.until_heard(UpstreamRefusedUs)
    tried = len(upstream.writes)
    assert tried <= 32
    status_now = await edge.status()
    assert (status_now["upstream_state"], status_now["pending"], status_now["dead"]) == ("refused", 40, 0)
    assert (await edge.ask("POST", "/messages/", NOTE)).status == status  # who asks online is told
    upstream.rule = lambda _: None
    reached = len(edge.heard(UpstreamReached))
    await edge.ask("POST", "/replay")
    await edge.until_heard(UpstreamReached, reached + 1)
    await edge.until_settled()
    assert all(upstream.applied[one["idempotency_key"]] == 1 for one in receipts)


# --- order -----------------------------------------------------------------------------------------------


@pytest.mark.req("R7")
async def test_writes_to_one_entity_arrive_in_their_order_and_one_at_a_time(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    for number in range(6):
        await edge.queue("PATCH", "/tasks/1", at(row, title=str(number)))
    out: set[str | None] = set()

    def rule(seen: Seen) -> Act | None:
        out.add(seen.key)
        return problem(503, "later") if len(upstream.writes_of(seen.key or "")) < 2 else None

    upstream.rule = rule
    await edge.go_online(upstream)
    await edge.until_settled()
    assert [body["title"] for path, body in upstream.log if path == "PATCH /tasks/1"] == [*map(str, range(6))]
    assert [seen.json["title"] for seen in upstream.writes if seen.method == "PATCH"] == [
        str(number) for number in range(6) for _ in range(2)
    ]


@pytest.mark.req("R7")
async def test_one_bad_envelope_holds_up_its_own_entity_and_no_other(edge: Edge, upstream: FakeUpstream) -> None:
    rows = {name: upstream.row(f"/tasks/{name}") for name in ("bad", "slow", "stuck", "good")}
    await edge.go_offline(upstream)
    receipts = {name: await edge.queue("PATCH", f"/tasks/{name}", at(row, title="x")) for name, row in rows.items()}
    behind = await edge.queue("PATCH", "/tasks/bad", at(rows["bad"], title="y"))
    go = asyncio.Event()
    acts = {
        "/tasks/bad": problem(412, "stale_version"),
        "/tasks/slow": Act(waits=go),
        "/tasks/stuck": Act(applies=False, loses=True),
    }
    upstream.rule = lambda seen: acts.get(seen.target)
    await edge.go_online(upstream)
    await edge.until_state(receipts["good"]["outbox_id"], "acked")
    await edge.until_state(receipts["bad"]["outbox_id"], "conflict")
    assert await edge.state(behind["outbox_id"]) == "queued"
    assert await edge.state(receipts["slow"]["outbox_id"]) == "sending"
    go.set()
    await edge.until_state(receipts["slow"]["outbox_id"], "acked", "queued")


def deep(levels: int) -> bytes:
    return b'{"code":"revision_conflict","current":{"status":"done","x":' + b"[" * levels + b"]" * levels + b"}}"


@pytest.mark.req("R7")
@pytest.mark.parametrize("levels", [300, 1000])
async def test_a_conflict_with_what_is_nested_as_deeply_as_can_be_read_is_a_conflict_like_any_other(
    edge: Edge, upstream: FakeUpstream, levels: int
) -> None:
    for name in ("1", "2", "3"):
        upstream.row(f"/tasks/{name}")
    await edge.go_offline(upstream)
    mine = {"title": "x", "expected_status": "todo"}
    first, second, good = [await edge.queue("PATCH", f"/tasks/{name}", mine) for name in ("1", "2", "3")]
    upstream.rule = lambda seen: (
        None if seen.target == "/tasks/3" else Act(applies=False, says=Say(409, raw=deep(levels)))
    )
    await edge.go_online(upstream)
    await edge.until_state(good["outbox_id"], "acked")
    shown = await edge.until_state(first["outbox_id"], "conflict")
    assert (shown["mine"], shown["theirs"]) == (mine, TOO_DEEP)
    await edge.until_state(second["outbox_id"], "conflict")
    await edge.restart()
    assert (await edge.decide(first["outbox_id"], "resolve", keep="theirs")).status == 200
    upstream.rule = lambda _: None
    upstream.row("/tasks/2", status="done")
    assert (await edge.decide(second["outbox_id"], "resolve", keep="mine")).status == 200
    await edge.until_state(second["outbox_id"], "acked")


@pytest.mark.req("R7")
async def test_an_envelope_whose_answer_fails_as_nobody_expected_is_tried_again_and_holds_up_no_other(
    edge: Edge, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("their words")]

    def holds(theirs: object, envelope: object) -> bool:
        if failures:
            raise failures.pop()
        return policy_holds(theirs, envelope)

    policy_holds: Any = policy.holds
    monkeypatch.setattr(policy, "holds", holds)
    await edge.go_offline(upstream)
    bad = await edge.queue("PATCH", "/tasks/1", at(upstream.row("/tasks/1"), title="x"))
    upstream.row("/tasks/1", title="theirs")
    good = await edge.queue("PATCH", "/tasks/2", at(upstream.row("/tasks/2"), title="x"))
    await edge.go_online(upstream)
    await edge.until_state(good["outbox_id"], "acked")
    shown = await edge.until_state(bad["outbox_id"], "conflict")
    assert [event["error"] for event in shown["happened"] if event["became"] == "queued"][-1] == UNEXPECTED
    (warning,) = edge.heard(Warned)
    assert (warning.code, "their words" in warning.detail) == ("answer_not_read", False)
    assert 'cm_edge_replay_failures_total{event="failed"} 1' in (await edge.ask("GET", "/metrics")).body.decode()


@pytest.mark.req("R7")
async def test_an_envelope_that_breaks_every_connection_waits_longer_and_longer(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    clock = ManualClock()
    edge = Edge(relay_folder, upstream.url, clock=clock, roll=lambda: 0.99)
    await edge.start()
    await edge.ask("GET", "/tasks/")
    await upstream.close()
    bad = await edge.queue("POST", "/progress/", NOTE, key="bad")
    upstream.rule = lambda seen: Act(applies=False, loses=True) if seen.key == "bad" else None
    await edge.go_online(upstream)
    await edge.until(lambda: any(getattr(event, "error", None) == "no_answer" for event in edge.events))
    shown = await edge.show(bad["outbox_id"])
    assert shown["seen"]["state"] == "queued"
    assert shown["seen"]["next_attempt_at"] - clock.wall >= 400
    await edge.stop()


# --- expectations ------------------------------------------------------------------------------------------


@pytest.mark.req("R8")
async def test_writes_that_were_queued_on_one_state_of_a_row_all_land(edge: Edge, upstream: FakeUpstream) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    receipts = [
        await edge.queue("PATCH", "/tasks/1", at(row, title="T")),
        await edge.queue("PATCH", "/tasks/1", {"status": "doing"}, if_match='"1"'),
        await edge.queue("PATCH", "/tasks/1", {"note": "n", "expected_status": "todo"}),
        await edge.queue("PATCH", "/tasks/1", {**at(row, owner="me"), "expected_status": "todo"}, if_match='"1"'),
    ]
    await edge.go_online(upstream)
    for receipt in receipts:
        shown = await edge.until_state(receipt["outbox_id"], "acked", "conflict", "dead")
        assert shown["seen"]["state"] == "acked", shown
    final = upstream.rows["/tasks/1"]
    assert (final["title"], final["status"], final["note"], final["owner"]) == ("T", "doing", "n", "me")
    assert final["revision"] == 5
    happened = (await edge.show(receipts[3]["outbox_id"]))["happened"]
    assert [event["error"] for event in happened].count("rebased") == 3


@pytest.mark.req("R8")
@pytest.mark.parametrize("kind", ["updated_at", "if_match", "status"])
async def test_what_somebody_else_wrote_in_between_is_never_overwritten(
    edge: Edge, upstream: FakeUpstream, kind: str
) -> None:
    row = upstream.row("/tasks/1")
    body = {"updated_at": at(row), "if_match": {}, "status": {"expected_status": "todo"}}[kind]
    header = {"if_match": '"1"'} if kind == "if_match" else {}
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", {**body, "title": "one"}, **header)
    second = await edge.queue("PATCH", "/tasks/1", {**body, "title": "two"}, **header)

    def rule(seen: Seen) -> None:
        if seen.json.get("title") == "two" and len(upstream.writes_of(seen.key or "")) == 1:
            upstream.row("/tasks/1", title="theirs", status="blocked")

    upstream.rule = rule
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "acked")
    shown = await edge.until_state(second["outbox_id"], "acked", "conflict")
    assert shown["seen"]["state"] == "conflict"
    assert upstream.rows["/tasks/1"]["title"] == "theirs"
    assert shown["theirs"]["title"] == "theirs"
    assert shown["mine"]["title"] == "two"


@pytest.mark.req("R8")
async def test_a_write_is_not_rebased_over_what_the_one_before_it_did_not_mind(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", {"title": "T", "expected_status": "todo"})
    second = await edge.queue("PATCH", "/tasks/1", at(row, note="mine"))
    third = await edge.queue("PATCH", "/tasks/2", {"note": "mine"}, if_match='"1"')
    upstream.row("/tasks/1", note="theirs")  # its status is what it was
    upstream.row("/tasks/2", note="mine", title="theirs")
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "acked")
    await edge.until_state(second["outbox_id"], "conflict")
    await edge.until_state(third["outbox_id"], "acked")
    assert (upstream.rows["/tasks/1"]["title"], upstream.rows["/tasks/1"]["note"]) == ("T", "theirs")


@pytest.mark.req("R8")
async def test_a_lost_answer_is_no_licence_to_overwrite_what_came_after_it(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    upstream.acts.append(LOSE)
    first = await edge.queue("PATCH", "/tasks/1", at(row, title="one"))
    second = await edge.queue("PATCH", "/tasks/1", at(row, title="two"))
    upstream.row("/tasks/1", title="theirs")
    await edge.go_online(upstream)
    await edge.until_state(first["outbox_id"], "acked")
    await edge.until_state(second["outbox_id"], "conflict")
    assert upstream.rows["/tasks/1"]["title"] == "theirs"
    assert upstream.applied[first["idempotency_key"]] == 1


@pytest.mark.req("R8")
async def test_a_row_that_already_holds_the_values_is_no_conflict_and_moves_nobody_behind_it(
    edge: Edge, upstream: FakeUpstream
) -> None:
    row = upstream.row("/tasks/1")
    await edge.go_offline(upstream)
    first = await edge.queue("PATCH", "/tasks/1", at(row, title="same"))
    second = await edge.queue("PATCH", "/tasks/1", at(row, note="n"))
    upstream.row("/tasks/1", title="same", note="theirs")
    await edge.go_online(upstream)
    shown = await edge.until_state(first["outbox_id"], "acked")
    assert shown["seen"]["last_error"] == "already_there"
    await edge.until_state(second["outbox_id"], "conflict")
    assert upstream.rows["/tasks/1"]["note"] == "theirs"


@pytest.mark.req("R8", "R4")
async def test_with_a_real_hub_a_queue_lands_and_a_foreign_change_conflicts(
    tmp_path: Path, relay_folder: Path
) -> None:
    upstream = FakeUpstream(behind=own_address())
    assert upstream.behind is not None
    await upstream.open()
    async with running_hub(tmp_path, upstream.behind):
        edge = Edge(relay_folder, upstream.url)
        await edge.start()
        mine = (await edge.ask("POST", "/tasks/", {"title": "mine"})).json
        theirs = (await edge.ask("POST", "/tasks/", {"title": "theirs"})).json
        upstream.acts.append(LOSE)
        lost = await edge.queue("POST", "/progress/", NOTE, key="lost")
        queued = [
            await edge.queue("PATCH", f"/tasks/{mine['id']}", at(mine, status="doing")),
            await edge.queue("PATCH", f"/tasks/{mine['id']}", {"title": "new"}, if_match='"1"'),
            await edge.queue("PATCH", f"/tasks/{mine['id']}", {"status": "done", "expected_status": "todo"}),
        ]
        bad = await edge.queue("PATCH", f"/tasks/{theirs['id']}", at(theirs, title="stale"))
        edge.upstream = upstream.url
        hub = Edge(tmp_path / "unused", "")
        hub.url = f"http://{upstream.behind}"
        assert (await hub.ask("PATCH", f"/tasks/{theirs['id']}", {"title": "newer"})).status == 200
        await edge.go_online(upstream)
        for one in (lost, *queued):
            assert (await edge.until_state(one["outbox_id"], "acked", "conflict", "dead"))["seen"][
                "state"
            ] == "acked"
        shown = await edge.until_state(bad["outbox_id"], "conflict")
        assert shown["theirs"]["title"] == "newer"
        final = (await edge.ask("GET", f"/tasks/{mine['id']}")).json
        assert (final["title"], final["status"], final["revision"]) == ("new", "done", 4)
        notes = (await edge.ask("GET", "/progress/")).json["items"]
        assert [note["summary"] for note in notes].count("parser done") == 1
        assert (await edge.decide(bad["outbox_id"], "resolve", keep="mine")).status == 200
        await edge.until_state(bad["outbox_id"], "acked")
        assert (await edge.ask("GET", f"/tasks/{theirs['id']}")).json["title"] == "stale"
        await edge.stop()
        await upstream.close()


# --- too old -----------------------------------------------------------------------------------------------


@pytest.mark.req("R7")
async def test_what_was_tried_is_not_replayed_when_its_key_may_be_forgotten_and_what_was_not_is(
    relay_folder: Path, upstream: FakeUpstream
) -> None:
    clock = ManualClock()
    upstream.expiry_s = 40 * 86_400
    edge = Edge(relay_folder, upstream.url, clock=clock)
    await edge.start()
    await upstream.until(lambda: any("idempotency-policy" in seen.target for seen in upstream.seen))
    upstream.acts.append(LOSE)
    tried = await edge.queue("POST", "/progress/", NOTE, key="tried")
    never = await edge.queue("POST", "/progress/", NOTE, key="never")
    clock.advance(2 * DAY_MS)
    younger = await edge.queue("POST", "/progress/", NOTE, key="younger")
    await edge.stop()
    clock.advance(37 * DAY_MS + 1)  # the first is 39 days old: a day before the upstream forgets its key
    await edge.start()
    await edge.go_online(upstream)
    shown = await edge.until_state(tried["outbox_id"], "dead", "acked")
    assert (shown["seen"]["state"], shown["seen"]["last_error"]) == ("dead", "outcome_unknown")
    await edge.until_state(never["outbox_id"], "acked")
    await edge.until_state(younger["outbox_id"], "acked")
    assert len(upstream.writes_of("tried")) == 1
    again = await edge.ask("POST", "/progress/", NOTE, key="tried")
    assert (again.status, again.json["reason"]) == (409, "outcome_unknown")
    await edge.stop()


@pytest.mark.req("R7")
@pytest.mark.parametrize("published", [10**30, True, -1, "30", None, 0.5])
async def test_what_the_upstream_publishes_of_its_keys_cannot_bring_the_relay_down(
    relay_folder: Path, upstream: FakeUpstream, published: object
) -> None:
    upstream.expiry_s = published
    edge = Edge(relay_folder, upstream.url)
    await edge.start()
    await upstream.until(lambda: any("idempotency-policy" in seen.target for seen in upstream.seen))
    upstream.acts.append(LOSE)
    receipt = await edge.queue("POST", "/progress/", NOTE, key="k1")
    await edge.restart()
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "acked")
    assert edge.is_alive
    await edge.stop()
