"""Version 2 requeues a lease that expired and renews a live one, each with a record."""

import pytest

from claudemesh.ledger import MessageCassette, MessageCassetteError
from tests.contract.ledger.clocks import LedgerClock, instant
from tests.contract.ledger.scenes import DAY_S, OTHER_RUN, RUN
from tests.contract.ledger.shells import dump, newest_shell

pytestmark = pytest.mark.req("L7")

of_version_2 = pytest.mark.parametrize("version", [2], indirect=True)


@pytest.fixture
def held(ledger: MessageCassette) -> str:
    """Give the id of a step that ann holds for ten seconds."""
    ledger.post_message({"n": 1}, RUN, "USER")
    return str(ledger.claim_step(RUN, "ann", ttl_seconds=10)["step_id"])


def refused(ledger: MessageCassette, words: str, verb: str, *arguments: object) -> None:
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(MessageCassetteError, match=words):
            getattr(ledger, verb)(*arguments)
        assert dump(shell) == before


@pytest.mark.parametrize("version", [1], indirect=True)
def test_version_1_says_that_it_has_neither(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    words = "needs version 2, and the ledger has version 1: `cortex cassette upgrade` first"
    refused(ledger, f"renew {words}", "renew_lease", RUN, held, "ann", 1)
    clock.advance(10)
    refused(ledger, f"requeue {words}", "requeue_step", RUN, held)
    refused(ledger, f"requeue {words}", "requeue_expired", RUN)


# --- requeue -------------------------------------------------------------------------------------------


@of_version_2
def test_a_step_is_requeued_after_its_lease_expired_and_not_before(
    ledger: MessageCassette, held: str, clock: LedgerClock
) -> None:
    ends = clock.now_ms + 10_000
    clock.advance(9.999)
    refused(ledger, "lease is live", "requeue_step", RUN, held)
    clock.advance(0.001)
    requeue_id = ledger.requeue_step(RUN, held)
    (step,) = ledger.list_steps(RUN)
    assert (step["status"], step["lease_owner"], step["lease_expires_at"]) == ("PENDING", None, None)
    assert step["fencing_token"] == 1, "the token stays: the next claim's is higher"
    with newest_shell(ledger.path) as shell:
        record = shell("SELECT * FROM cassette_requeues")
    assert record == [(requeue_id, held, "ann", 1, instant(ends), clock.now)]
    assert ledger.find_issues() == []


@of_version_2
def test_a_step_is_requeued_once(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    clock.advance(10)
    ledger.requeue_step(RUN, held)
    refused(ledger, "Step is not leased", "requeue_step", RUN, held)


@of_version_2
def test_a_worker_whose_step_was_requeued_is_told_so(
    ledger: MessageCassette, held: str, clock: LedgerClock
) -> None:
    clock.advance(10)
    ledger.requeue_step(RUN, held)
    refused(ledger, "Step is not leased", "complete_step", RUN, held, "ann", 1, {}, "SUCCESS")
    ledger.claim_step(RUN, "ann")
    refused(ledger, "Fencing token mismatch", "complete_step", RUN, held, "ann", 1, {}, "SUCCESS")
    refused(ledger, "Fencing token mismatch", "renew_lease", RUN, held, "ann", 1)
    assert ledger.complete_step(RUN, held, "ann", 2, {}, "SUCCESS")


@of_version_2
def test_what_cannot_be_requeued_is_refused_by_name(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    refused(ledger, "Step not found", "requeue_step", RUN, "nowhere")
    refused(ledger, "Wrong run_id", "requeue_step", OTHER_RUN, held)
    ledger.complete_step(RUN, held, "ann", 1, {}, "SUCCESS")
    clock.advance(DAY_S)
    refused(ledger, "Step is not leased", "requeue_step", RUN, held)


@of_version_2
def test_all_expired_steps_of_a_run_are_requeued_at_once(ledger: MessageCassette, clock: LedgerClock) -> None:
    for run in (RUN, RUN, RUN, RUN, OTHER_RUN):
        ledger.post_message({}, run, "USER")
    first, second = (ledger.claim_step(RUN, "ann", ttl_seconds=ttl)["step_id"] for ttl in (5, 1))
    ledger.claim_step(RUN, "ann", ttl_seconds=60)
    ledger.claim_step(OTHER_RUN, "ann", ttl_seconds=1)
    clock.advance(5)
    requeued = ledger.requeue_expired(RUN)
    assert list(requeued) == [first, second]
    assert len(set(requeued.values())) == 2
    assert [step["status"] for step in ledger.list_steps(RUN)] == ["PENDING", "PENDING", "LEASED", "PENDING"]
    assert ledger.requeue_expired(RUN) == {}
    assert ledger.find_issues(RUN) == []


# --- renew ---------------------------------------------------------------------------------------------


@of_version_2
def test_a_live_lease_is_renewed_under_the_same_token(
    ledger: MessageCassette, held: str, clock: LedgerClock
) -> None:
    clock.advance(9.999)
    until = ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=20)
    assert until == instant(clock.now_ms + 20_000)
    (step,) = ledger.list_steps(RUN)
    assert (step["lease_owner"], step["fencing_token"], step["lease_expires_at"]) == ("ann", 1, until)
    clock.advance(19.999)
    assert ledger.complete_step(RUN, held, "ann", 1, {}, "SUCCESS")
    assert ledger.find_issues() == []


@of_version_2
def test_a_renewal_never_takes_time_away(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    ends = clock.now_ms + 10_000
    assert ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=1) == instant(ends + 1)
    assert ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=10) == instant(ends + 2)
    clock.advance(-3600)
    assert ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=60) == instant(ends + 3)
    assert ledger.find_issues() == []


@of_version_2
def test_each_renewal_has_its_record(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    ends = []
    for _ in range(3):
        clock.advance(1)
        ends.append(ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=30))
    with newest_shell(ledger.path) as shell:
        records = shell("SELECT step_id, worker_id, fencing_token, lease_expires_at FROM cassette_renewals")
    assert records == [(held, "ann", 1, end) for end in ends]


@of_version_2
def test_what_cannot_be_renewed_is_refused_by_name(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    ledger.post_message({}, RUN, "USER")
    waiting = ledger.list_steps(RUN, "PENDING")[0]["step_id"]
    refused(ledger, "Step not found", "renew_lease", RUN, "nowhere", "ann", 1)
    refused(ledger, "Wrong run_id", "renew_lease", OTHER_RUN, held, "ann", 1)
    refused(ledger, "Step is not leased", "renew_lease", RUN, waiting, "ann", 0)
    refused(ledger, "Fencing token mismatch", "renew_lease", RUN, held, "ann", 2)
    refused(ledger, "Wrong worker", "renew_lease", RUN, held, "ben", 1)
    clock.advance(10)
    refused(ledger, "lease expired", "renew_lease", RUN, held, "ann", 1)


@of_version_2
def test_a_renewed_lease_expires_and_is_requeued_as_it_was_renewed(
    ledger: MessageCassette, held: str, clock: LedgerClock
) -> None:
    until = ledger.renew_lease(RUN, held, "ann", 1, ttl_seconds=30)
    clock.advance(29.999)
    refused(ledger, "lease is live", "requeue_step", RUN, held)
    clock.advance(0.001)
    ledger.requeue_step(RUN, held)
    with newest_shell(ledger.path) as shell:
        assert shell("SELECT lease_expires_at FROM cassette_requeues") == [(until,)]
    assert ledger.find_issues() == []
