"""Claims follow one order, whatever the clock says, and each raises the token by one."""

import pytest

from claudemesh.kernel.errors import NoPendingSteps
from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.stores.sqlite import entries
from tests.contract.ledger.clocks import LedgerClock, instant
from tests.contract.ledger.scenes import DAY_S, OTHER_RUN, RUN
from tests.contract.ledger.shells import newest_shell

pytestmark = pytest.mark.req("L3")


def claim_all(ledger: MessageCassette, run: str = RUN) -> list[object]:
    claimed: list[object] = []
    while True:
        try:
            claimed.append(ledger.claim_step(run, "ann")["payload"])
        except NoPendingSteps:
            return claimed


def test_messages_of_the_same_millisecond_are_claimed_as_posted(ledger: MessageCassette) -> None:
    for number in range(20):
        ledger.post_message({"n": number}, RUN, "USER")
    assert {step["posted_at"] for step in ledger.list_steps(RUN)} == {ledger.list_steps(RUN)[0]["posted_at"]}
    assert claim_all(ledger) == [{"n": number} for number in range(20)]


def test_a_clock_that_steps_back_or_forward_changes_no_order(ledger: MessageCassette, clock: LedgerClock) -> None:
    for number, step_s in enumerate((0, -DAY_S, 1, 400 * DAY_S, -800 * DAY_S, 0)):
        clock.advance(step_s)
        ledger.post_message({"n": number}, RUN, "USER")
    posted = [step["posted_at"] for step in ledger.list_steps(RUN)]
    assert posted != sorted(posted)
    assert claim_all(ledger) == [{"n": number} for number in range(6)]


def test_steps_are_claimed_by_message_then_job_then_step(ledger: MessageCassette) -> None:
    def jobs(message: int) -> dict[str, object]:
        return {"jobs": [{"intent": "i", "steps": [[message, job, n] for n in range(11)]} for job in range(11)]}

    ledger.post_message(jobs(1), RUN, "USER")
    ledger.post_message(jobs(2), RUN, "USER")
    expected = [[message, job, n] for message in (1, 2) for job in range(11) for n in range(11)]
    assert claim_all(ledger) == expected, "ten comes after nine"


def test_runs_are_apart(ledger: MessageCassette) -> None:
    for number in range(3):
        ledger.post_message({"n": number}, RUN, "USER")
        ledger.post_message({"n": -number}, OTHER_RUN, "USER")
    assert claim_all(ledger, OTHER_RUN) == [{"n": 0}, {"n": -1}, {"n": -2}]
    with pytest.raises(NoPendingSteps, match="No pending steps in run 'nowhere'"):
        ledger.claim_step("nowhere", "ann")
    assert claim_all(ledger) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_what_is_leased_is_not_claimed_also_when_its_lease_is_over(
    ledger: MessageCassette, clock: LedgerClock
) -> None:
    ledger.post_message({}, RUN, "USER")
    ledger.claim_step(RUN, "ann", ttl_seconds=1)
    clock.advance(DAY_S)
    with pytest.raises(NoPendingSteps):
        ledger.claim_step(RUN, "ben")


def test_a_lease_ends_when_its_time_to_live_says(ledger: MessageCassette, clock: LedgerClock) -> None:
    for number in range(4):
        ledger.post_message({"n": number}, RUN, "USER")
    ends = [ledger.claim_step(RUN, "ann", ttl)["lease_expires_at"] for ttl in (0.001, 1.5, 366 * DAY_S)]
    ends.append(ledger.claim_step(RUN, "ann")["lease_expires_at"])
    assert ends == [instant(clock.now_ms + ms) for ms in (1, 1500, 366 * DAY_S * 1000, 300_000)]


@pytest.mark.parametrize("version", [2], indirect=True)
def test_each_claim_raises_the_token_by_one(ledger: MessageCassette, clock: LedgerClock) -> None:
    ledger.post_message({}, RUN, "USER")
    for token in range(1, 6):
        step = ledger.claim_step(RUN, f"w{token}", ttl_seconds=1)
        assert step["fencing_token"] == token
        clock.advance(1)
        ledger.requeue_step(RUN, step["step_id"])
    assert ledger.list_steps(RUN)[0]["fencing_token"] == 5
    assert ledger.find_issues() == []


@pytest.mark.parametrize("version", [2], indirect=True)
def test_a_step_that_was_requeued_is_claimed_where_it_stood(ledger: MessageCassette, clock: LedgerClock) -> None:
    for number in range(3):
        ledger.post_message({"n": number}, RUN, "USER")
    first = ledger.claim_step(RUN, "ann", ttl_seconds=1)
    clock.advance(1)
    ledger.requeue_step(RUN, first["step_id"])
    assert claim_all(ledger) == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize("version", [2], indirect=True)
def test_an_index_knows_what_is_next_and_forgets_what_is_done(ledger: MessageCassette) -> None:
    """However long a run is: the claim looks at one row, and at none that is committed."""
    plan = ledger._file._connection.execute(f"EXPLAIN QUERY PLAN {entries._OF[2]['next']}", (RUN,)).fetchall()
    steps = [detail for *_, detail in plan]
    assert any("USING INDEX ix_steps_open (status=? AND run_id=?)" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in steps), steps


def test_a_step_written_by_raw_sql_is_claimed_like_any_other(ledger: MessageCassette) -> None:
    with newest_shell(ledger.path) as shell:
        columns = "message_id, run_id, source, payload_json"
        shell(f"INSERT INTO cassette_messages ({columns}) VALUES ('m', 'nightly', 'USER', '1')")  # noqa: S608
        shell("INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', 'm', 'i', 3)")
        for ordinal in (9, 4):
            shell(
                "INSERT INTO cassette_steps (step_id, job_id, ordinal, payload_json) VALUES (?1, 'j', ?1, ?1)",
                (ordinal,),
            )
    ledger.post_message({}, RUN, "USER")
    assert claim_all(ledger) == [4, 9, {}]


def post_raw(ledger: MessageCassette, payload: str) -> None:
    """Post a step as only raw SQL can: its payload is an expression of SQL."""
    with newest_shell(ledger.path) as shell:
        columns = "message_id, run_id, source, payload_json"
        shell(f"INSERT INTO cassette_messages ({columns}) VALUES ('m', 'nightly', 'USER', '1')")  # noqa: S608
        shell("INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', 'm', 'i', 1)")
        columns = "step_id, job_id, ordinal, payload_json"
        shell(f"INSERT INTO cassette_steps ({columns}) VALUES ('s', 'j', 1, {payload})")  # noqa: S608


@pytest.mark.parametrize("payload", ["'{}' || char(0) || 'x'", "replace(hex(zeroblob(3000)), '0', '1')"])
def test_a_payload_that_only_sqlite_can_read_is_handed_over_as_it_is(ledger: MessageCassette, payload: str) -> None:
    """Refusing it would keep all that wait behind it from being claimed."""
    post_raw(ledger, payload)
    ledger.post_message({}, RUN, "USER")
    text = ledger.claim_step(RUN, "ann")["payload"]
    assert text in {"{}\0x", "1" * 6_000}
    assert ledger.complete_step(RUN, "s", "ann", 1, {"why": "no JSON"}, "FAILURE")
    assert ledger.claim_step(RUN, "ann")["payload"] == {}


def test_a_payload_that_is_no_text_is_refused_and_its_step_stays_unclaimed(ledger: MessageCassette) -> None:
    post_raw(ledger, "CAST(x'22ff22' AS TEXT)")
    with pytest.raises(MessageCassetteError, match="not UTF-8"):
        ledger.claim_step(RUN, "ann")
    assert ledger.list_steps(RUN)[0]["status"] == "PENDING"


def test_what_a_worker_holds_is_found_as_its_claim_told_it(ledger: MessageCassette, clock: LedgerClock) -> None:
    ledger.post_message({"n": 1}, RUN, "USER")
    ledger.post_message({"n": 2}, RUN, "USER")
    claimed = ledger.claim_step(RUN, "ann", 60)
    assert ledger.find_held(RUN, "ann") == claimed
    assert (ledger.find_held(RUN, "bob"), ledger.find_held(OTHER_RUN, "ann")) == (None, None)
    assert [step["step_id"] for step in ledger.list_steps(RUN, job_id=claimed["job_id"])] == [claimed["step_id"]]
    assert ledger.find_receipt(RUN, claimed["step_id"]) is None
    receipt_id = ledger.complete_step(
        RUN, claimed["step_id"], "ann", claimed["fencing_token"], {"ok": 1}, "SUCCESS"
    )
    found = ledger.find_receipt(RUN, claimed["step_id"])
    assert found is not None
    assert (found["receipt_id"], found["worker_id"], found["receipt"]) == (receipt_id, "ann", {"ok": 1})
    assert ledger.find_held(RUN, "ann") is None
    ledger.claim_step(RUN, "ann", 60)
    clock.advance(61)
    assert ledger.find_held(RUN, "ann") is None  # its lease is over
