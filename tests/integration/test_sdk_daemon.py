"""The SDK with a real daemon that has no broker to talk to; each test runs with both kinds of mesh."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from claudemesh import AsyncMesh, Draft, Mesh
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    CursorAhead,
    CursorExpired,
    DeadlineExceeded,
    IdempotencyConflict,
    NoDaemon,
    UnknownDestination,
)
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.keys import KeyPair
from claudemesh.sdk.find import Place
from claudemesh.wire.frames import DeliverItem
from tests.mesh import LocalDaemon, local_daemon
from tests.unit.sdk.running import Background, Blocked, BreakingLine

BOB = "b" * 64


class House:
    """A daemon that can be started and stopped, and meshes that talk to it."""

    def __init__(self, kind: str, state_dir: Path, background: Background) -> None:
        self._kind = kind
        self._background = background
        self._keys = KeyPair.generate()
        self.state_dir = state_dir

    @contextmanager
    def daemon(self) -> Iterator[LocalDaemon]:
        with self._background.inside(local_daemon(self.state_dir, keys=self._keys)) as daemon:
            yield daemon

    @contextmanager
    def mesh(self, sock: Path | None = None) -> Iterator[Mesh]:
        place = Place("demo", sock or self.state_dir / "sock")
        if self._kind == "sync":
            with Mesh.at(place) as mesh:
                yield mesh
        else:
            with Blocked(AsyncMesh.at(place), self._background) as blocked:
                yield blocked

    def rows(self, daemon: LocalDaemon) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._background.run(daemon.get("/v1/outbox"))["rows"]
        return rows

    def receive(self, bodies: Sequence[str]) -> None:
        """Put messages into the inbox while no daemon runs, as if they had come."""

        async def store() -> None:
            now = SystemClock().wall_ms()
            inbox = SqliteInboxStore.open(self.state_dir / "inbox.db")
            try:
                await inbox.receive([_delivered(body, now) for body in bodies], now)
            finally:
                inbox.close()

        self._background.run(store())


def _delivered(body: str, now: int) -> DeliverItem:
    return DeliverItem(
        history_id=int(body),
        broker_message_id=f"b{body}",
        client_message_id=f"m{body}",
        sender_id="01" + "C" * 24,
        sender_pubkey=BOB,
        sender_name="bob",
        kind=Kind.DM,
        ref="a" * 64,
        body=body,
        accepted_at=now,
    )


@pytest.fixture(params=["sync", "async"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    with Background() as background:
        yield House(request.param, tmp_path / "demo", background)


# --- sending -----------------------------------------------------------------------------------------


@pytest.mark.req("D1", "C2")
def test_a_send_is_queued_durably_while_there_is_no_broker(house: House) -> None:
    with house.daemon() as daemon, house.mesh() as mesh:
        receipt = mesh.send(BOB, "hello")
        assert (receipt.status, receipt.state) == ("queued", "queued")
        assert [row["client_message_id"] for row in house.rows(daemon)] == [receipt.client_message_id]
        assert mesh.health().queue_depth == 1
    with house.daemon(), house.mesh() as mesh:
        assert mesh.trace(receipt.client_message_id).state == "queued", "also after a restart"


@pytest.mark.req("D3", "D4")
def test_an_id_that_stands_for_something_else_is_a_conflict(house: House) -> None:
    with house.daemon() as daemon, house.mesh() as mesh:
        assert mesh.send(BOB, "hello", id="build-42").duplicate is False
        assert mesh.send(BOB, "hello", id="build-42").status in ("queued", "inflight")
        with pytest.raises(IdempotencyConflict) as caught:
            mesh.send(BOB, "other", id="build-42")
        assert caught.value.conflict.endswith("_fingerprint_mismatch")
        assert len(house.rows(daemon)) == 1


@pytest.mark.req("C2", "F1")
def test_an_answer_that_was_lost_after_the_commit_makes_no_second_row(house: House, tmp_path: Path) -> None:
    with (
        house.daemon() as daemon,
        BreakingLine(tmp_path / "line", house.state_dir / "sock") as line,
        house.mesh(line.path) as mesh,
    ):
        line.to_lose = 2
        receipt = mesh.send(BOB, "hello")
        assert len(line.lost) == 2
        assert all(b" 202 " in answer for answer in line.lost), "the daemon had said yes each time"
        assert [row["client_message_id"] for row in house.rows(daemon)] == [receipt.client_message_id]


@pytest.mark.req("D17")
def test_a_batch_whose_answer_was_lost_makes_no_second_rows(house: House, tmp_path: Path) -> None:
    with (
        house.daemon() as daemon,
        BreakingLine(tmp_path / "line", house.state_dir / "sock") as line,
        house.mesh(line.path) as mesh,
    ):
        line.to_lose = 1
        first, refused, second = mesh.send_many([Draft(BOB, "1"), Draft("nobody", "2"), Draft("queue:jobs", "3")])
        assert isinstance(refused, UnknownDestination)
        sent = [first.client_message_id, second.client_message_id]
        assert [row["client_message_id"] for row in house.rows(daemon)] == sent


@pytest.mark.req("Q6")
def test_a_wait_that_runs_out_says_that_the_message_is_still_queued(house: House) -> None:
    with house.daemon(), house.mesh() as mesh:
        receipt = mesh.send(BOB, "hello")
        with pytest.raises(DeadlineExceeded) as caught:
            receipt.wait("delivered", timeout=0.3)
        assert caught.value.extras["state"] == "queued"


@pytest.mark.req("C2")
def test_a_stopped_daemon_is_an_error_that_names_the_command_and_a_started_one_is_found(house: House) -> None:
    with house.mesh() as mesh:
        with house.daemon():
            mesh.send(BOB, "hello")
        with pytest.raises(NoDaemon, match="daemon up"):
            mesh.send(BOB, "hello")
        with house.daemon():
            mesh.send(BOB, "hello")


def test_what_only_a_broker_can_answer_says_so(house: House) -> None:
    with house.daemon(), house.mesh() as mesh:
        with pytest.raises(BrokerUnreachable):
            mesh.topics()
        with pytest.raises(BrokerUnreachable):
            mesh.queue("jobs").work()
        assert mesh.peers() == []


# --- receiving ---------------------------------------------------------------------------------------


@pytest.mark.req("D14")
def test_an_inbox_of_many_pages_is_one_iteration(house: House) -> None:
    with house.daemon():
        pass
    house.receive([str(number) for number in range(1, 251)])
    with house.daemon(), house.mesh() as mesh:
        assert [message.body for message in mesh.inbox()] == [str(number) for number in range(1, 251)]
        assert [message.body for message in mesh.search("77")] == ["77"]
        mesh.mark_read([next(iter(mesh.inbox())), "b3"])
        assert [message.body for message in mesh.inbox(unread=True)][:3] == ["2", "4", "5"]


@pytest.mark.req("Q7")
def test_messages_come_once_each_and_in_order_over_restarts_of_the_daemon(house: House) -> None:
    with house.daemon():
        pass
    house.receive(["1", "2"])
    with house.mesh() as mesh:
        with house.daemon():
            first, _ = mesh.inbox()
            messages = mesh.messages(after=first.cursor, timeout=30)
            assert next(messages).body == "2"
        for bodies in (["3", "4"], ["5"]):
            house.receive(bodies)
            with house.daemon():
                assert [next(messages).body for _ in bodies] == bodies
        messages.close()


@pytest.mark.req("Q7")
def test_a_cursor_from_elsewhere_is_told(house: House) -> None:
    with house.daemon():
        pass
    house.receive(["1"])
    with house.daemon(), house.mesh() as mesh:
        epoch = next(iter(mesh.inbox())).cursor.partition(".")[0]
        with pytest.raises(CursorAhead):
            mesh.events(after=f"{epoch}.99999")
        with pytest.raises(CursorExpired):
            mesh.events(after="0123456789abcdef.1")
