"""What is shown of a look: everything that waits, and nothing of what others wrote but its letters."""

import pytest

from claudemesh.cli.top import tables
from claudemesh.cli.top.picture import History
from tests.unit.cli.top.looks import HEALTH, HOSTILE, away, look
from tests.unit.edge.well import WELL


def of(name: str, **changes: object) -> tables.Table:
    return next(table for table in tables.tables(look(**changes)) if table.name == name)


@pytest.mark.req("C5")
@pytest.mark.parametrize("width", [58, 78, 200])
def test_the_head_says_who_it_is_what_waits_and_fits_the_terminal(width: int) -> None:
    history = History()
    for at_ms, sent in ((0, 0), (1_000, 5)):
        history.note(look(at_ms, sent=sent))
    lines = tables.summary(look(), history, width)
    assert max(map(len, lines)) <= width
    said = "   ".join(lines)
    for field in (
        "mesh demo", "member ada", "up 1h 1m", "lag 12s", "reconnects 2", "outbox: pending 3", "under way 1",
        "oldest waits 12s", "oldest dead 20s", "unread 4", "outbox 7% full", "sent 5.0/s █",
    ):  # fmt: skip
        assert field in said, field


def test_a_relay_is_shown_with_what_waits_there_or_why_it_is_not() -> None:
    gone = {"upstream_reachable": False, "upstream_state": "offline"}
    relay = WELL | gone | {"pending": 2, "conflicts": 1, "oldest_pending_age_s": 75}
    assert tables.relay_fields(look(relay=relay)) == [
        "relay: hub NOT reachable", "pending 2", "conflicts 1", "dead 0", "oldest waits 1m 15s",
    ]  # fmt: skip
    for state, said in (("refused", "REFUSES the relay's credential"), ("online", "reachable")):
        there = WELL | {"upstream_state": state}
        assert tables.relay_fields(look(relay=there))[0] == f"relay: hub {said}"
    assert tables.relay_fields(look(errors={"relay": "it does not run"})) == ["relay: it does not run"]
    assert tables.relay_fields(look()) == []


@pytest.mark.req("C5")
def test_what_others_wrote_has_no_control_characters_in_any_table() -> None:
    peers = of("peers")
    assert peers.rows[0].cells[0] == HOSTILE
    assert peers.rows[0].cells[-1] == "\\x1b[31mred"
    life = {
        "client_message_id": "m",
        "state": "dead",
        "steps": [{"at": 0, "state": "x", "evidence": "\x1b]0;a\x07"}],
    }
    assert all(text.isprintable() for text in tables.trace_lines(life))


def test_every_part_has_its_table_and_says_why_it_is_empty() -> None:
    found = {table.name: table for table in tables.tables(look(peers=[], dead=[], queues=[], steps=[]))}
    assert [table.empty for table in found.values()] == [
        "nobody else is here", "no dead rows", "no work queues", "no relay runs here", "every step is committed",
    ]  # fmt: skip
    assert {table.empty for table in tables.tables(away())[:3]} == {"nothing is known while the daemon is away"}
    assert of("queues", queues=None, errors={"queues": "the broker is away"}).empty == "the broker is away"


def test_peers_dead_rows_queues_envelopes_and_steps_are_told_in_full() -> None:
    envelope = {"id": "e", "request": "PATCH /tasks/1", "state": "conflict", "attempts": 2, "created_at": 0}
    step = {"step_id": "s", "run_id": "r", "status": "LEASED", "lease_owner": "w", "is_expired": True}
    assert of("peers").rows[0].cells[1:7] == ("online", "now", "90s", "5", "1", "1")
    assert of("peers").rows[1].cells[1:7] == ("offline", "waits", "-", "-", "-", "0")
    assert of("dead").rows[0].cells == ("message-1", "bob", "20s", "1", "destination_not_found")
    assert of("queues").rows[0].cells[:3] == ("jobs", "2", "1")
    assert of("relay", envelopes=[envelope], relay={}).rows[0].cells[:2] == ("PATCH /tasks/1", "conflict")
    assert of("ledger", steps=[step]).rows[0].cells == ("r", "-", "LEASED", "w", "expired")


def test_the_dead_are_counted_by_the_daemon_and_not_by_the_page() -> None:
    assert of("dead", health=HEALTH | {"dead": 4_000}).count == 4_000


@pytest.mark.req("C5")
def test_rows_are_sorted_by_what_they_mean_and_not_by_their_letters() -> None:
    table = of("dead", dead=[row | {"attempts": n} for row, n in zip(look().dead or (), (12, 9), strict=True)])
    tries = table.heads.index("tries")
    assert [row.cells[tries] for row in tables.arrange(table, "", tries, reverse=False)] == ["9", "12"]
    assert [row.cells[tries] for row in tables.arrange(table, "", tries, reverse=True)] == ["12", "9"]
    assert tables.arrange(table, "", None, reverse=False) == list(table.rows)


def test_a_filter_keeps_the_rows_that_hold_all_its_words() -> None:
    found = tables.arrange(of("dead"), "CAROL not_found", None, reverse=False)
    assert [row.cells[1] for row in found] == ["carol"]
    assert tables.arrange(of("dead"), "carol bob", None, reverse=False) == []


def test_a_field_that_is_wider_than_the_terminal_is_cut() -> None:
    assert tables.flow(["a" * 30, "b", "c"], 10) == ["aaaaaaaaa…", "b   c"]


def test_the_first_line_says_how_the_daemon_is_and_why() -> None:
    assert tables.first_line(look()) == "daemon connected"
    refused = HEALTH | {"connected": False, "link": "refused\x1b"}
    assert tables.first_line(look(health=refused)) == "daemon not connected: refused\\x1b"
    assert tables.first_line(away()) == "daemon away: no daemon answers"
