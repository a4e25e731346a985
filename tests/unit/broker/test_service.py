"""The phases of an accept, in their order: B0 before B1 before the transaction."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.broker.events import BatchAccepted, FingerprintDrifted, LimiterFailed
from claudemesh.broker.limiters.memory import MemoryLimiter
from claudemesh.broker.model import Accepted, AcceptOutcome, Batch, Duplicate, Fresh, Identity, Message
from claudemesh.broker.policy import ACCEPT_PHASES, Phase
from claudemesh.broker.service import AcceptService, AcceptSettings, Presented
from claudemesh.broker.stores.sqlite.accept import SqliteAcceptStore
from claudemesh.kernel.errors import InvalidRequest, LimiterUnavailable, StoreUnavailable
from claudemesh.runtime.observe import Observer
from tests.contract.broker.backends import House, Town, dm, open_house, post, settle, subscribe


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    opened = open_house("sqlite-grouped", tmp_path)
    yield opened
    await opened.stores.aclose()


class Desk:
    """A service over a real store, and what it told others."""

    def __init__(self, house: House, town: Town, sends_per_window: int = 6_000) -> None:
        self.house = house
        self.town = town
        self.events: list[Any] = []
        self.woken: list[int] = []
        observer = Observer()
        observer.subscribe(object, self.events.append)
        settings = AcceptSettings(inline_bytes=1024, sends_per_window=sends_per_window, dedupe_days=365)
        self.service = AcceptService(
            house.stores.accepts,
            MemoryLimiter(house.clock, 60_000),
            settings,
            clock=house.clock,
            observer=observer,
            told=self._note,
        )

    def _note(self, fresh: Sequence[Fresh]) -> None:
        self.woken += [id_ for one in fresh for id_ in one.accepted.recipients]

    async def send(self, name: str, *messages: Message | Presented) -> list[AcceptOutcome]:
        identity = Identity(self.town.mesh, self.town.members[name], "instance")
        presented = [one if isinstance(one, Presented) else as_sent(one) for one in messages]
        return await self.service.accept(identity, presented)


def as_sent(message: Message, fingerprint: str | None = None) -> Presented:
    return Presented(message, message.fingerprint.hex() if fingerprint is None else fingerprint)


def codes(outcomes: Sequence[AcceptOutcome]) -> list[object]:
    def code(outcome: AcceptOutcome) -> object:
        if isinstance(outcome, Accepted):
            return 201
        return 200 if isinstance(outcome, Duplicate) else (outcome.status, outcome.code)

    return [code(outcome) for outcome in outcomes]


RATE_LIMITED, DEFERRED = (429, "rate_limited"), (425, "predecessor_deferred")


def test_the_phases_are_listed_in_their_order() -> None:
    assert [phase for phase, _ in ACCEPT_PHASES] == [Phase.B0, Phase.B1, Phase.B2, Phase.B3]


@pytest.mark.req("B0")
async def test_a_retry_of_what_was_accepted_is_answered_also_when_nothing_else_would_be(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town, sends_per_window=1)
    big = dm("1", "bob", "x" * 1000)
    assert codes(await desk.send("alice", big)) == [201]
    desk.service._settings = AcceptSettings(inline_bytes=10, sends_per_window=1, dedupe_days=365)
    assert codes(await desk.send("alice", big, dm("2", "bob"))) == [200, RATE_LIMITED]
    other = await desk.send("alice", dm("1", "bob", "y"))
    assert codes(other) == [(409, "idempotency_key_reused")]  # and no budget was asked for


@pytest.mark.req("B0")
async def test_a_retry_of_what_was_accepted_is_answered_also_when_the_limiter_is_not(house: House) -> None:
    class Away:
        async def consume(self, *_: object) -> list[int | None]:
            raise LimiterUnavailable

    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)
    assert codes(await desk.send("alice", dm("1", "bob"))) == [201]
    desk.service._limiter = Away()
    put_off = (503, "limiter_unavailable")
    outcomes = await desk.send("alice", dm("1", "bob"), dm("2", "bob"), dm("1", "bob", "other"))
    assert codes(outcomes) == [200, put_off, (409, "idempotency_key_reused")]
    assert [event.messages for event in desk.events if isinstance(event, LimiterFailed)] == [1]


@pytest.mark.req("B0")
async def test_a_duplicate_or_a_conflict_does_not_touch_the_budget(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town, sends_per_window=2)
    await desk.send("alice", dm("1", "bob"))
    house.clock.advance(60_000)  # a new window, in which nothing was taken yet
    for _ in range(5):
        await desk.send("alice", dm("1", "bob"), dm("1", "bob", "other"))
    assert codes(await desk.send("alice", dm("2", "bob"), dm("3", "bob"))) == [201, 201]


@pytest.mark.req("B0")
async def test_a_daemon_whose_fingerprint_differs_gets_a_conflict_and_is_counted(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)
    message = dm("1", "bob")
    [outcome] = await desk.send("alice", as_sent(message, "00" * 32))
    assert codes([outcome]) == [(409, "idempotency_key_reused")]
    assert outcome.extras["fingerprint_prefix"] == message.fingerprint[:8].hex()
    assert [event.client_message_id for event in desk.events if isinstance(event, FingerprintDrifted)] == ["1"]
    assert codes(await desk.send("alice", message)) == [201]  # the id was not used


@pytest.mark.req("B1")
async def test_what_is_refused_before_the_transaction_leaves_the_id_free_and_its_neighbours_alone(
    house: House,
) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)
    invalid = Presented(None, "", InvalidRequest("a NUL"))
    outcomes = await desk.send("alice", dm("1", "bob", "é" * 513), invalid, dm("2", "bob"))
    assert codes(outcomes) == [(413, "payload_too_large"), (400, "invalid_request"), 201]
    assert codes(await desk.send("alice", dm("1", "bob", "é" * 512))) == [201]


@pytest.mark.req("B1")
async def test_a_denial_says_when_to_come_back_and_the_same_id_is_free_then(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town, sends_per_window=1)
    assert codes(await desk.send("alice", dm("1", "bob"))) == [201]
    [denied] = await desk.send("alice", dm("2", "bob"))
    wait_ms = denied.extras["retry_after_ms"]
    house.clock.advance(wait_ms)
    assert codes(await desk.send("alice", dm("2", "bob"))) == [201]


@pytest.mark.req("B1")
async def test_frames_that_come_together_ask_for_their_budget_in_one_call(house: House) -> None:
    asked = []

    class Counted(MemoryLimiter):
        async def consume(self, mesh: str, sender: str, ids: Sequence[str], limit: int) -> list[int | None]:
            asked.append(list(ids))
            return await super().consume(mesh, sender, ids, limit)

    town = await settle(house.stores, "alice", "bob", "carol")
    desk = Desk(house, town, sends_per_window=2)
    desk.service._limiter = Counted(house.clock, 60_000)
    identity = Identity(town.mesh, town.members["alice"], "instance")
    frames = [[dm("1", "bob")], [dm("2", "bob"), dm("3", "bob")], [dm("4", "carol")]]
    admitted = await desk.service.admit(identity, [[as_sent(one) for one in frame] for frame in frames])
    assert asked == [["1", "2", "3", "4"]]
    outcomes = [codes(await desk.service.commit(frame)) for frame in admitted]
    assert outcomes == [[201], [201, RATE_LIMITED], [RATE_LIMITED]]


async def test_a_mesh_may_have_a_budget_of_its_own(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    mesh = msgspec.structs.replace(town.mesh, sends_per_window=1)
    desk = Desk(house, Town(mesh, town.members))
    assert codes(await desk.send("alice", dm("1", "bob"), dm("2", "bob"))) == [201, RATE_LIMITED]


@pytest.mark.req("D7")
async def test_behind_a_refusal_that_may_pass_the_same_destination_waits_and_others_go_on(house: House) -> None:
    town = await settle(house.stores, "alice", "bob", "carol")
    await subscribe(house.stores, town, "news", "alice")
    desk = Desk(house, town, sends_per_window=3)
    assert codes(await desk.send("alice", dm("old", "bob"), post("seen", "news"))) == [201, 201]
    outcomes = await desk.send(
        "alice",
        dm("1", "bob"),  # the last of the budget
        dm("2", "bob"),
        dm("seen", "bob", "not that"),  # a conflict: never, whatever happens to the one before
        dm("old", "bob"),  # was accepted long ago
        dm("1", "bob"),  # counted in this window, but its place is behind the one that waits
        dm("3", "carol"),
    )
    conflict = (409, "idempotency_key_reused")
    assert codes(outcomes) == [201, RATE_LIMITED, conflict, 200, DEFERRED, RATE_LIMITED]


@pytest.mark.req("D7")
async def test_a_refusal_for_good_holds_nobody_up(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)
    outcomes = await desk.send(
        "alice", dm("1", "bob", "x" * 2000), dm("2", "bob"), dm("3", "nobody"), dm("4", "bob")
    )
    assert codes(outcomes) == [(413, "payload_too_large"), 201, (404, "destination_not_found"), 201]


async def test_a_store_that_cannot_say_leaves_every_outcome_unknown(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)

    class Broken(SqliteAcceptStore):
        async def accept(self, _batch: Batch) -> list[AcceptOutcome]:
            raise StoreUnavailable

    desk.service._store = Broken(house.stores.database, str)
    assert codes(await desk.send("alice", dm("1", "bob"), dm("2", "bob"))) == [(503, "store_unavailable")] * 2


@pytest.mark.req("B6")
async def test_recipients_are_woken_after_the_commit_and_only_by_what_was_committed(house: House) -> None:
    town = await settle(house.stores, "alice", "bob", "carol")
    desk = Desk(house, town)
    await desk.send("alice", dm("1", "bob"), dm("2", "nobody"))
    assert desk.woken == [town["bob"].member_id]
    await desk.send("alice", dm("1", "bob"))  # a duplicate has woken them before
    assert desk.woken == [town["bob"].member_id]


@pytest.mark.req("B2")
async def test_budget_that_was_spent_on_a_refusal_in_the_transaction_is_counted(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    desk = Desk(house, town)
    await desk.send("alice", dm("1", "bob"), dm("2", "nobody"), dm("1", "bob", "other"))
    [event] = [event for event in desk.events if isinstance(event, BatchAccepted)]
    assert (event.accepted, event.consumed_then_refused, event.mismatches) == (1, 2, 1)
