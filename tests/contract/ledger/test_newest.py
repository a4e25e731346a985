"""Steps as a page shows them: the newest first, counted without counting what is committed."""

import pytest

from claudemesh.ledger import MessageCassette, MessageCassetteError
from tests.contract.ledger.clocks import LedgerClock

RUN = "run"


def fill(ledger: MessageCassette) -> None:
    """Post five steps: the first is committed, the second leased for a second."""
    ledger.post_message({"jobs": [{"intent": "i", "steps": [{"n": n} for n in range(5)]}]}, RUN, "USER")
    step = ledger.claim_step(RUN, "w1")
    ledger.complete_step(RUN, step["step_id"], "w1", step["fencing_token"], {"ok": True}, "SUCCESS")
    ledger.claim_step(RUN, "w2", 1)


@pytest.mark.req("C4")
def test_steps_come_newest_first_page_by_page(ledger: MessageCassette) -> None:
    fill(ledger)
    first = ledger.newest_steps(limit=3)
    rest = ledger.newest_steps(before=first[-1]["place"], limit=3)
    assert [step["ordinal"] for step in first + rest] == [5, 4, 3, 2, 1]
    assert [step["ordinal"] for step in ledger.newest_steps("PENDING", limit=2)] == [5, 4]
    assert [step["lease_owner"] for step in ledger.newest_steps("LEASED")] == ["w2"]
    assert [step["outcome"] for step in ledger.newest_steps("COMMITTED")] == ["SUCCESS"]


@pytest.mark.req("C4")
def test_they_are_counted_by_state_and_by_whether_their_lease_ended(
    ledger: MessageCassette, clock: LedgerClock
) -> None:
    assert ledger.count_steps() == {"PENDING": 0, "LEASED": 0, "COMMITTED": 0, "expired": 0}
    fill(ledger)
    assert ledger.count_steps() == {"PENDING": 3, "LEASED": 1, "COMMITTED": 1, "expired": 0}
    clock.advance(2)
    assert ledger.count_steps()["expired"] == 1


@pytest.mark.req("C4")
def test_one_step_is_shown_with_its_payload_and_receipt(ledger: MessageCassette) -> None:
    fill(ledger)
    *_, held, done = ledger.newest_steps()
    shown = ledger.show_step(done["step_id"])
    assert (shown["payload"], shown["receipt"], shown["receipt_worker"]) == ({"n": 0}, {"ok": True}, "w1")
    assert ledger.show_step(held["step_id"])["receipt"] is None
    with pytest.raises(MessageCassetteError, match="Step not found"):
        ledger.show_step("nobody")


@pytest.mark.parametrize("version", [2], indirect=True)
@pytest.mark.parametrize("name", ["newest_open", "count_open"])
def test_what_is_open_is_found_by_its_index(ledger: MessageCassette, name: str) -> None:
    from claudemesh.ledger.stores.sqlite import entries  # noqa: PLC0415 - its statements, for this test only

    values = ("PENDING", 1, 1) if name == "newest_open" else ()
    steps = ledger._file._connection.execute(f"EXPLAIN QUERY PLAN {entries._SQL[name]}", values).fetchall()
    plan = [str(step[3]) for step in steps]
    assert any("ix_steps_open" in step for step in plan), plan
    assert not [step for step in plan if step == "SCAN cassette_steps"], plan
