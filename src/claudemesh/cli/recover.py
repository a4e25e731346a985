"""`daemon recover`: what can be read of a damaged outbox is saved into a new one; the damaged file is kept."""

from pathlib import Path

from claudemesh.daemon.stores.sqlite.outbox import SCHEMA, SqliteOutboxStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import StoreCorrupt
from claudemesh.outbox.stores.sqlite.salvage import Salvaged, finish_salvage, salvage
from claudemesh.runtime.home import InstanceLock


def recover_outbox(state_dir: Path, clock: Clock) -> Salvaged | None:
    """Recover the outbox of a daemon that does not run; None if it is sound."""
    with InstanceLock(state_dir / "pid"):
        path = state_dir / "outbox.db"
        finish_salvage(path)
        if not path.exists():
            return None
        try:
            SqliteOutboxStore.open(path).close()
        except StoreCorrupt:
            return salvage(path, SCHEMA, str(clock.wall_ms()))
        return None
