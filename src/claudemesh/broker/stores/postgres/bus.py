"""What the brokers of one database tell each other, by LISTEN and NOTIFY.

Telling never holds anybody up: what is published gathers, and a task sends it, apart from any accept. While no
other broker runs nothing is sent. One that begins says hello, and is answered with 'missed', so that it looks once
at what was told before it was known.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import Final

from claudemesh.broker.model import Bulletin
from claudemesh.broker.stores.postgres.notices import Gathered, Hello, Missed, Notice, parse, render
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.dice import roll
from claudemesh.runtime.tokens import fresh_token
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.connection import bounded, connect
from claudemesh.storage.postgres.errors import translated
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "bus.sql")

PROBE_S: Final = 5.0
BACKOFF_S: Final = (0.1, 5.0)  # the first, and the longest


class PostgresBus:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = ""
        self.channel = ""
        self._others_run = False
        self._has_listened = False
        self._gathered = Gathered()
        self._bell = asyncio.Event()
        self._sending = asyncio.Lock()  # what is on its way gets there
        self._tasks: list[asyncio.Task[None]] = []
        self._heard: Callable[[Bulletin], None] = _ignore
        self._missed: Callable[[], None] = _ignore_missed

    @property
    def is_alone(self) -> bool:
        return False

    async def begin(self, name: str) -> None:
        """Tell as this broker from now on."""
        self._name = name
        await self._database.fetch(_SQL["offer_channel"], f"claudemesh_{fresh_token()}".encode())
        self.channel = bytes((await self._database.fetch(_SQL["channel"]))[0][0]).decode()
        self._tasks.append(asyncio.get_running_loop().create_task(self._send()))

    def note_others(self, others_run: bool) -> None:  # noqa: FBT001  a switch
        self._others_run = others_run

    def publish(self, bulletin: Bulletin) -> None:
        if self._others_run:
            self._gather(bulletin)

    def listen(self, heard: Callable[[Bulletin], None], missed: Callable[[], None]) -> None:
        self._heard, self._missed = heard, missed
        self._tasks.append(asyncio.get_running_loop().create_task(self._listen()))

    async def aclose(self) -> None:
        """Tell what still waits to be told, and stop."""
        async with self._sending:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._gathered:
            with suppress(MeshError):
                await self._flush()

    # --- telling -----------------------------------------------------------------------------------

    def _gather(self, notice: Notice) -> None:
        self._gathered.add(notice)
        self._bell.set()

    async def _send(self) -> None:
        pause_s, longest_s = BACKOFF_S
        while True:
            await self._bell.wait()
            self._bell.clear()
            try:
                async with self._sending:
                    await self._flush()
                pause_s = BACKOFF_S[0]
            except Exception:  # noqa: BLE001  whatever it was: without this task no hint would leave any more
                self._gathered.miss()
                self._bell.set()
                await asyncio.sleep(pause_s * (1 + roll()) / 2)
                pause_s = min(2 * pause_s, longest_s)

    async def _flush(self) -> None:
        payloads = render(self._name, self._gathered.take())

        async def notify(connection: Connection) -> None:
            await connection.execute("SET LOCAL synchronous_commit = off")  # nothing is promised by a hint
            await connection.fetch(_SQL["notify"], self.channel, payloads)

        await self._database.transact(notify)

    # --- hearing -----------------------------------------------------------------------------------

    async def _listen(self) -> None:
        pause_s, longest_s = BACKOFF_S
        while True:
            with suppress(Exception):  # as above
                connection = await connect(self._database.endpoint)
                pause_s = BACKOFF_S[0]
                try:
                    await self._attend(connection)
                finally:
                    connection.terminate()
            await asyncio.sleep(pause_s * (1 + roll()) / 2)
            pause_s = min(2 * pause_s, longest_s)

    async def _attend(self, connection: Connection) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        with bounded(connection, PROBE_S), translated():
            await connection.add_listener(self.channel, self._on_notification)
        self._gather(Hello())
        if self._has_listened:
            self._missed()
        self._has_listened = True
        while not lost.is_set():
            try:
                async with asyncio.timeout(PROBE_S):
                    await lost.wait()
            except TimeoutError:
                with bounded(connection, PROBE_S), translated():
                    await connection.fetchval(_SQL["probe"])

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        notification = parse(str(payload))
        if notification is None:  # of a newer broker, perhaps
            self._missed()
            return
        if notification.broker == self._name:
            return
        self._others_run = True
        for notice in notification.notices:
            match notice:
                case Hello():
                    self._gather(Missed())
                case Missed():
                    self._missed()
                case _:
                    self._heard(notice)


def _ignore(_bulletin: Bulletin) -> None: ...


def _ignore_missed() -> None: ...
