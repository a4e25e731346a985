"""The end of a row: given up for its age, by an operator, or emptied; and its id, which is never free again."""

from pathlib import Path

import pytest

from claudemesh.broker.settings import Limits
from claudemesh.daemon import identity
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World
from tests.acceptance.files import in_file
from tests.mesh import LocalDaemon, local_broker, local_daemon, rejoin

BOB = "b" * 64


async def settled(daemon: LocalDaemon, *keys: str) -> dict[str, tuple[str, str | None]]:
    """Return what became of these sends, once all of them have come to an end."""
    found = await daemon.until(
        lambda page: all(row["status"] not in ("pending", "inflight") for row in page["rows"]), "/v1/outbox"
    )
    rows = {row["client_message_id"]: (row["status"], row["last_error"]) for row in found["rows"]}
    return {key: rows[key] for key in keys}


@pytest.mark.req("D6")
async def test_a_pruned_id_answers_as_before_and_a_dropped_one_never_comes_back(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        for key in ("done", "dropped", "dead", "young"):
            await daemon.send(BOB, "x", client_message_id=key)
        row = next(row for row in (await daemon.get("/v1/outbox"))["rows"] if row["client_message_id"] == "dropped")
        assert (await daemon.post("/v1/outbox/drop", {"id": row["id"]})).body["status"] == "aborted"
    file = state_dir / "outbox.db"
    in_file(file, "UPDATE outbox SET enqueued_at = 1 WHERE client_message_id <> 'young'")
    in_file(
        file,
        "UPDATE outbox SET status = 'done', broker_message_id = 'B' || seq, history_id = seq "
        "WHERE client_message_id IN ('done', 'young')",
    )
    in_file(file, "UPDATE outbox SET status = 'dead', last_error = 'why' WHERE client_message_id = 'dead'")

    async def answers(daemon: LocalDaemon) -> list[object]:
        said = [
            await daemon.send(BOB, body, client_message_id=key)
            for key in ("done", "dropped", "dead")
            for body in ("x", "other")
        ]
        return [(answer.status, answer.body.get("conflict"), answer.body.get("history_id")) for answer in said]

    async with local_daemon(state_dir, keys=keys) as daemon:
        before = await answers(daemon)
        assert (await daemon.post("/v1/outbox/prune", {})).status == 400, "it takes a word"
        await daemon.post("/v1/outbox/prune", {"confirm": True})
        assert await answers(daemon) == before
        assert before[:2] == [(200, None, 1), (409, "outbox_done_fingerprint_mismatch", None)]
    emptied = in_file(file, "SELECT client_message_id, payload = x'' FROM outbox ORDER BY seq")
    assert emptied == [("done", 1), ("dropped", 1), ("dead", 0), ("young", 0)]


@pytest.mark.req("D8")
async def test_a_row_that_is_too_old_dies_and_is_never_sent(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            await broker.stop()
            for key in ("old", "new"):
                await alice.send("bob", key, client_message_id=key)
        in_file(here / "outbox.db", "UPDATE outbox SET attempts = 0, status = 'pending'")
        # The broker forgets ids after 8760 hours; the daemon gives up a tenth of that time before.
        aged = "UPDATE outbox SET enqueued_at = enqueued_at - ? WHERE client_message_id = 'old'"
        in_file(here / "outbox.db", aged, 7_885 * 3_600_000)
        await broker.start()
        async with rejoin(here) as alice, rejoin(there) as bob:
            found = await settled(alice, "old", "new")
            assert found == {"old": ("dead", "max_age_exceeded"), "new": ("done", None)}
            assert [message["body"] for message in await bob.receives(1)] == ["new"]


class Traveller(SystemClock):
    """A clock that can be sent ahead, as that of a machine that slept."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@pytest.mark.req("D8")
@pytest.mark.parametrize("is_online", [True, False])
async def test_a_row_that_was_tried_dies_by_the_brokers_word_or_with_its_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_online: bool
) -> None:
    clock = Traveller()
    world = World(clock, UlidSource(clock), roll)
    limits = Limits(sends_per_window=1, window_s=36_000)
    async with local_broker(tmp_path, limits=limits) as broker:
        here, there = await broker.enrol("alice", "bob")
        monkeypatch.setattr("tests.mesh.real_world", lambda: world)
        monkeypatch.setattr("claudemesh.outbox.sender.OVERDUE_EVERY_MS", 50)
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            to = identity.load_keys(there).pubkey
            await alice.send(to, "first", client_message_id="first")
            await alice.send(to, "tried", client_message_id="tried")  # beyond the budget: it has to wait for hours
            await alice.until(lambda page: page["rows"][1]["attempts"] == 1, "/v1/outbox")
            if not is_online:
                await broker.stop()
                await alice.until(lambda health: not health["connected"])
            clock.ahead_ms = 9000 * 3_600_000
            reason = "max_age_exceeded" if is_online else "outcome_unknown"
            await alice.until(lambda page: page["rows"][1]["status"] == "dead", "/v1/outbox")
            assert (await alice.get("/v1/outbox"))["rows"][1]["last_error"] == reason


@pytest.mark.req("D10")
async def test_a_row_that_the_broker_has_is_done_and_one_that_it_has_not_is_sent_anew(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda health: health["connected"])
            await alice.send("bob", "arrived", client_message_id="arrived")
            await settled(alice, "arrived")
            await bob.receives(1)
            await broker.stop()
            await alice.send("bob", "lost", client_message_id="lost")
        file = here / "outbox.db"
        in_file(
            file,
            "UPDATE outbox SET status = 'dead', last_error = 'outcome_unknown', attempts = 1, "
            "broker_message_id = NULL, history_id = NULL",
        )
        await broker.start()
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda health: health["connected"])
            arrived, lost = (await alice.get("/v1/outbox?failed=true"))["rows"]
            found = await alice.post("/v1/outbox/requeue", {"id": arrived["id"]})
            assert (found.body["status"], found.body["history_id"]) == ("done", 1)
            anew = await alice.post("/v1/outbox/requeue", {"id": lost["id"], "patch": {"message": "mended"}})
            assert anew.body["status"] == "aborted"
            assert [message["body"] for message in await bob.receives(2)] == ["arrived", "mended"]
            inspected = await alice.get(f"/v1/outbox/{anew.body['superseded_by']}")
            assert inspected["ancestors"] == [lost["id"]]
        # A batch of the old id that was on its way all the time: the broker has closed it.
        in_file(file, "UPDATE outbox SET status = 'pending', aborted_at = NULL WHERE client_message_id = 'lost'")
        async with rejoin(here) as alice:
            assert await settled(alice, "lost") == {"lost": ("dead", "id_retired")}
        async with rejoin(there) as bob:
            assert len(await bob.inbox()) == 2


@pytest.mark.req("D10")
@pytest.mark.parametrize("verb", ["requeue", "drop"])
async def test_whoever_lost_the_answer_that_a_row_had_arrived_is_given_it_again_and_nobody_else(
    tmp_path: Path, verb: str
) -> None:
    async with local_broker(tmp_path) as broker:
        here, _ = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            for key in ("arrived", "plain"):
                await alice.send("bob", key, client_message_id=key)
            await settled(alice, "arrived", "plain")
        in_file(
            here / "outbox.db",
            "UPDATE outbox SET status = 'dead', last_error = 'outcome_unknown', attempts = 1, "
            "broker_message_id = NULL, history_id = NULL WHERE client_message_id = 'arrived'",
        )
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            arrived, plain = [row["id"] for row in (await alice.get("/v1/outbox"))["rows"]]
            named = {"new_client_id": "anew", "patch": {"message": "mended"}} if verb == "requeue" else {}
            await alice.tell(f"/v1/outbox/{verb}", {"id": arrived, **named})  # and nobody hears the answer
            await alice.until(lambda found: found["row"]["status"] == "done", f"/v1/outbox/{arrived}")
            again = (await alice.post(f"/v1/outbox/{verb}", {"id": arrived, **named})).body
            assert (again["status"], again["history_id"], again["replayed"]) == ("done", 1, True)
            for path, asked in (
                (verb, {"id": plain, **named}),  # a row that is done without any decision
                ("requeue", {"id": arrived, "new_client_id": "other", "patch": {"message": "mended"}}),
                ("requeue", {"id": arrived, "new_client_id": "anew", "patch": {"message": "else"}}),
                ("requeue", {"id": arrived}),
                ("drop" if verb == "requeue" else "requeue", {"id": arrived}),
            ):
                refused = await alice.post(f"/v1/outbox/{path}", asked)
                assert (refused.status, refused.body["code"]) == (409, "transition_refused"), asked
            assert len((await alice.get("/v1/outbox"))["rows"]) == 2, "nothing was sent anew"


@pytest.mark.req("Q7")
async def test_the_outbox_is_read_page_by_page_and_a_cursor_of_elsewhere_is_told_so(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        for number in range(5):
            await daemon.send(BOB, "x", client_message_id=f"m{number}")
        pages, more, cursor = [], "", ""
        while more is not None:
            page = await daemon.get(f"/v1/outbox?limit=2{more and f'&cursor={more}'}")
            pages.append([row["client_message_id"] for row in page["rows"]])
            more = page["next_cursor"]
            cursor = more or cursor
        assert pages == [["m0", "m1"], ["m2", "m3"], ["m4"]]
        epoch, _, seq = cursor.partition(".")
        assert seq == "4"
        answers = [
            await daemon.request("GET", f"/v1/outbox?cursor={said}") for said in (f"{epoch}.99", "feed.1", "4")
        ]
        told = [(answer.status, answer.body["code"]) for answer in answers]
        assert told == [(409, "cursor_ahead"), (410, "cursor_expired"), (400, "invalid_request")]
    async with local_daemon(state_dir, keys=keys) as daemon:
        page = await daemon.get(f"/v1/outbox?cursor={cursor}")
        assert [row["client_message_id"] for row in page["rows"]] == ["m4"], "it is good after a restart"
