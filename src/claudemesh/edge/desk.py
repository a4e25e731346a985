"""Who an operator's question goes to: the relay that runs, or else its file.

Both give the same answers in the same shapes. Only what needs a relay says so: without one nothing is replayed. A
file is looked at by as many as like, and beside a relay that starts; who decides takes the lock of a relay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import orjson

from claudemesh.edge.app import opened_outbox
from claudemesh.edge.asking import TIMEOUT_S, Api, NobodyThere
from claudemesh.edge.metrics import Figures, read_figures
from claudemesh.edge.model import STATES, EnvelopeShown
from claudemesh.edge.operate import Keep, Operating
from claudemesh.edge.stores.sqlite.outbox import SCHEMA, SqliteEnvelopeStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import AlreadyRunning, ConnectionLost, DependencyError, NotFound, StoreCorrupt
from claudemesh.outbox.stores.sqlite.salvage import Salvaged, finish_salvage, is_cut, salvage
from claudemesh.runtime.home import InstanceLock, ensure_private_dir, lock_holder
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.world import World, real_world
from claudemesh.storage.sqlite.database import NotYetOurs

Json = dict[str, Any]
Verb = Literal["retry", "cancel", "mark-dead", "resolve"]
T = TypeVar("T")
Work = Callable[[SqliteEnvelopeStore, Operating], Awaitable[T]]

OUTBOX: Final = "outbox.db"
LOCK: Final = "pid"
PATIENCE_S: Final = 5.0  # with who has the lock: a relay that does not listen yet, or somebody's decision
LOOK_S: Final = 30.0
NO_RELAY: Final = "no relay runs here: start it with `statehub-edge`, and it replays what waits by itself"
DAMAGED: Final = "the relay's outbox is damaged: `statehub outbox recover` saves what can be read"


class Desk(Protocol):
    def status(self) -> Json: ...

    def page(self, state: str | None, after: int, limit: int) -> Json: ...

    def show(self, any_id: str) -> Json: ...

    def decide(self, verb: Verb, any_id: str, by: str, keep: Keep | None = None) -> Json: ...

    def export(self) -> Iterator[Json]: ...

    def import_(self, lines: Sequence[bytes], by: str) -> Json: ...

    def replay(self) -> None: ...


def find_desk(folder: Path) -> Desk:
    """Return the relay if one runs, else its file; DependencyError if who has the lock neither answers nor ends."""
    relay = RelayDesk(folder)
    found: Desk | None = None
    holder: int | None = None

    def is_found() -> bool:
        nonlocal found, holder
        if relay.answers():
            found = relay
        elif (holder := lock_holder(folder / LOCK)) is None:
            found = FileDesk(folder)
        return found is not None

    wait_until(is_found, PATIENCE_S)
    if found is None:
        raise DependencyError(
            f"process {holder or 'unknown'} holds {folder / LOCK} and does not answer on its socket"
        )
    return found


class RelayDesk:
    """A relay that runs, asked on its Unix socket."""

    def __init__(self, folder: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._api = Api.at_socket(folder / "sock")
        self._timeout_s = timeout_s

    def answers(self) -> bool:
        try:
            return self._api.ask("GET", "/health", timeout_s=self._timeout_s).status == 200  # noqa: PLR2004  HTTP's own number
        except (NobodyThere, ConnectionLost):  # none is there, or none is there any more
            return False

    def status(self) -> Json:
        # One of an older version does not tell where it listens.
        return {"running": True, "outbox": "there", "listen": None, **self._ask("GET", "/status")}

    def page(self, state: str | None, after: int, limit: int) -> Json:
        asked = f"after={after}&limit={limit}" + ("" if state is None else f"&state={state}")
        page: Json = self._ask("GET", f"/outbox?{asked}")
        return page

    def show(self, any_id: str) -> Json:
        return _flat(self._ask("GET", f"/outbox/find?id={quote(any_id, safe='')}"))

    def decide(self, verb: Verb, any_id: str, by: str, keep: Keep | None = None) -> Json:
        said = {"by": by} if keep is None else {"by": by, "keep": keep}
        row_id = self.show(any_id)["id"]  # a key may hold what no path can
        return _flat(self._ask("POST", f"/outbox/{row_id}/{verb}", said))

    def export(self) -> Iterator[Json]:
        cursor: int | None = 0
        while cursor is not None:
            page = self._ask("GET", f"/outbox/export?after={cursor}")
            yield from page["items"]
            cursor = page["next_cursor"]

    def import_(self, lines: Sequence[bytes], by: str) -> Json:
        said = {"lines": [orjson.Fragment(line) for line in lines], "by": by}
        done: Json = self._ask("POST", "/outbox/import", said)
        return done

    def replay(self) -> None:
        self._ask("POST", "/replay", {})

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON is anything
        try:
            return self._api.ask(method, path, body, timeout_s=self._timeout_s).checked()
        except NobodyThere as error:
            raise DependencyError(f"the relay stopped meanwhile: {error}") from error


class FileDesk:
    """The file of a relay that does not run. Nobody else has it while something is decided."""

    def __init__(self, folder: Path, world: World | None = None) -> None:
        self._folder = folder
        self._world = real_world() if world is None else world

    def status(self) -> Json:
        figures: Json = {
            "running": False,
            "outbox": "none",
            "upstream": None,
            "listen": None,
            "upstream_reachable": None,
            "upstream_state": "unknown",
            **asdict(Figures()),
            "outbox_usable": True,
        }
        if not self._is_there():
            return figures

        async def count(outbox: SqliteEnvelopeStore, _: Operating) -> Json:
            return asdict(await read_figures(outbox, self._world.steady_ms()))

        try:
            return {**figures, "outbox": "there", **self._look(count)}
        except StoreCorrupt:
            return {**figures, "outbox": "there", "outbox_usable": False}

    def page(self, state: str | None, after: int, limit: int) -> Json:
        async def read(_: SqliteEnvelopeStore, operating: Operating) -> Json:
            found = await operating.page(None if state is None else STATES[state], after, limit)
            cursor = found[-1].seq if len(found) == limit else None
            return {"items": [msgspec.to_builtins(one) for one in found], "next_cursor": cursor}

        return self._look(read) if self._is_there() else {"items": [], "next_cursor": None}

    def show(self, any_id: str) -> Json:
        return self._look(self._shown(lambda operating: operating.show(any_id)))

    def decide(self, verb: Verb, any_id: str, by: str, keep: Keep | None = None) -> Json:
        decisions: dict[Verb, Callable[[Operating], Awaitable[EnvelopeShown]]] = {
            "retry": lambda operating: operating.retry(any_id, by),
            "cancel": lambda operating: operating.cancel(any_id, by),
            "mark-dead": lambda operating: operating.mark_dead(any_id, by),
            "resolve": lambda operating: operating.resolve(any_id, keep or "theirs", by),
        }
        return self._change(self._shown(decisions[verb]))

    def export(self) -> Iterator[Json]:
        cursor: int | None = 0 if self._is_there() else None
        while cursor is not None:
            after = cursor

            async def read(_: SqliteEnvelopeStore, operating: Operating, after: int = after) -> tuple[Any, Any]:
                return await operating.export(after)

            items, cursor = self._look(read)
            yield from (orjson.loads(msgspec.json.encode(one)) for one in items)

    def import_(self, lines: Sequence[bytes], by: str) -> Json:
        async def write(_: SqliteEnvelopeStore, operating: Operating) -> Json:
            done: Json = await operating.import_(lines, by)
            return done

        ensure_private_dir(self._folder)
        return self._change(write)

    def replay(self) -> None:
        raise DependencyError(NO_RELAY)

    def _is_there(self) -> bool:
        return (self._folder / OUTBOX).exists()

    def _shown(self, ask: Callable[[Operating], Awaitable[EnvelopeShown]]) -> Work[Json]:
        async def run(_: SqliteEnvelopeStore, operating: Operating) -> Json:
            return _flat(msgspec.to_builtins(await ask(operating)))

        if not self._is_there():
            raise NotFound("there is no such envelope: no relay has queued anything here")
        return run

    def _look(self, work: Work[T]) -> T:
        return asyncio.run(self._looked(work))

    def _change(self, work: Work[T]) -> T:
        return asyncio.run(self._opened(work))

    async def _looked(self, work: Work[T]) -> T:
        """Answer from the file as it is: without the lock, which the next look and the next relay want, too."""
        path = self._folder / OUTBOX
        if not is_cut(path):
            with suppress(NotYetOurs):
                try:
                    with SqliteEnvelopeStore.looked_at(path, self._world.clock, LOOK_S) as outbox:
                        return await work(outbox, self._operating(outbox))
                except StoreCorrupt as error:
                    raise StoreCorrupt(DAMAGED) from error
        return await self._opened(work)  # it is to be changed before it can be read

    async def _opened(self, work: Work[T]) -> T:
        with InstanceLock(self._folder / LOCK, PATIENCE_S):
            log = JsonLog(self._world.clock, self._folder / "edge.log", stderr=False)
            log.attach(self._world.observer)  # who decided what is written down wherever it was decided
            try:
                async with opened_outbox(self._folder / OUTBOX, self._world) as outbox:
                    if outbox is None:
                        raise StoreCorrupt(DAMAGED)
                    return await work(outbox, self._operating(outbox))
            finally:
                log.close()

    def _operating(self, outbox: SqliteEnvelopeStore) -> Operating:
        return Operating(outbox, lambda _: None, self._world)


def recover_outbox(folder: Path, clock: Clock) -> Salvaged | None:
    """Recover the outbox of a relay that does not run; None if it is sound, or not there."""
    path = folder / OUTBOX
    with suppress(FileNotFoundError):
        try:
            with InstanceLock(folder / LOCK):
                finish_salvage(path)
                if not path.exists():
                    return None
                try:
                    SqliteEnvelopeStore.open(path).close()
                except StoreCorrupt:
                    return salvage(path, SCHEMA, str(clock.wall_ms()))
        except AlreadyRunning as error:
            raise AlreadyRunning(
                "stop the relay first: it holds the damaged file, and goes on forwarding until then", **error.extras
            ) from error
    return None


def _flat(shown: Json) -> Json:
    """Return one envelope as it is printed: what a list shows of it, and beside that all the rest."""
    seen: Json = shown["seen"]
    return {**seen, **{name: value for name, value in shown.items() if name != "seen"}}
