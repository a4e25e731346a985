"""What the same id means in every state of a row, and how a row moves."""

import pytest

from claudemesh.kernel.admission import AdmissionTable, Busy, Conflict, Fresh, Match, Replay, Standing
from claudemesh.kernel.errors import TransitionRefused
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.outbox import ADMISSION, MACHINE, OutboxEvent, OutboxState, derive_event

MINE = Fingerprint(b"\1" * 32)
THEIRS = Fingerprint(b"\2" * 32)

# The accept table of the contract, written out a second time and on purpose: state, same, other.
ACCEPT_TABLE = """
pending   Busy queued                                  Conflict outbox_pending_fingerprint_mismatch
inflight  Busy inflight                                Conflict outbox_inflight_fingerprint_mismatch
done      Replay accepted                              Conflict outbox_done_fingerprint_mismatch
conflict  Busy conflict                                Conflict outbox_conflict_fingerprint_mismatch
dead      Conflict outbox_dead_fingerprint_match       Conflict outbox_dead_fingerprint_mismatch
aborted   Conflict outbox_aborted_fingerprint_match    Conflict outbox_aborted_fingerprint_mismatch
"""
ROWS = [line.split() for line in ACCEPT_TABLE.strip().splitlines()]
VERDICTS = {"Busy": Busy, "Replay": Replay, "Conflict": Conflict}


@pytest.mark.req("D3")
def test_a_free_id_is_fresh() -> None:
    assert ADMISSION.judge(None, MINE) == Fresh()


@pytest.mark.req("D3")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_id_that_stands_is_judged_by_the_accept_table(row: list[str]) -> None:
    state, same, same_word, other, other_word = row
    standing = Standing(OutboxState(state), MINE)
    assert ADMISSION.judge(standing, MINE) == VERDICTS[same](same_word)
    assert ADMISSION.judge(standing, THEIRS) == VERDICTS[other](other_word)


@pytest.mark.req("D3")
def test_the_accept_table_speaks_of_every_state() -> None:
    assert [row[0] for row in ROWS] == list(OutboxState)


def test_a_table_that_forgot_a_state_is_never_built() -> None:
    rows = {key: value for key, value in ADMISSION.rows.items() if key != (OutboxState.DEAD, Match.OTHER)}
    with pytest.raises(ValueError, match="dead/other"):
        AdmissionTable(OutboxState, rows)


# What may happen to a row, as a drawing: every pair that is not here is refused.
MOVES = """
pending   claimed   inflight
pending   accepted  done
pending   expired   dead
pending   retired   aborted
pending   condemned dead
inflight  accepted  done
inflight  failed    pending
inflight  refused   dead
inflight  conflicted conflict
conflict  reopened  pending
conflict  retired   aborted
conflict  condemned dead
dead      accepted  done
dead      retired   aborted
"""
ALLOWED = {tuple(line.split()[:2]): line.split()[2] for line in MOVES.strip().splitlines()}


@pytest.mark.parametrize("state", OutboxState)
@pytest.mark.parametrize("event", OutboxEvent)
def test_every_pair_of_state_and_event_moves_as_drawn_or_is_refused(state: OutboxState, event: OutboxEvent) -> None:
    expected = ALLOWED.get((state.value, event.value))
    if expected is None:
        with pytest.raises(TransitionRefused):
            MACHINE.step(state, event)
    else:
        assert MACHINE.step(state, event) == expected


@pytest.mark.req("D7")
@pytest.mark.parametrize(
    ("statuses", "event"),
    [
        ([200, 201], OutboxEvent.ACCEPTED),
        ([None, 408, 425, 429, 500, 502, 503, 504, 599], OutboxEvent.FAILED),
        ([100, 204, 302, 304], OutboxEvent.FAILED),
        ([400, 401, 403, 404, 409, 413, 422, 499], OutboxEvent.REFUSED),
    ],
)
def test_the_brokers_answer_says_what_happened(statuses: list[int | None], event: OutboxEvent) -> None:
    assert {derive_event(status) for status in statuses} == {event}
