"""The broker over the wire: what an accept promises, also after a restart, and what it keeps for how long."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.broker import deliver, policy
from claudemesh.broker.app import check, sweep
from claudemesh.broker.settings import BrokerSettings, Limits
from claudemesh.cli.main import main
from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames
from tests.acceptance.files import in_file
from tests.integration.broker_client import (
    BOUND_S,
    Peer,
    RunningBroker,
    Wire,
    broker,
    clock,
    create_mesh,
    dm,
    item,
    join,
    opened,
    request,
)
from tests.integration.test_broker_hello import attest, refused, session_hello

DAY_MS = 86_400_000
AFTER_MS = 20  # when a push without an ack counts, where a test says so


def back(peer: Peer, at: RunningBroker) -> Peer:
    """Return the same member at a broker that was started again."""
    return Peer(at, peer.keys, peer.membership, peer.instance_id)


def ids(outcomes: list[frames.Outcome]) -> list[int | None]:
    return [outcome.history_id if outcome.status in (200, 201) else None for outcome in outcomes]


async def metric(running: RunningBroker, name: str) -> float:
    text = (await request("GET", f"{running.url}/v1/metrics")).body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"cm_broker_{name} ")))


# --- accept ------------------------------------------------------------------------------------------------


@pytest.mark.req("B0")
async def test_a_retry_is_answered_by_what_was_accepted_before_anything_could_refuse_it(tmp_path: Path) -> None:
    async with broker(tmp_path, limits=Limits(sends_per_window=5, window_s=3600, inline_bytes=4096)) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as wire:
            [first] = await wire.send(dm("m1", bob, "x" * 4000))
            assert first.status == 201
    # Started again, it takes no message of that size any more, and has room for one in its budget.
    async with broker(tmp_path, limits=Limits(sends_per_window=1, window_s=3600, inline_bytes=1024)) as again:
        async with back(alice, again).connected() as wire:
            for _ in range(3):
                [same, other] = await wire.send(dm("m1", bob, "x" * 4000), dm("m1", bob, "y"))
                assert (same.status, same.duplicate) == (200, True)
                assert (same.broker_message_id, same.history_id) == (first.broker_message_id, first.history_id)
                assert same.history_available
                assert clock.wall_ms() - 60_000 < (same.first_seen_at or 0) <= clock.wall_ms()
                assert (other.status, other.code) == (409, "idempotency_key_reused")
                assert other.conflict == "request_fingerprint_mismatch"
                right = fingerprint_send(SendRequest(kind=Kind.DM, ref=bob.keys.pubkey, body="y"))
                assert other.broker_fingerprint_prefix == right[:8].hex()
            outcomes = await wire.send(dm("m2", bob), dm("m3", bob))
            assert [outcome.status for outcome in outcomes] == [201, 429], "retries have cost nothing"
        async with back(bob, again).connected() as wire:
            assert [one.client_message_id for one in await wire.deliveries(2)] == ["m1", "m2"]


@pytest.mark.req("B0")
async def test_a_daemon_that_means_something_else_by_the_same_request_is_refused_and_counted(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            [drifted] = await wire.send(dm("m1", alice, "x", fingerprint="00" * 32))
            assert (drifted.status, drifted.conflict) == (409, "request_fingerprint_mismatch")
            assert await metric(running, "dedupe_fingerprint_mismatch_total") == 1
            assert (await wire.send(dm("m1", alice, "x")))[0].status == 201, "the id was not used"


@pytest.mark.req("B2")
async def test_a_destination_that_is_refused_leaves_the_id_free_and_its_budget_spent(tmp_path: Path) -> None:
    async with broker(tmp_path, limits=Limits(sends_per_window=3, window_s=3600)) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as wire:
            await wire.call("topic.create", name="news")
            wrong = [
                item("m1", Kind.DM, KeyPair.generate().pubkey),
                item("m2", Kind.TOPIC, "news"),
                item("m3", Kind.QUEUE, "nowhere"),
                dm("m4", bob),
            ]
            outcomes = await wire.send(*wrong)
            assert [(outcome.status, outcome.code) for outcome in outcomes] == [
                (404, "destination_not_found"),
                (403, "not_subscribed"),
                (404, "destination_not_found"),
                (429, "rate_limited"),
            ]
            assert await metric(running, "rate_limit_consumed_then_b2_rejected_total") == 3
            # The same ids for something else: they were not used, and were counted in this window already.
            outcomes = await wire.send(*(dm(f"m{number}", bob) for number in (1, 2, 3)))
            assert ids(outcomes) == [1, 2, 3]


@pytest.mark.req("B2")
async def test_the_key_of_a_session_that_ended_still_leads_to_its_member(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        session = KeyPair.generate()
        async with opened(running) as wire:
            await wire.say(session_hello(bob, session, wire.nonce, attest(bob.keys, session)))
            await wire.expect(frames.HelloAck)
            await wire.call("presence.end")
        async with alice.connected() as a, bob.connected() as b:
            [outcome] = await a.send(item("m1", Kind.DM, session.pubkey, "for the session"))
            assert outcome.status == 201
            [delivered] = await b.deliveries(1)
            assert (delivered.body, delivered.to_session) == ("for the session", session.pubkey)


@pytest.mark.req("B3")
async def test_an_accept_leaves_all_its_rows_and_a_refusal_none(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob, carol = await join(alice, "bob"), await join(alice, "carol")
        async with alice.connected() as a, bob.connected() as b, carol.connected() as c:
            await a.call("topic.create", name="news")
            await a.call("queue.create", name="jobs")
            for wire in (a, b, c):
                await wire.call("topic.subscribe", name="news")
            outcomes = await a.send(
                dm("m1", bob),
                item("m2", Kind.TOPIC, "news", meta={"mentions": ["bob", "carol"]}),
                item("m3", Kind.QUEUE, "jobs"),
                item("m4", Kind.QUEUE, "nowhere"),
            )
            assert ids(outcomes) == [1, 2, 3, None]
            assert [outcome.duplicate for outcome in outcomes] == [False] * 4
    file = tmp_path / "broker.db"
    written = {
        "client_message_dedupe": "SELECT client_message_id FROM client_message_dedupe ORDER BY 1",
        "message_history": "SELECT client_message_id FROM message_history ORDER BY history_id",
        "topic_message": "SELECT history_id FROM topic_message",
        "message_queue": "SELECT history_id FROM message_queue ORDER BY 1",
        "mention_index": "SELECT mentioned FROM mention_index WHERE history_id = 2 ORDER BY 1",
        "delivery_queue": "SELECT history_id, count(*) FROM delivery_queue GROUP BY 1 ORDER BY 1",
    }
    assert {table: in_file(file, sql) for table, sql in written.items()} == {
        "client_message_dedupe": [("m1",), ("m2",), ("m3",)],
        "message_history": [("m1",), ("m2",), ("m3",)],
        "topic_message": [(2,)],
        "message_queue": [(1,), (3,)],
        "mention_index": [("bob",), ("carol",)],
        "delivery_queue": [(1, 1), (2, 2), (3, 1)],
    }
    found = await check(BrokerSettings(store=f"sqlite:///{file}"))
    assert found == {"violations": 0, "items": []}


@pytest.mark.req("B4")
async def test_the_numbers_of_a_mesh_have_no_gaps_and_go_on_after_a_restart(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice, eve = await create_mesh(running), await create_mesh(running, slug="other")
        async with alice.connected() as a, eve.connected() as e:
            given: list[int | None] = []
            for number in range(10):
                refused_too = [item(f"x{number}", Kind.QUEUE, "nowhere")]
                given += ids(await a.send(dm(f"{number}a", alice), *refused_too, dm(f"{number}b", alice)))
                assert ids(await e.send(dm(f"{number}", eve))) == [number + 1], "each mesh has its own"
            assert [id_ for id_ in given if id_] == [*range(1, 21)]
    async with broker(tmp_path) as again, back(alice, again).connected() as wire:
        assert ids(await wire.send(dm("0a", alice), dm("new", alice))) == [1, 21]


@pytest.mark.req("B5")
async def test_many_frames_at_once_are_each_answered_and_a_bad_message_fails_alone(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            for number in range(50):
                bad = item(f"{number}bad", Kind.QUEUE, "nowhere")
                if number % 2:
                    bad = msgspec.structs.replace(bad, body="\0")
                await wire.send_only(dm(f"{number}", alice), bad, dm(f"{number}also", alice))
            results = [await wire.expect(frames.SendResult) for _ in range(50)]
            statuses = {tuple(outcome.status for outcome in result.outcomes) for result in results}
            assert statuses == {(201, 404, 201), (201, 400, 201)}
            assert sorted(id_ for result in results for id_ in ids(result.outcomes) if id_) == [*range(1, 101)]


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deliver, "WINDOW_COUNT", 60)
    monkeypatch.setattr(deliver, "PAGE_COUNT", 20)
    return


@pytest.mark.req("Q1", "Q4", "Q5")
@pytest.mark.usefixtures("_small_pages")
async def test_whoever_comes_back_gets_pages_and_no_more_than_a_window_before_it_acknowledges(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            await b.call("deliver.pause", paused=True)  # as one that is away
            await a.send(*(dm(f"{number}", bob) for number in range(200)))
            await b.call("deliver.pause", paused=False)
            got: list[str] = []
            while len(got) < 60:
                page = (await b.expect(frames.Deliver)).items
                assert len(page) <= 20
                got += [one.client_message_id for one in page]
            for _ in range(5):
                await b.call("ping")
            assert await passed(b) == [], "it has acknowledged nothing"
            last = 60
            while len(got) < 200:
                await b.say(frames.Ack([*range(last - 59, last + 1)]))
                last += 60
                while len(got) < min(last, 200):
                    got += [one.client_message_id for one in (await b.expect(frames.Deliver)).items]
            assert got == [f"{number}" for number in range(200)]


@pytest.mark.req("Q1")
async def test_only_a_consumer_that_lives_and_does_not_acknowledge_loses_a_message_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages: asyncio.Queue[int] = asyncio.Queue()  # of what was pushed, each time that somebody looks

    def is_attempt(pushed_at_ms: int, last_life_ms: int) -> bool:
        ages.put_nowait(clock.monotonic_ms() - pushed_at_ms)
        return policy.is_attempt(pushed_at_ms, last_life_ms)

    for module in (policy, deliver):
        monkeypatch.setattr(module, "ATTEMPT_AFTER_MS", AFTER_MS)
    monkeypatch.setattr(deliver, "RECHECK_MS", 10)
    monkeypatch.setattr(deliver, "is_attempt", is_attempt)
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            await a.send(dm("poison", bob))
            await b.deliveries(1)
            async with asyncio.timeout(BOUND_S):
                while await ages.get() < 2 * AFTER_MS:  # it is silent, as one that is away: nothing counts
                    pass
            assert "attempts" not in await recipient(a, "poison")
            await b.call("deliver.pause", paused=True)
            paused_ms = clock.monotonic_ms()
            while clock.monotonic_ms() < paused_ms + 2 * AFTER_MS:
                await b.call("ping")  # it lives, and has no room
            await a.send(dm("more", bob))  # whoever delivers is woken, and looks
            await b.call("ping")
            assert "attempts" not in await recipient(a, "poison")
            await b.call("deliver.pause", paused=False)
            async with asyncio.timeout(BOUND_S):
                while await state(a, "poison") != "dead":
                    await b.call("ping")
            dead = await recipient(a, "poison")
            assert (dead["attempts"], dead["dead_reason"]) == (10, "attempts_exhausted")
            await a.send(dm("next", bob))
            got: list[str] = []
            while "next" not in got:
                got += [one.client_message_id for one in (await b.expect(frames.Deliver)).items]


async def recipient(wire: Wire, client_message_id: str) -> dict[str, Any]:
    [found] = (await wire.call("receipts", ids=[client_message_id]))["items"]
    only: dict[str, Any] = found["recipients"][0]
    return only


async def passed(wire: Wire) -> list[frames.Deliver]:
    return [frame for frame in wire._passed if isinstance(frame, frames.Deliver)]


@pytest.mark.req("B8")
async def test_a_row_that_lost_its_partner_is_found_and_named_and_the_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.call("topic.create", name="news")
            await wire.call("topic.subscribe", name="news")
            await wire.call("queue.create", name="jobs")
            await wire.send(dm("m1", alice), item("m2", Kind.TOPIC, "news"), item("m3", Kind.QUEUE, "jobs"))
    monkeypatch.setenv("CLAUDEMESH_HOME", str(tmp_path / "home"))

    async def found(hole: str) -> tuple[int, list[dict[str, Any]]]:
        copied = tmp_path / "copy.db"
        shutil.copy(tmp_path / "broker.db", copied)
        if hole:
            in_file(copied, hole)
        code = await asyncio.to_thread(main, ["broker", "check", "--json", "--store", f"sqlite:///{copied}"])
        answer = msgspec.json.decode(capsys.readouterr().out)
        assert answer["violations"] == len(answer["items"])
        return code, answer["items"]

    sender = alice.membership.member_id
    assert await found("") == (0, [])
    for hole, id_, missing in (
        ("DELETE FROM message_queue WHERE history_id = 1", "m1", "message"),
        ("DELETE FROM topic_message", "m2", "message"),
        ("DELETE FROM delivery_queue WHERE history_id = 1", "m1", "delivery_queue"),
        ("DELETE FROM queue_lease", "m3", "queue_lease"),
        ("DELETE FROM client_message_dedupe WHERE client_message_id = 'm2'", "m2", "client_message_dedupe"),
    ):
        code, items = await found(hole)
        assert (code, {"client_message_id": id_, "sender": sender, "missing": [missing]} in items) == (1, True), (
            hole
        )


# --- who -----------------------------------------------------------------------------------------------------


@pytest.mark.req("N3")
async def test_a_member_who_was_revoked_is_told_so_and_sends_nothing_more(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        bob = await join(alice, "bob")
        async with bob.connected() as wire:
            assert (await wire.send(dm("m1", alice)))[0].status == 201
    in_file(tmp_path / "broker.db", "UPDATE member SET revoked_at = 1 WHERE name = 'bob'")
    async with broker(tmp_path) as again, opened(again) as wire:
        assert await refused(wire, back(bob, again).hello(wire.nonce)) == (4401, "revoked")


@pytest.mark.req("P10")
async def test_nobody_vouches_for_a_session_but_its_member(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        session, thief = KeyPair.generate(), KeyPair.generate()
        for forger in (session, thief):
            async with opened(running) as wire:
                word = attest(forger, session, parent_member_pubkey=alice.keys.pubkey)
                hello = session_hello(alice, session, wire.nonce, word)
                assert await refused(wire, hello) == (4401, "bad_attestation")


@pytest.mark.req("Q1", "N4")
async def test_of_two_daemons_of_a_member_the_newer_one_gets_its_messages(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
    in_file(tmp_path / "broker.db", "UPDATE mesh SET policy = 'allow_concurrent'")
    async with broker(tmp_path) as again:
        at_home = back(alice, again)
        async with at_home.connected() as older, at_home.connected(instance_id="another") as newer:
            await older.send(*(dm(f"{number}", alice) for number in range(5)))
            got = await newer.deliveries(5)
            assert [one.client_message_id for one in got] == [f"{number}" for number in range(5)]
            for _ in range(20):
                await older.call("ping")
            assert await passed(older) == []


# --- retention -----------------------------------------------------------------------------------------------


@pytest.mark.req("B7")
async def test_old_messages_go_their_ids_stay_and_what_was_waited_for_is_a_dead_letter_first(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broker.db"
    settings = BrokerSettings(store=f"sqlite:///{file}")
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            await a.send(dm("read", bob), dm("open", bob), dm("young", bob))
            await b.acknowledge([one for one in await b.deliveries(3) if one.client_message_id != "open"])
            async with asyncio.timeout(BOUND_S):
                while await state(a, "young") != "delivered":
                    pass
    age(file, 366, "read", "open")
    assert await sweep(settings) == {"messages": 1, "dead_letters": 1, "ids": 0}
    async with broker(tmp_path) as again, back(alice, again).connected() as a:
        assert await state(a, "open") == "dead"
        [read, opened_] = await a.send(dm("read", bob), dm("open", bob))
        assert (read.status, read.history_id, read.history_available) == (200, 1, False)
        assert (opened_.status, opened_.history_available) == (200, True)
        async with back(bob, again).connected() as b:
            await a.send(dm("new", bob))
            assert [one.client_message_id for one in await b.deliveries(1)] == ["new"]
    # A day later the dead letter goes too; and ids only after their time, which is never before their message's.
    in_file(file, "UPDATE delivery_queue SET dead_at = 1 WHERE dead_at IS NOT NULL")
    assert await sweep(settings) == {"messages": 1, "dead_letters": 0, "ids": 0}
    in_file(file, "UPDATE client_message_dedupe SET expires_at = 1 WHERE client_message_id <> 'new'")
    assert await sweep(settings) == {"messages": 0, "dead_letters": 0, "ids": 2}
    assert in_file(file, "SELECT client_message_id FROM client_message_dedupe ORDER BY 1") == [("new",), ("young",)]
    assert in_file(file, "SELECT what, client_message_id FROM tombstone ORDER BY id") == [
        ("message", "read"),
        ("message", "open"),
        ("dedupe", "read"),
        ("dedupe", "open"),
    ]
    assert (await check(settings))["violations"] == 0


def age(file: Path, days: int, *keys: str) -> None:
    """Make these messages as many days older."""
    accepted_at = clock.wall_ms() - days * DAY_MS
    for key in keys:
        in_file(file, "UPDATE message_history SET accepted_at = ? WHERE client_message_id = ?", accepted_at, key)


async def state(wire: Wire, client_message_id: str) -> Any:  # noqa: ANN401  a word
    return (await wire.call("receipts", ids=[client_message_id]))["items"][0]["state"]
