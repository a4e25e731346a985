"""A relay's outbox is copied by its numbers: an envelope when it is settled, what happened to it as it happens."""

import shutil
from pathlib import Path

import pytest

from claudemesh.pipeline.catalogue import RELAY
from claudemesh.pipeline.checks.sqlite import check_writes
from claudemesh.pipeline.sources.sqlite import SqliteStore
from claudemesh.pipeline.stores import find_stores, open_stores
from tests.contract.pipeline.pulling import Copy
from tests.contract.pipeline.writes import TASK, WORDS, Relay, change, make_task, open_hub, open_relay


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def place(home: Path) -> Path:
    return home / "edge" / "outbox.db"


@pytest.mark.req("S1")
async def test_an_envelope_is_copied_once_it_is_settled_and_shown_as_open_until_then(
    home: Path, place: Path
) -> None:
    copy = Copy(SqliteStore(place, RELAY))
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await make_task(hub)
        await relay.append()
        await relay.replay(hub)
        await relay.append()
        await relay.replace("doing", if_match='"1"')
        await relay.replace("done", if_match='"1"')  # makes the one before it needless
    copy.pull()
    assert [(row["seq"], row["status"], row["aborted_by"]) for row in copy.rows["outbox"]] == [
        (1, "done", None),
        (3, "aborted", "coalesced"),
    ]
    assert [(row["seq"], row["status"], row["if_match"]) for row in copy.wholes["outbox_open"]] == [
        (2, "pending", None),
        (4, "pending", '"1"'),
    ]
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await change(hub, "doing")
        await relay.replay(hub)
    copy.pull()
    assert [row["seq"] for row in copy.rows["outbox"]] == [1, 3, 2]
    assert [(row["seq"], row["status"]) for row in copy.wholes["outbox_open"]] == [(4, "conflict")]
    assert copy.counts == {
        "outbox": 4,
        "outbox.done": 2,
        "outbox.aborted": 1,
        "outbox.conflict": 1,
        "envelope_event": len(copy.rows["envelope_event"]),
        "outage": 0,
    }
    assert [row["became"] for row in copy.rows["envelope_event"] if row["envelope"] == 4] == [
        "pending",
        "inflight",
        "conflict",
    ]
    assert copy.pull() == 0


@pytest.mark.req("S1")
async def test_what_is_sent_is_known_by_what_it_says_of_itself_and_not_by_its_body(home: Path, place: Path) -> None:
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await make_task(hub)
        await relay.append()
        await relay.replay(hub)
        expected = {"expected_status": "todo", "expected_updated_at": "2023-11-14T22:13:20.000Z"}
        await relay.replace("doing", if_match='"1"', **expected)
    without, with_bodies = Copy(SqliteStore(place, RELAY)), Copy(SqliteStore(place, RELAY), bodies=True)
    without.pull()
    with_bodies.pull()
    (made,), (waits,) = without.rows["outbox"], without.wholes["outbox_open"]
    assert (made["method"], made["path"], made["route_class"]) == ("POST", "/progress/", "append")
    assert (made["source_agent"], made["source_host"], made["answer_status"]) == ("codex", "laptop", 201)
    assert made["key"] == made["client_message_id"]
    assert {name: waits[name] for name in expected} == expected
    assert (waits["if_match"], waits["destination"], waits["is_status_write"]) == ('"1"', TASK, 1)
    assert waits["body_bytes"] == len('{"status":"doing","expected_status":"todo","expected_updated_at":""}') + 24
    assert WORDS not in str([without.rows, {name: without.wholes[name] for name in ("outbox_open", "outage")}])
    (body,), (open_,) = with_bodies.rows["envelope_body"], with_bodies.wholes["envelope_body_open"]
    assert WORDS in body["body"]
    assert WORDS in body["answer"]
    assert '"doing"' in open_["body"]


@pytest.mark.req("S1")
async def test_a_body_that_changes_until_it_is_settled_is_copied_as_it_went_out(home: Path, place: Path) -> None:
    copy = Copy(SqliteStore(place, RELAY), bodies=True)
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await make_task(hub)
        conflict = await relay.replace("doing", expected_status="never")
        await relay.replay(hub)
    copy.pull()
    assert copy.rows["outbox"] == copy.rows["envelope_body"] == []
    (before,) = copy.wholes["outbox_open"]
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await relay.operator.resolve(conflict, "mine", "ann")
        await relay.replay(hub)
    copy.pull()
    (envelope,), (body,) = copy.rows["outbox"], copy.rows["envelope_body"]
    assert (envelope["status"], envelope["expected_status"]) == ("done", "todo")
    assert envelope["key"] != before["key"], "under which the upstream knows it"
    assert envelope["client_message_id"] == before["client_message_id"]
    assert '"todo"' in body["body"]


@pytest.mark.req("S1")
async def test_of_an_envelope_that_was_emptied_there_is_what_answers_a_retry(home: Path, place: Path) -> None:
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await relay.append()
        await relay.replay(hub)
        await relay.store.prune(relay.now_ms + 1, 0, 10)
    copy = Copy(SqliteStore(place, RELAY), bodies=True)
    copy.pull()
    (envelope,), (body,) = copy.rows["outbox"], copy.rows["envelope_body"]
    assert (envelope["status"], envelope["path"], envelope["key"]) == ("done", "/progress/", None)
    assert body["body"] is None


@pytest.mark.req("S1")
async def test_an_outage_is_shown_as_it_stands(home: Path, place: Path) -> None:
    copy = Copy(SqliteStore(place, RELAY))
    async with open_relay(place) as relay:
        await relay.away("first")
        await relay.append()
    copy.pull()
    (open_,) = copy.wholes["outage"]
    assert (open_["id"], open_["online_at"], open_["recovered_at"], open_["first_seq"]) == ("first", None, None, 1)
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await relay.back()
        await relay.replay(hub)
        await relay.over("first")
    copy.pull()
    (over,) = copy.wholes["outage"]
    assert over["began_at"] == open_["began_at"]
    assert over["online_at"] is not None
    assert over["recovered_at"] is not None
    assert copy.counts["outage"] == 1


@pytest.mark.req("S1")
@pytest.mark.parametrize("act", ["accept", "settle"])
async def test_a_relay_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again(
    home: Path, place: Path, act: str
) -> None:
    async with open_relay(place) as relay:
        first = await relay.append()
        second = await relay.append()
    shutil.copy(place, home / "backup.db")

    async def go_on(relay: Relay, row_id: str) -> None:
        if act == "accept":
            await relay.append()
        else:
            await relay.operator.cancel(row_id, "ann")

    async with open_relay(place) as relay:
        await go_on(relay, first)
    *_, last = SqliteStore(place, RELAY).moments()
    shutil.copy(home / "backup.db", place)
    async with open_relay(place) as relay:
        await go_on(relay, second)
    for moment in SqliteStore(place, RELAY).moments():
        assert moment.went_back(last.position)
        assert not moment.went_back(moment.position)


@pytest.mark.req("S1")
async def test_a_home_has_a_relay_that_is_read_before_its_hub_and_is_no_daemons_outbox(
    home: Path, place: Path
) -> None:
    async with open_hub(home / "hub.db"), open_relay(place):
        pass
    stores = open_stores(find_stores(home))
    assert [store.kind.name for store in stores] == ["relay", "hub"]
    assert stores[0].identify().name.startswith("relay-")


@pytest.mark.req("S3")
async def test_files_of_a_relay_and_its_hub_are_held_against_each_other(home: Path, place: Path) -> None:
    async with open_hub(home / "hub.db") as hub, open_relay(place) as relay:
        await make_task(hub)
        await relay.append()
        await relay.replace("doing", if_match='"1"')
        await relay.replay(hub)
    assert check_writes([home / "hub.db"], [place]).violations == []
    async with open_hub(home / "another.db"):
        pass
    found = check_writes([home / "another.db"], [place]).violations
    assert [one.invariant for one in found] == ["edge_append_lost", "lost_update"]
