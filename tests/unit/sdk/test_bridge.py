"""A queue worked through a ledger, whatever arrow is the last before a crash."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from claudemesh.kernel.errors import ConnectionLost, LeaseLost, NoDaemon, UnknownDestination
from claudemesh.ledger import MessageCassette
from claudemesh.sdk.bridge import NOTES, LedgerQueue


class Crashed(BaseException):
    """The process is gone."""


@dataclass
class OneMessage:
    """A mesh with one message in its queue, which comes again until it is acked; it can end the world at a call."""

    crash_at: int = 0  # 1 is the first call; its effect has taken place
    calls: int = 0
    token: int = 0
    is_acked: bool = False
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusal: Exception | None = None

    def _crash(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crashed

    def queue_work(self, queue: str) -> dict[str, Any] | None:
        assert queue == "builds"
        leased = None
        if not self.is_acked:
            self.token += 1
            leased = {
                "broker_message_id": "B1",
                "client_message_id": "c1",
                "from": "ab" * 32,
                "from_name": f"alice {self.token}",  # a name may change between two leases
                "body": "do it",
                "lease_token": self.token,
                "lease_expires_at": f"2026-01-31T12:00:00.00{self.token}Z",
            }
        self._crash()
        return leased

    def queue_ack(
        self, queue: str, broker_message_id: str, token: int, *, handed_over: bool = False
    ) -> dict[str, Any]:
        assert (queue, broker_message_id, handed_over) == ("builds", "B1", True)
        if token != self.token:
            raise LeaseLost(reason="stale_token")
        self.is_acked = True
        self._crash()
        return {}

    def send(self, to: str, message: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  passed through
        if self.refusal is not None:
            raise self.refusal
        said = {"to": to, "message": message, **more}
        assert self.replies.setdefault(more["client_message_id"], said) == said  # the same id is the same message
        self._crash()
        return {}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MessageCassette]:
    with MessageCassette(db_path=tmp_path / "work.db") as opened:
        yield opened


Make = Callable[..., LedgerQueue]


@pytest.fixture
def make(ledger: MessageCassette, tmp_path: Path) -> Make:
    def make(mesh: OneMessage, warn: Callable[[str], None] = print) -> LedgerQueue:
        return LedgerQueue(mesh, ledger, "demo", "builds", "bob@demo", tmp_path, warn)

    return make


def work(queue: LedgerQueue) -> None:
    while task := queue.take():
        queue.complete(task, {"ok": True}, "SUCCESS")


@pytest.mark.req("L9")
@pytest.mark.parametrize("crash_at", range(1, 7))
def test_after_a_crash_anywhere_the_message_is_in_the_ledger_once_and_is_answered_once(
    ledger: MessageCassette, make: Make, tmp_path: Path, crash_at: int
) -> None:
    mesh = OneMessage(crash_at=crash_at)
    try:
        work(make(mesh))
    except Crashed:
        work(make(mesh))
    else:
        assert crash_at > mesh.calls  # there are no more calls to crash at
    [step] = ledger.list_steps()
    assert step["status"] == "COMMITTED"
    assert mesh.is_acked
    [reply] = mesh.replies.values()
    assert (reply["to"], reply["reply_to_id"]) == ("ab" * 32, "B1")
    assert reply["meta"] == {"receipt_id": step["receipt_id"], "outcome": "SUCCESS"}
    assert not list((tmp_path / NOTES).iterdir())
    assert ledger.find_issues() == []


@pytest.mark.req("L9")
def test_a_crash_before_the_ack_is_forgotten_by_nobody(ledger: MessageCassette, make: Make, tmp_path: Path) -> None:
    mesh = OneMessage(crash_at=2)
    with pytest.raises(Crashed):
        make(mesh).take()
    assert [path.stem for path in (tmp_path / NOTES).iterdir()] == ["B1"]
    assert [step["status"] for step in ledger.list_steps()] == ["PENDING"]


@pytest.mark.req("L9")
def test_a_receipt_that_somebody_else_wrote_is_sent_too(ledger: MessageCassette, make: Make) -> None:
    mesh = OneMessage()
    queue = make(mesh)
    task = queue.take()
    assert task is not None
    claim = (task.run_id, task.step_id, task.worker_id, task.fencing_token)
    ledger.complete_step(*claim, {}, "ABORTED")
    assert not mesh.replies
    assert queue.answer() == 1
    assert [reply["meta"]["outcome"] for reply in mesh.replies.values()] == ["ABORTED"]
    assert queue.answer() == 0


@pytest.mark.req("L9")
def test_a_reply_waits_while_the_daemon_is_away_and_is_given_up_if_nobody_can_get_it(make: Make) -> None:
    mesh, warned = OneMessage(), list[str]()
    queue = make(mesh, warned.append)
    task = queue.take()
    assert task is not None
    for mesh.refusal in (NoDaemon(), ConnectionLost()):
        with pytest.raises(type(mesh.refusal)):
            queue.complete(task, {}, "SUCCESS") if isinstance(mesh.refusal, NoDaemon) else queue.answer()
    mesh.refusal = UnknownDestination()
    assert queue.answer() == 1
    assert "B1" in warned[0]
    assert queue.answer() == 0


@pytest.mark.req("L9")
def test_whoever_lost_the_lease_of_the_queue_leaves_the_answer_to_whoever_has_it(
    ledger: MessageCassette, make: Make, tmp_path: Path
) -> None:
    mesh = OneMessage()
    leased = mesh.queue_work("builds")
    mesh.queue_work = lambda _: leased  # type: ignore[assignment]  # a worker that slept on what it had
    mesh.token = 2
    make(mesh).take()
    assert not list((tmp_path / NOTES).iterdir())
    assert len(ledger.list_steps()) == 1


def test_notes_of_other_ledgers_are_left_alone_and_strange_ones_are_named(make: Make, tmp_path: Path) -> None:
    mesh = OneMessage()
    queue = make(mesh)
    queue.take()
    note = tmp_path / NOTES / "B1.json"
    other = note.read_text().replace("work.db", "other.db")
    note.write_text(other)
    assert queue.answer() == 0
    assert note.exists()
    note.write_text("{}")
    with pytest.raises(Exception, match=r"B1\.json is not a note"):
        queue.answer()
