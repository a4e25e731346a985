"""A whole mesh in one process, as a user's tests would use it; what is asked of one member runs with both kinds."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from claudemesh import AsyncMesh, Draft, Mesh
from claudemesh.kernel.errors import InvalidRequest, LeaseLost, NameTaken, NoDaemon, StateError
from claudemesh.sdk.find import Place
from tests.mesh import local_broker, rejoin
from tests.unit.sdk.running import Background, Blocked


@contextmanager
def members(kind: str, *names: str) -> Iterator[Any]:
    if kind == "sync":
        with Mesh.in_memory(*names) as meshes:
            yield meshes
        return
    with Background() as background, background.inside(AsyncMesh.in_memory(*names)) as meshes:
        yield tuple(Blocked(mesh, background) for mesh in meshes)


@pytest.fixture(params=["sync", "async"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Mesh, Mesh]]:
    with members(request.param, "alice", "bob") as meshes:
        yield meshes


# --- messages ----------------------------------------------------------------------------------------


@pytest.mark.req("C2", "Q6")
def test_a_message_is_delivered_and_read_and_acted_on(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    receipt = alice.send("bob", "hi", meta={"n": 1}, priority="now").wait("delivered")
    (message,) = bob.inbox()
    assert (message.body, message.from_name, message.meta, message.priority) == ("hi", "alice", {"n": 1}, "now")
    assert message.client_message_id == receipt.client_message_id
    assert receipt.state == "delivered", "listing it marked nothing"
    message.ack()
    assert receipt.wait("read").state == "read"
    answer = message.reply("hello to you")
    assert receipt.wait("acted").state == "acted"
    answer.wait("delivered")
    (reply,) = alice.inbox()
    assert (reply.body, reply.reply_to_id) == ("hello to you", receipt.broker_message_id)
    assert [step.state for step in receipt.trace().steps] == ["queued", "accepted", "delivered", "read", "acted"]


@pytest.mark.req("F1")
def test_a_send_under_the_same_id_is_one_message(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    first = alice.send("bob", "hi", id="build-42").wait("delivered")
    again = alice.send("bob", "hi", id="build-42")
    assert (again.duplicate, again.status, again.broker_message_id) == (True, "accepted", first.broker_message_id)
    assert [message.body for message in bob.inbox()] == ["hi"]


@pytest.mark.req("D17")
def test_many_messages_arrive_once_each_in_order(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    with bob.messages(timeout=30) as arriving:
        receipts = alice.send_many(Draft("bob", str(number)) for number in range(300))
        assert {receipt.status for receipt in receipts} == {"queued"}
        assert [next(arriving).body for _ in receipts] == [str(number) for number in range(300)]
    assert [message.body for message in bob.inbox()] == [str(number) for number in range(300)]
    assert [message.body for message in bob.search("17")] == ["17"]


@pytest.mark.req("Q7")
def test_each_event_comes_once_and_a_later_reader_goes_on_from_any_of_them(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    with bob.events(timeout=30) as events:
        for number in range(5):
            alice.send("bob", str(number)).wait("delivered")
        seen = [*islice((event for event in events if event.message), 5)]
    assert [event.message.body for event in seen] == ["0", "1", "2", "3", "4"]
    assert len({event.id for event in seen}) == 5
    with bob.messages(after=seen[1].id, timeout=30) as rest:
        assert [next(rest).body for _ in range(3)] == ["2", "3", "4"]
    with bob.messages(after=seen[2].message.cursor, timeout=30) as rest:
        assert next(rest).body == "3"


@pytest.mark.req("Q6")
def test_a_message_that_the_mesh_refuses_is_dead_and_waiting_says_why(pair: tuple[Mesh, Mesh]) -> None:
    alice, _ = pair
    receipt = alice.send("queue:nowhere", "job")
    with pytest.raises(StateError) as caught:
        receipt.wait("delivered")
    assert caught.value.extras["state"] == "dead"
    assert "destination_not_found" in str(caught.value.extras["reason"])
    assert receipt.state == "dead"


def test_everybody_sees_everybody(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    assert {peer.name for peer in alice.peers(all=True)} == {"alice", "bob"}
    alice.send("bob", "hi").wait("delivered")  # so bob is connected
    health = bob.health()
    assert (health.mesh, health.member, health.is_connected) == ("memory", "bob", True)


# --- topics ------------------------------------------------------------------------------------------


@pytest.mark.req("Q8")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_is_posted_reaches_every_subscriber_and_mentions_are_found(kind: str) -> None:
    with members(kind, "alice", "bob", "carol", "dave") as (alice, bob, carol, dave):
        alice.topic("deploys").create()
        for member in (alice, bob, carol):
            member.topic("#deploys").subscribe()
        receipt = alice.topic("deploys").post("green", mentions=["bob"]).wait("delivered")
        assert receipt.trace().counts == {"delivered": 2}, "of a topic's message, when everybody has it"
        assert [message.topic for message in carol.inbox(topic="deploys")] == ["deploys"]
        assert [message.body for message in bob.inbox(mentions_me=True)] == ["green"]
        assert [*carol.inbox(mentions_me=True)] == []
        assert [*dave.inbox()] == []
        next(bob.inbox()).reply("seen").wait("delivered")
        assert [message.body for message in carol.inbox()] == ["green", "seen"]
        assert [(topic.name, topic.is_subscribed) for topic in dave.topics()] == [("deploys", False)]
        with pytest.raises(StateError, match="not_subscribed"):
            dave.topic("deploys").post("me too").wait("delivered")


# --- queues ------------------------------------------------------------------------------------------


@pytest.mark.req("Q3")
def test_work_goes_to_one_worker_and_its_sender_learns_that_it_was_done(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    jobs = alice.queue("jobs").create()
    receipt = jobs.put("build 42").wait("accepted")
    work = bob.queue("jobs").work()
    assert work is not None
    with work:
        assert (work.body, work.from_name) == ("build 42", "alice")
        assert alice.queue("jobs").work() is None, "it is bob's"
        assert work.renew() >= work.lease_expires_at
        receipt.wait("delivered")
    assert receipt.wait("acted").state == "acted"
    assert [*bob.inbox()] == []


@pytest.mark.req("Q3")
def test_the_meta_of_work_comes_out_as_it_was_put_in(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    meta = {"due_at": 10**15, "accepted_at": 1, "lines": [{"created_at": 2}], "in": {"revoked_at": 3}}
    alice.queue("jobs").create().put("build 42", meta=meta).wait("accepted")
    work = bob.queue("jobs").work()
    assert work is not None
    assert work.meta == meta


@pytest.mark.req("Q3")
def test_work_that_failed_goes_to_the_next_and_the_first_can_no_longer_ack_it(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    alice.queue("jobs").create().put("build 42").wait("accepted")
    first = bob.queue("jobs").work()
    assert first is not None
    with pytest.raises(ZeroDivisionError), first:
        _ = 1 // 0
    second = alice.queue("jobs").work()
    assert second is not None
    assert second.lease_token > first.lease_token
    with pytest.raises(LeaseLost):
        first.ack()
    second.ack()
    second.ack()  # said again it holds again
    assert bob.queue("jobs").work() is None


@pytest.mark.req("Q3", "Q6")
def test_work_that_was_handed_over_is_acted_with_the_workers_reply(pair: tuple[Mesh, Mesh]) -> None:
    alice, bob = pair
    put = alice.queue("jobs").create().put("build 42")
    put.wait("accepted")
    work = bob.queue("jobs").work()
    assert work is not None
    with work:
        work.hand_over()
    assert alice.queue("jobs").work() is None
    assert alice.trace(put.client_message_id).state == "delivered"
    work.reply("it is in the ledger")
    put.wait("acted")


# --- a daemon that comes and goes, with a broker that stays --------------------------------------------


@pytest.mark.req("Q7", "P8")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_sent_while_the_daemon_is_away_are_streamed_once_each_when_it_is_back(
    kind: str, tmp_path: Path
) -> None:
    with Background() as background, ExitStack() as stack:
        broker = stack.enter_context(background.inside(local_broker(tmp_path)))
        of_alice, of_bob = background.run(broker.enrol("alice", "bob"))
        stack.enter_context(background.inside(rejoin(of_alice)))
        alice, bob = (_member(kind, place, background, stack) for place in (of_alice, of_bob))
        with background.inside(rejoin(of_bob)) as daemon:
            background.run(daemon.until(lambda health: health["connected"]))
            messages = bob.messages(timeout=60)
            alice.send("bob", "0").wait("delivered")
            assert next(messages).body == "0"
        for number in range(1, 4):
            last = alice.send("bob", str(number)).wait("accepted")
        with background.inside(rejoin(of_bob)):
            last.wait("delivered")
            assert [next(messages).body for _ in range(3)] == ["1", "2", "3"]
            alice.send("bob", "4").wait("delivered")
            assert next(messages).body == "4"
            messages.close()


def _member(kind: str, state_dir: Path, background: Background, stack: ExitStack) -> Any:  # noqa: ANN401 - either
    place = Place("demo", state_dir / "sock")
    if kind == "sync":
        return stack.enter_context(Mesh.at(place))
    return stack.enter_context(Blocked(AsyncMesh.at(place), background))


# --- the mesh itself ---------------------------------------------------------------------------------


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.is_alive()}


@pytest.mark.req("C2")
def test_nothing_is_left_of_a_mesh_that_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threads()
    with Mesh.in_memory("alice", "bob") as (alice, bob):
        alice.send("bob", "hi").wait("delivered")
        assert [*tmp_path.iterdir()] != []
    assert [*tmp_path.iterdir()] == []
    assert threads() <= before
    with pytest.raises(NoDaemon):
        bob.health()


@pytest.mark.req("C2")
def test_several_meshes_run_beside_each_other_and_know_nothing_of_each_other() -> None:
    def one(number: int) -> list[str]:
        with Mesh.in_memory() as (alice, bob):
            alice.send("bob", str(number), id="the-same-everywhere").wait("delivered")
            return [message.body for message in bob.inbox()]

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(one, range(4))] == [["0"], ["1"], ["2"], ["3"]]


@pytest.mark.parametrize(("names", "error"), [(("alice", "Alice"), NameTaken), (("alice", "#bob"), InvalidRequest)])
def test_a_mesh_that_cannot_be_is_the_reason_why_and_leaves_nothing(
    names: tuple[str, str], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threads()
    with pytest.raises(error), Mesh.in_memory(*names):
        pass
    assert [*tmp_path.iterdir()] == []
    assert threads() <= before


def test_a_mesh_that_runs_is_not_entered_again_and_one_that_is_over_may_be() -> None:
    mesh = Mesh.in_memory("alice")
    with mesh, pytest.raises(RuntimeError):
        mesh.__enter__()
    with mesh as (alice,):
        assert alice.health().member == "alice"


def test_a_stream_that_is_still_open_ends_with_the_mesh() -> None:
    with Mesh.in_memory("alice") as (alice,):
        events = alice.events(timeout=0.3)
    with events, pytest.raises(Exception, match="in time"):
        next(events)


@pytest.mark.req("C2")
def test_many_threads_use_one_mesh() -> None:
    with Mesh.in_memory("alice", "bob") as (alice, bob), ThreadPoolExecutor(8) as pool:
        receipts = [*pool.map(lambda number: alice.send("bob", str(number)), range(200))]
        for _ in pool.map(lambda receipt: receipt.wait("delivered"), receipts):
            pass
        assert sorted(int(message.body) for message in bob.inbox()) == [*range(200)]
