"""A ledger whose caller is interrupted, or calls it from within: it is as it was, and can be used."""

import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from claudemesh.kernel.errors import MessageCassetteError
from claudemesh.ledger import MessageCassette
from claudemesh.runtime import points
from claudemesh.storage.sqlite.transactions import Transactions


class Interrupted(BaseException):
    """As KeyboardInterrupt, which pytest would take for its own."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MessageCassette]:
    with MessageCassette(db_path=tmp_path / "work.db") as opened:
        opened.post_message({"intent": "x"}, "r", "USER")
        yield opened


def is_usable(ledger: MessageCassette) -> bool:
    """Say whether this handle and others can write, and whether nothing was claimed meanwhile."""
    with MessageCassette(db_path=ledger.path) as other:
        other.post_message({"intent": "y"}, "other", "USER")
    return ledger.claim_step("r", "w")["fencing_token"] == 1 and not ledger.find_issues()


@pytest.mark.req("L4")
@pytest.mark.parametrize("method", ["begin", "roll_back", "commit"])
def test_an_interrupt_around_a_statement_leaves_no_transaction_behind(
    ledger: MessageCassette, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    real = getattr(Transactions, method)

    def interrupted(self: Transactions, *args: object) -> None:
        if method == "begin":
            real(self, *args)
        raise Interrupted

    monkeypatch.setattr(Transactions, method, interrupted)
    with pytest.raises(Interrupted):
        ledger.claim_step("r", "w")
    monkeypatch.undo()
    assert is_usable(ledger)


@pytest.mark.req("L4")
def test_a_question_that_is_interrupted_leaves_no_transaction_behind(
    ledger: MessageCassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Transactions) -> None:
        raise Interrupted

    monkeypatch.setattr(Transactions, "roll_back", interrupted)
    with pytest.raises(Interrupted):
        ledger.list_steps()
    monkeypatch.undo()
    assert is_usable(ledger)


@pytest.mark.req("L4")
def test_a_call_from_within_a_call_is_refused_and_waits_for_nobody(ledger: MessageCassette) -> None:
    told: list[str] = []

    def handle(_number: int, _frame: FrameType | None) -> None:
        with pytest.raises(MessageCassetteError, match="by this very thread") as refused:
            ledger.list_steps()
        told.append(str(refused.value))

    before = signal.signal(signal.SIGUSR1, handle)
    points.arm("ledger.before_commit", lambda: signal.raise_signal(signal.SIGUSR1))
    try:
        step = ledger.claim_step("r", "w")
    finally:
        points.disarm_all()
        signal.signal(signal.SIGUSR1, before)
    assert (len(told), step["fencing_token"]) == (1, 1)


@pytest.mark.req("L4")
def test_another_thread_waits_for_its_turn(ledger: MessageCassette) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(30)

    points.arm("ledger.before_commit", pause)
    try:
        claiming = threading.Thread(target=ledger.claim_step, args=("r", "w"))
        claiming.start()
        assert inside.wait(30)
        listing = threading.Thread(target=ledger.list_steps)
        listing.start()
        go_on.set()
        claiming.join(30)
        listing.join(30)
    finally:
        go_on.set()
        points.disarm_all()
    assert not claiming.is_alive()
    assert not listing.is_alive()


@pytest.mark.req("L2")
@pytest.mark.parametrize("look", ["list_steps", "open", "be refused"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_trigger_that_is_back_under_a_forged_cookie_is_heard(
    ledger: MessageCassette, look: str, rounds: int
) -> None:
    step = ledger.claim_step("r", "w")
    trigger = "tr_requeues_insert_guard"
    shell = sqlite3.connect(ledger.path, isolation_level=None)
    [(text,)] = shell.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchall()
    [(first,)] = shell.execute("PRAGMA schema_version").fetchall()
    shell.execute(f"DROP TRIGGER {trigger}")
    victim = MessageCassette(db_path=ledger.path) if look == "open" else ledger
    for n in range(rounds):  # each parses a schema without the trigger; the second under the cookie from before
        victim.list_steps()
        if look == "be refused":
            with pytest.raises(MessageCassetteError, match=trigger):
                victim.requeue_step("r", step["step_id"])
        if n + 1 < rounds:
            shell.execute(f"PRAGMA schema_version = {first}")
    [(cookie,)] = shell.execute("PRAGMA schema_version").fetchall()
    shell.execute("BEGIN")
    shell.execute(text)
    shell.execute(f"PRAGMA schema_version = {cookie}")
    shell.execute("COMMIT")
    shell.close()
    with pytest.raises(MessageCassetteError, match="lease is live"):
        victim.requeue_step("r", step["step_id"])
    victim.close()
