"""A queue worked through a ledger, whatever arrow is the last before a crash."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from claudemesh.kernel.errors import (
    BrokerUnreachable,
    CassetteInvalid,
    LeaseLost,
    MessageCassetteError,
    NotFound,
    UnknownDestination,
)
from claudemesh.ledger import MessageCassette
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from claudemesh.sdk.bridge import RECEIPT_BYTES_MAX, LedgerQueue
from claudemesh.sdk.notes import FOLDER, is_noted, read_all


class Crashed(BaseException):
    """The process is gone."""


@dataclass
class OneMessage:
    """A mesh with one message in its queue, as a broker has it; it can end the world at a call, or before it."""

    crash_at: int = 0  # 1 is the first call
    before: bool = False  # its effect has not taken place
    calls: int = 0
    token: int = 0
    is_held: bool = False
    is_settled: bool = False
    is_acted: bool = False
    is_swept: bool = False
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusal: Exception | None = None  # of whatever is sent

    def _call(self, effect: Callable[[], Any]) -> Any:  # noqa: ANN401  what the effect gives
        self.calls += 1
        if self.calls == self.crash_at and self.before:
            raise Crashed
        found = effect()
        if self.calls == self.crash_at:
            raise Crashed
        return found

    def expire(self) -> None:
        self.is_held = False

    def queue_work(self, queue: str) -> dict[str, Any] | None:
        assert queue == "builds"
        return self._call(self._lease)

    def _lease(self) -> dict[str, Any] | None:
        if self.is_held or self.is_settled:
            return None
        self.is_held, self.token = True, self.token + 1
        return {
            "broker_message_id": "B1",
            "client_message_id": "c1",
            "from": "ab" * 32,
            "from_name": f"alice {self.token}",  # a name may change between two leases
            "body": "do it",
            "lease_token": self.token,
            "lease_expires_at": f"2026-01-31T12:00:00.00{self.token}Z",
        }

    def queue_ack(
        self, queue: str, broker_message_id: str, token: int, *, handed_over: bool = False
    ) -> dict[str, Any]:
        assert (queue, broker_message_id) == ("builds", "B1")
        return self._call(lambda: self._ack(token, handed_over=handed_over))

    def _ack(self, token: int, *, handed_over: bool) -> dict[str, Any]:
        if self.is_swept:
            raise NotFound
        if token != self.token or not (self.is_held or self.is_settled):
            raise LeaseLost(reason="stale_token")
        self.is_settled = True
        self.is_acted = self.is_acted or not handed_over
        return {}

    def send(self, to: str, message: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  passed through
        return self._call(lambda: self._send({"to": to, "message": message, **more}))

    def _send(self, said: dict[str, Any]) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        is_new = said["client_message_id"] not in self.replies
        assert self.replies.setdefault(said["client_message_id"], said) == said  # the same id is the same message
        if is_new and self.is_settled and said["reply_to_id"] == "B1":  # one that comes earlier does not count
            self.is_acted = True
        return {}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MessageCassette]:
    with MessageCassette(db_path=tmp_path / "work.db") as opened:
        yield opened


Make = Callable[..., LedgerQueue]


@pytest.fixture
def make(ledger: MessageCassette, tmp_path: Path) -> Make:
    def make(
        mesh: OneMessage, warn: Callable[[str], None] = print, through: MessageCassette = ledger
    ) -> LedgerQueue:
        return LedgerQueue(mesh, through, "demo", "builds", "bob@demo", tmp_path, warn)

    return make


def work(queue: LedgerQueue) -> None:
    while task := queue.take():
        queue.complete(task, {"ok": True}, "SUCCESS")


def notes(folder: Path) -> list[tuple[str, int]]:
    """Return the messages that are noted, each with the token of the lease."""
    found = read_all(folder, print)
    return sorted((note.broker_message_id, note.lease_token) for note in found)


@pytest.mark.req("L9")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("expires", [True, False])
@pytest.mark.parametrize("crash_at", range(1, 7))
def test_after_a_crash_anywhere_the_message_is_in_the_ledger_once_and_is_answered_once(  # noqa: PLR0913  cases
    ledger: MessageCassette, make: Make, tmp_path: Path, crash_at: int, *, before: bool, expires: bool
) -> None:
    mesh = OneMessage(crash_at, before)
    try:
        work(make(mesh))
    except Crashed:
        if expires:
            mesh.expire()
        work(make(mesh))
        mesh.expire()  # what a crash left leased
        work(make(mesh))
    else:
        assert crash_at > mesh.calls  # there are no more calls to crash at
    [step] = ledger.list_steps()
    assert step["status"] == "COMMITTED"
    assert mesh.is_acted
    [reply] = mesh.replies.values()
    assert (reply["to"], reply["reply_to_id"]) == ("ab" * 32, "B1")
    assert reply["meta"] == {"receipt_id": step["receipt_id"], "outcome": "SUCCESS"}
    assert notes(tmp_path) == []
    assert ledger.find_issues() == []


@pytest.mark.req("L9")
def test_what_is_about_to_be_acked_is_noted_before(ledger: MessageCassette, make: Make, tmp_path: Path) -> None:
    with pytest.raises(Crashed):
        make(OneMessage(crash_at=2, before=True)).take()
    assert notes(tmp_path) == [("B1", 1)]
    assert is_noted(tmp_path, "B1")
    assert not is_noted(tmp_path, "B")
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
def test_a_reply_waits_while_nobody_can_be_reached_and_the_step_is_done_all_the_same(
    ledger: MessageCassette, make: Make, tmp_path: Path
) -> None:
    mesh, warned = OneMessage(), list[str]()
    queue = make(mesh, warned.append)
    task = queue.take()
    assert task is not None
    mesh.refusal = BrokerUnreachable()
    receipt_id = queue.complete(task, {}, "SUCCESS")
    assert [step["receipt_id"] for step in ledger.list_steps()] == [receipt_id]
    assert queue.answer() == 0
    assert all("will be sent later" in warning for warning in warned)
    assert notes(tmp_path) == [("B1", 1)]
    mesh.refusal = None
    assert queue.answer() == 1
    assert mesh.is_acted


@pytest.mark.req("L9")
def test_a_sender_who_is_gone_gets_no_reply_and_its_message_is_done(make: Make, tmp_path: Path) -> None:
    mesh, warned = OneMessage(refusal=UnknownDestination()), list[str]()
    work(make(mesh, warned.append))
    assert mesh.is_acted
    assert ["B1" in warning for warning in warned] == [True]
    assert notes(tmp_path) == []


@pytest.mark.req("L9")
def test_a_receipt_too_large_for_a_message_stays_in_the_ledger_and_the_reply_says_so(make: Make) -> None:
    mesh = OneMessage()
    queue = make(mesh)
    task = queue.take()
    assert task is not None
    queue.complete(task, {"log": "x" * RECEIPT_BYTES_MAX}, "SUCCESS")
    [reply] = mesh.replies.values()
    assert len(reply["message"]) < 1000
    assert '"is_too_large": true' in reply["message"]
    assert mesh.is_acted


@pytest.mark.req("L9")
def test_a_worker_that_lost_the_queues_lease_leaves_the_answer_and_the_note_to_whoever_has_it(
    ledger: MessageCassette, make: Make, tmp_path: Path
) -> None:
    mesh = OneMessage()
    slow = mesh.queue_work("builds")
    mesh.expire()
    quick = make(mesh)
    task = quick.take()
    mesh.queue_work = lambda _: slow  # type: ignore[method-assign]  # it slept on what it had
    make(mesh).take()
    assert notes(tmp_path) == [("B1", 2)]
    assert len(ledger.list_steps()) == 1
    assert task is not None
    quick.complete(task, {}, "SUCCESS")
    assert mesh.is_acted


@pytest.mark.req("L9")
def test_the_queue_is_not_asked_before_the_ledger_would_take_a_message(
    make: Make, ledger: MessageCassette, tmp_path: Path
) -> None:
    mesh = OneMessage()
    with pytest.raises(CassetteInvalid, match="ttl_seconds"):
        make(mesh).take(-1)
    LedgerFile.open(tmp_path / "old.db", version=1).close()
    with MessageCassette(db_path=tmp_path / "old.db") as old, pytest.raises(MessageCassetteError, match="upgrade"):
        make(mesh, through=old).take()
    with sqlite3.connect(ledger.path) as shell:
        shell.execute("DROP TRIGGER tr_jobs_sealed")
    with pytest.raises(MessageCassetteError, match="tr_jobs_sealed"):
        make(mesh).take()
    assert mesh.calls == 0


@pytest.mark.req("L9")
def test_while_the_queue_cannot_be_asked_what_the_ledger_has_is_worked_on(
    ledger: MessageCassette, make: Make
) -> None:
    mesh, warned = OneMessage(), list[str]()

    def refuse(_: str) -> None:
        raise BrokerUnreachable

    mesh.queue_work = refuse  # type: ignore[method-assign, assignment]
    queue = make(mesh, warned.append)
    with pytest.raises(BrokerUnreachable):
        queue.take()
    ledger.post_message({"intent": "x", "body": "left from before"}, queue.run_id, "SYSTEM")
    task = queue.take()
    assert task is not None
    assert task.message["body"] == "left from before"
    assert "cannot be asked" in warned[0]


def test_the_same_ledger_by_another_path_is_the_same(make: Make, tmp_path: Path) -> None:
    mesh = OneMessage()
    task = make(mesh).take()
    assert task is not None
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with MessageCassette(db_path=tmp_path / "link" / "work.db") as again:
        make(mesh, through=again).complete(task, {}, "SUCCESS")
    assert mesh.is_acted


def test_notes_of_other_ledgers_and_strange_ones_are_left_alone(make: Make, tmp_path: Path) -> None:
    mesh, warned = OneMessage(), list[str]()
    queue = make(mesh, warned.append)
    task = queue.take()
    assert task is not None
    with MessageCassette(db_path=tmp_path / "other.db") as other:
        assert make(mesh, through=other).answer() == 0
    for text in ("{}", "nonsense"):
        strange = tmp_path / FOLDER / "A0.1.json"
        strange.write_text(text)
        strange.chmod(0o600)
        assert queue.answer() == 0
    assert all("A0.1.json is not a note" in warning for warning in warned)
    queue.complete(task, {}, "SUCCESS")
    assert mesh.is_acted
    assert notes(tmp_path) == []
    assert strange.exists()


@pytest.mark.parametrize("payload", ["text", ["a", "list"], {"no": "message"}])
def test_what_others_posted_in_the_queues_run_is_handed_out_as_it_is(
    ledger: MessageCassette, make: Make, payload: object
) -> None:
    queue = make(OneMessage())
    ledger.post_message({"jobs": [{"intent": "by hand", "steps": [payload]}]}, queue.run_id, "USER")
    work(queue)
    assert [step["status"] for step in ledger.list_steps()] == ["COMMITTED", "COMMITTED"]


def test_an_id_of_the_brokers_is_no_part_of_a_path_and_a_receipt_may_hold_anything(
    ledger: MessageCassette, make: Make, tmp_path: Path
) -> None:
    mesh = OneMessage()
    leased = {**(mesh.queue_work("builds") or {}), "broker_message_id": "../../up/" + "x" * 300}
    answers = [leased, None, None]
    mesh.queue_work = lambda _: answers.pop(0)  # type: ignore[method-assign]
    mesh.queue_ack = lambda *_, **__: {}  # type: ignore[method-assign]
    queue = make(mesh)
    task = queue.take()
    assert task is not None
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    assert is_noted(tmp_path, leased["broker_message_id"])
    with sqlite3.connect(ledger.path) as shell:
        shell.execute(
            "INSERT INTO cassette_receipts VALUES ('r', ?, ?, ?, 1, 'SUCCESS', ?,"
            " strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            (task.step_id, task.step_id.rpartition(".")[0], task.worker_id, '"\\ud800"'),
        )
    assert queue.answer() == 1
    assert len(mesh.replies) == 1


def test_a_message_that_the_broker_no_longer_keeps_is_answered_no_more(make: Make, tmp_path: Path) -> None:
    mesh = OneMessage()
    queue = make(mesh)
    task = queue.take()
    assert task is not None
    mesh.is_swept = True
    queue.complete(task, {}, "SUCCESS")
    assert (mesh.replies, notes(tmp_path)) == ({}, [])
