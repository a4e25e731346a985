"""A post is written down once per key, whole or not at all, and nothing of it is executed."""

from typing import Any

import pytest

from claudemesh.kernel.errors import CassetteConflict, CassetteInvalid
from claudemesh.ledger import MessageCassette
from claudemesh.runtime import points
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.scenes import OTHER_RUN, RUN
from tests.contract.ledger.shells import dump, newest_shell


def nested(levels: int) -> Any:  # noqa: ANN401 - JSON is anything
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def invalid(ledger: MessageCassette, *post: Any) -> str:  # noqa: ANN401 - that is the point
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(CassetteInvalid) as caught:
            ledger.post_message(*post)
        assert dump(shell) == before
    return str(caught.value)


# --- once per key --------------------------------------------------------------------------------------


@pytest.mark.req("L5")
def test_the_same_post_under_the_same_key_is_the_same_message(ledger: MessageCassette, clock: LedgerClock) -> None:
    first = ledger.post_message({"b": 1, "a": [1, 2.5, "ä"]}, RUN, "USER", "key")
    clock.advance(3600)
    assert ledger.post_message({"a": [1, 2.5, "ä"], "b": 1}, RUN, "USER", "key") == first
    assert len(ledger.list_steps()) == 1
    assert ledger.find_issues() == []


@pytest.mark.req("L5")
def test_a_key_is_of_its_run(ledger: MessageCassette) -> None:
    posted = {ledger.post_message({"n": 1}, run, "USER", "key") for run in (RUN, OTHER_RUN)}
    assert len(posted) == len(ledger.list_steps()) == 2


@pytest.mark.req("L5")
def test_without_a_key_every_post_is_a_new_message(ledger: MessageCassette) -> None:
    assert len({ledger.post_message({"n": 1}, RUN, "USER") for _ in range(3)}) == 3
    assert len(ledger.list_steps()) == 3


@pytest.mark.req("L5")
@pytest.mark.parametrize(
    ("payload", "source", "what"), [({"n": 2}, "USER", "payload"), ({"n": 1}, "SYSTEM", "source")]
)
def test_the_same_key_for_another_message_is_a_conflict_and_changes_nothing(
    ledger: MessageCassette, payload: dict[str, int], source: str, what: str
) -> None:
    message_id, _ = ledger.post_message({"n": 1}, RUN, "USER", "key")
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(CassetteConflict, match=f"{message_id} with another {what} under") as caught:
            ledger.post_message(payload, RUN, source, "key")
        assert caught.value.code == "ledger_conflict"
        assert dump(shell) == before


@pytest.mark.req("L5")
def test_a_key_still_stands_when_its_work_is_done(ledger: MessageCassette) -> None:
    posted = ledger.post_message({"n": 1}, RUN, "USER", "key")
    step = ledger.claim_step(RUN, "ann")
    ledger.complete_step(RUN, step["step_id"], "ann", 1, {}, "SUCCESS")
    assert ledger.post_message({"n": 1}, RUN, "USER", "key") == posted
    assert [step["status"] for step in ledger.list_steps()] == ["COMMITTED"]


# --- jobs and steps ------------------------------------------------------------------------------------


@pytest.mark.req("L8")
def test_a_payload_is_one_job_of_one_step(ledger: MessageCassette) -> None:
    message_id, job_id = ledger.post_message({"intent": "rm -rf /", "n": 1}, RUN, "USER")
    (step,) = ledger.list_steps()
    assert (step["message_id"], step["job_id"], step["intent"]) == (message_id, job_id, "rm -rf /")
    assert ledger.claim_step(RUN, "ann")["payload"] == {"intent": "rm -rf /", "n": 1}


@pytest.mark.req("L8")
def test_jobs_of_a_payload_become_jobs_with_their_steps(ledger: MessageCassette) -> None:
    jobs = [{"intent": "build", "steps": [1, {"two": 2}]}, {"steps": [None]}, {"intent": "ship", "steps": [[]]}]
    message_id, first = ledger.post_message({"intent": "all", "jobs": jobs}, RUN, "PLANNER")
    found = [(step["job_ordinal"], step["ordinal"], step["intent"]) for step in ledger.list_steps(RUN)]
    assert found == [(1, 1, "build"), (1, 2, "build"), (2, 1, "all"), (3, 1, "ship")]
    assert first == f"{message_id}.1"
    assert [ledger.claim_step(RUN, "ann")["payload"] for _ in range(4)] == [1, {"two": 2}, None, []]


@pytest.mark.req("L8")
def test_a_post_that_dies_before_its_commit_leaves_nothing(ledger: MessageCassette) -> None:
    def die() -> None:
        raise MemoryError

    points.arm("ledger.before_commit", die)
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(MemoryError):
            ledger.post_message({"jobs": [{"intent": "i", "steps": [1, 2]}]}, RUN, "USER", "key")
        assert dump(shell) == before


@pytest.mark.req("L8")
@pytest.mark.parametrize(
    "payload",
    [
        None,
        "text",
        7,
        [],
        [{"intent": "i"}],
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": {1, 2}},
        {"a": b"bytes"},
        {"a": object()},
        {"a": "\ud800"},
        {"\udfff": 1},
        {"a": 1, 2: 3},
        {(1, 2): 3},
        {"a": 10**5000},
        cycle(),
        {"deep": nested(5_000)},
        {"intent": ""},
        {"intent": None},
        {"intent": 7},
        {"jobs": None},
        {"jobs": {}},
        {"jobs": []},
        {"jobs": "jobs"},
        {"jobs": [None]},
        {"jobs": [[]]},
        {"jobs": [{}]},
        {"jobs": [{"intent": "i"}]},
        {"jobs": [{"intent": "i", "steps": []}]},
        {"jobs": [{"intent": "i", "steps": {}}]},
        {"jobs": [{"intent": "i", "steps": "steps"}]},
        {"jobs": [{"intent": "", "steps": [1]}]},
        {"jobs": [{"intent": 1, "steps": [1]}]},
        {"intent": 1, "jobs": [{"intent": "i", "steps": [1]}]},
        {"jobs": [{"intent": "i", "steps": [1]}, {"intent": "i", "steps": [float("nan")]}]},
        {"jobs": [{"intent": "i", "steps": [1]}, {"intent": "i"}]},
    ],
)
def test_a_payload_that_cannot_be_written_down_is_invalid_and_nothing_is_stored(
    ledger: MessageCassette, payload: object
) -> None:
    assert invalid(ledger, payload, RUN, "USER", "key")


@pytest.mark.req("L8")
@pytest.mark.parametrize("wrong", ["", None, 7, b"run", "a\0b", "\ud800"])
def test_a_run_and_a_key_are_texts(ledger: MessageCassette, wrong: object) -> None:
    assert "run_id" in invalid(ledger, {}, wrong, "USER")
    if wrong is not None:
        assert "idempotency_key" in invalid(ledger, {}, RUN, "USER", wrong)


@pytest.mark.req("L8")
@pytest.mark.parametrize("source", ["", "user", "ROOT", None, 1, ["USER"]])
def test_a_source_is_one_of_four(ledger: MessageCassette, source: object) -> None:
    assert "Invalid source" in invalid(ledger, {}, RUN, source)


@pytest.mark.req("L8")
@pytest.mark.parametrize("source", ["USER", "PLANNER", "SYSTEM", "WORKER"])
def test_each_source_may_post(ledger: MessageCassette, source: str) -> None:
    assert ledger.post_message({}, RUN, source)


@pytest.mark.req("L8")
@pytest.mark.parametrize(
    "ttl", [0, -1, 0.0, -0.5, 0.0004, float("nan"), float("inf"), 10**400, 366 * 86_400 + 1, "300", None, True]
)
def test_a_time_to_live_is_above_zero_and_below_a_year(ledger: MessageCassette, ttl: object) -> None:
    ledger.post_message({}, RUN, "USER")
    with newest_shell(ledger.path) as shell:
        before = dump(shell)
        with pytest.raises(CassetteInvalid, match="ttl_seconds"):
            ledger.claim_step(RUN, "ann", ttl)  # type: ignore[arg-type]
        with pytest.raises(CassetteInvalid, match="ttl_seconds"):
            ledger.renew_lease(RUN, "step", "ann", 1, ttl)  # type: ignore[arg-type]
        assert dump(shell) == before


@pytest.mark.req("L8")
def test_texts_of_every_kind_come_back_as_they_were(ledger: MessageCassette) -> None:
    payload = {
        "intent": "ünï 🙂",
        "nul": "a\0b",
        "line": "\u2028\r\n",
        "quote": "'\"\\",
        "": {"-0": -0.0, "e": 1e300},
    }
    ledger.post_message(payload, "run\n'; DROP TABLE cassette_steps; --", "USER", "🔑")
    step = ledger.claim_step("run\n'; DROP TABLE cassette_steps; --", "wörker")
    assert step["payload"] == payload
    assert ledger.find_issues() == []


# --- what stands there ---------------------------------------------------------------------------------


@pytest.mark.req("L8")
def test_steps_are_listed_in_pages_in_the_order_they_were_posted(
    ledger: MessageCassette, clock: LedgerClock
) -> None:
    for number in range(5):
        ledger.post_message({"intent": str(number)}, RUN if number % 2 == 0 else OTHER_RUN, "USER")
    ledger.claim_step(RUN, "ann", ttl_seconds=1)
    clock.advance(1)
    assert [step["intent"] for step in ledger.list_steps()] == ["0", "1", "2", "3", "4"]
    assert [step["intent"] for step in ledger.list_steps(RUN)] == ["0", "2", "4"]
    assert [step["intent"] for step in ledger.list_steps(RUN, "PENDING")] == ["2", "4"]
    assert [step["is_expired"] for step in ledger.list_steps(limit=2)] == [True, False]
    page = ledger.list_steps(limit=2)
    assert [step["intent"] for step in ledger.list_steps(after=page[-1]["place"], limit=2)] == ["2", "3"]
    with pytest.raises(CassetteInvalid, match="Invalid status"):
        ledger.list_steps(status="DONE")


@pytest.mark.req("L8")
@pytest.mark.parametrize(
    "wrong", [{"run_id": "\ud800"}, {"run_id": 7}, {"after": -1}, {"after": 2**70}, {"limit": "9"}]
)
def test_a_question_that_makes_no_sense_is_invalid(ledger: MessageCassette, wrong: dict[str, Any]) -> None:
    with pytest.raises(CassetteInvalid, match=next(iter(wrong))):
        ledger.list_steps(**wrong)
