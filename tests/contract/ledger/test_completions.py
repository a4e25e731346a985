"""A completion that is wrong is refused by name and changes nothing; a right one is receipt and commit at once."""

from collections.abc import Callable
from typing import Any

import pytest

from claudemesh.kernel.errors import CassetteInvalid
from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.runtime import points
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.scenes import OTHER_RUN, RUN
from tests.contract.ledger.shells import dump, newest_shell

pytestmark = pytest.mark.req("L4")

RIGHT = {"run_id": RUN, "worker_id": "ann", "fencing_token": 1, "receipt_payload": {"ok": 1}, "outcome": "SUCCESS"}


@pytest.fixture
def held(ledger: MessageCassette) -> str:
    """Give the id of a step that ann holds for a minute."""
    ledger.post_message({"n": 1}, RUN, "USER")
    ledger.post_message({"n": 2}, OTHER_RUN, "USER")
    return str(ledger.claim_step(RUN, "ann", ttl_seconds=60)["step_id"])


def refused(ledger: MessageCassette, words: str, step_id: object, **changed: object) -> MessageCassetteError:
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        arguments: dict[str, Any] = RIGHT | {"step_id": step_id} | changed
        with pytest.raises(MessageCassetteError, match=words) as caught:
            ledger.complete_step(**arguments)
        assert dump(shell) == before
    return caught.value


def test_each_refusal_has_its_own_words(ledger: MessageCassette, held: str, clock: LedgerClock) -> None:
    waiting = ledger.list_steps(OTHER_RUN)[0]["step_id"]
    said = [
        refused(ledger, "Invalid outcome", held, outcome="DONE"),
        refused(ledger, "Step not found", "nowhere"),
        refused(ledger, "Wrong run_id", held, run_id=OTHER_RUN),
        refused(ledger, "Step is not leased", waiting, run_id=OTHER_RUN),
        refused(ledger, "Wrong worker", held, worker_id="ben"),
        refused(ledger, "Fencing token mismatch", held, fencing_token=2),
    ]
    clock.advance(60)
    said.append(refused(ledger, "lease expired", held))
    assert len({str(error) for error in said}) == len(said)


def test_a_step_is_completed_once(ledger: MessageCassette, held: str) -> None:
    ledger.complete_step(step_id=held, **RIGHT)
    refused(ledger, "Step is not leased: it is COMMITTED", held)


@pytest.mark.parametrize("outcome", ["", "success", None, 1, "SUCCESS ", ["SUCCESS"]])
def test_an_outcome_is_one_of_three(ledger: MessageCassette, held: str, outcome: object) -> None:
    assert isinstance(refused(ledger, "Invalid outcome", held, outcome=outcome), CassetteInvalid)


@pytest.mark.parametrize("token", [True, 1.0, "1", None, -1, 2**63])
def test_a_token_is_a_number_as_the_claim_gave_it(ledger: MessageCassette, held: str, token: object) -> None:
    assert isinstance(
        refused(ledger, "fencing token is a whole number", held, fencing_token=token), CassetteInvalid
    )


@pytest.mark.parametrize("receipt", [{1, 2}, float("nan"), b"x", "\ud800", object()])
def test_a_receipt_that_is_no_json_is_refused(ledger: MessageCassette, held: str, receipt: object) -> None:
    assert isinstance(refused(ledger, "receipt is not JSON", held, receipt_payload=receipt), CassetteInvalid)


@pytest.mark.parametrize("name", ["run_id", "step_id", "worker_id"])
@pytest.mark.parametrize("wrong", ["", None, 7, "a\0b", "\udfff"])
def test_an_id_is_a_text(ledger: MessageCassette, held: str, name: str, wrong: object) -> None:
    changed = {name: wrong}
    step_id = changed.pop("step_id", held)
    assert isinstance(refused(ledger, name, step_id, **changed), CassetteInvalid)


@pytest.mark.parametrize("outcome", ["SUCCESS", "FAILURE", "ABORTED"])
@pytest.mark.parametrize("receipt", [{"ok": True}, None, [], "done", 0.5])
def test_receipt_and_commit_land_together(
    ledger: MessageCassette, held: str, clock: LedgerClock, outcome: str, receipt: object
) -> None:
    clock.advance(59.999)
    receipt_id = ledger.complete_step(RUN, held, "ann", 1, receipt, outcome)
    (step,) = ledger.list_steps(RUN)
    assert (step["status"], step["receipt_id"], step["outcome"]) == ("COMMITTED", receipt_id, outcome)
    assert (step["lease_owner"], step["fencing_token"]) == ("ann", 1), "the lease stays as evidence"
    assert step["completed_at"] == clock.now
    assert ledger.find_issues() == []


def test_a_completion_that_dies_before_its_commit_leaves_neither(ledger: MessageCassette, held: str) -> None:
    def die() -> None:
        raise MemoryError

    points.arm("ledger.before_commit", die)
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(MemoryError):
            ledger.complete_step(step_id=held, **RIGHT)
        assert dump(shell) == before
    points.disarm_all()
    assert ledger.complete_step(step_id=held, **RIGHT)
    assert ledger.find_issues() == []


def test_a_completion_that_dies_after_its_commit_has_both(ledger: MessageCassette, held: str) -> None:
    def die() -> None:
        raise MemoryError

    points.arm("ledger.after_commit", die)
    with pytest.raises(MemoryError):
        ledger.complete_step(step_id=held, **RIGHT)
    points.disarm_all()
    refused(ledger, "it is COMMITTED, and has its one receipt", held)


def test_a_clock_that_steps_back_revives_no_worker_that_was_told(
    ledger: MessageCassette, held: str, clock: LedgerClock
) -> None:
    """A lease ends at an instant: who holds it may complete while the clock says that it is not over."""
    clock.advance(-3600)
    assert ledger.complete_step(step_id=held, **RIGHT)


def test_receipts_are_found_by_the_key_of_their_message(ledger: MessageCassette) -> None:
    ledger.post_message({"jobs": [{"intent": "i", "steps": [1, 2, 3]}]}, RUN, "USER", "key")
    complete: Callable[[str], str] = lambda step: ledger.complete_step(RUN, step, "ann", 1, {"of": step}, "SUCCESS")  # noqa: E731
    receipts = [complete(ledger.claim_step(RUN, "ann")["step_id"]) for _ in range(2)]
    assert [row["receipt_id"] for row in ledger.find_receipts(RUN, "key")] == receipts
    assert ledger.find_receipts(RUN, "another") == ledger.find_receipts(OTHER_RUN, "key") == []
    assert ledger.find_receipts(RUN, "key")[0]["receipt"] == {"of": ledger.find_step(RUN, "key")["step_id"]}
    with pytest.raises(MessageCassetteError, match="Step not found"):
        ledger.find_step(RUN, "another")
