"""Asking for a look: one question at a time, each with a deadline, and nothing that changes anything.

A daemon that does not answer is asked one question a look. A relay is asked only while it runs: to look through a
file that is large takes longer than a picture may.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from claudemesh.cli.top.picture import Counters, Json, Look, read_counters
from claudemesh.daemon.client.connection import how_to_start
from claudemesh.edge.desk import RelayDesk
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import DependencyError, MeshError, NoDaemon

if TYPE_CHECKING:
    from claudemesh.daemon.client import Client
    from claudemesh.ledger import MessageCassette

T = TypeVar("T")

DEADLINE_S: Final = 2.0
ROWS_MAX: Final = 100  # of each table: more is for the commands that list
OPERATORS: Final = ("conflict", "dead")  # states in which an envelope waits for one
OPEN: Final = ("LEASED", "PENDING")


class Looker:
    """Looks at one daemon, the relay and the ledger of one home."""

    def __init__(self, slug: str, client: "Client", edge_dir: Path, ledger: Path, clock: Clock) -> None:
        self._slug = slug
        self._client = client
        self._relay_dir = edge_dir
        self._ledger_path = ledger
        self._ledger: MessageCassette | None = None
        self._clock = clock
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._client.close()
            if self._ledger is not None:
                self._ledger.close()

    def look(self) -> Look:
        with self._turn:
            return self._look()

    def trace(self, client_message_id: str) -> Json:
        """Return the life of a message; raises what the daemon says."""
        with self._turn:
            return self._client.trace(client_message_id)

    def envelope(self, envelope_id: str) -> Json:
        """Return all that the relay keeps of an envelope."""
        with self._turn:
            return RelayDesk(self._relay_dir, DEADLINE_S).show(envelope_id)

    def _look(self) -> Look:
        errors: dict[str, str] = {}
        client = self._client

        def ask(name: str, question: Callable[[], T]) -> T | None:
            try:
                return question()
            except (MeshError, OSError) as error:
                errors[name] = _why(error, self._slug)
                return None

        health = ask("daemon", client.health)
        told: dict[str, Any] = {}
        if health is not None:
            told = {
                "counters": ask("metrics", lambda: _counters(client)),
                "dead": ask("dead", lambda: client.outbox_list(failed=True, limit=ROWS_MAX)["rows"]),
                "peers": ask("peers", lambda: client.peers(every=True)["peers"]),
                "queues": ask("queues", lambda: client.queue_list()["queues"]),
            }
        relay, envelopes = ask("relay", self._ask_relay) or (None, None)
        return Look(
            at_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
            health=health,
            relay=relay,
            envelopes=envelopes,
            steps=ask("ledger", self._ask_ledger),
            errors=errors,
            **told,
        )

    def _ask_relay(self) -> tuple[Json | None, list[Json] | None]:
        desk = RelayDesk(self._relay_dir, DEADLINE_S)
        if not desk.answers():
            if (self._relay_dir / "outbox.db").exists():
                raise DependencyError("it does not run; `statehub outbox status` says what waits in its file")
            return None, None
        pages = [desk.page(state, 0, ROWS_MAX)["items"] for state in OPERATORS]
        return desk.status(), [item for page in pages for item in page]

    def _ask_ledger(self) -> list[Json] | None:
        if self._ledger is None:
            if not self._ledger_path.exists():
                return None
            from claudemesh.ledger import MessageCassette  # noqa: PLC0415 - only where there is one

            self._ledger = MessageCassette(db_path=self._ledger_path, create=False)
        try:
            return [step for status in OPEN for step in self._ledger.list_steps(status=status, limit=ROWS_MAX)]
        except MeshError:
            with suppress(MeshError):
                self._ledger.close()
            self._ledger = None  # it may have been replaced: the next look opens what is there then
            raise


def _counters(client: "Client") -> Counters:
    return read_counters(client.metrics())


def _why(error: MeshError | OSError, slug: str) -> str:
    if isinstance(error, NoDaemon):
        return f"no daemon answers: {how_to_start(slug)}"
    if isinstance(error, MeshError):
        return f"{error.title}: {error.detail}" if error.detail else error.title
    return error.strerror or str(error)
