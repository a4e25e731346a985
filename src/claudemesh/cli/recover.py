"""`daemon recover`: whether the outbox is sound, told without a daemon.

What cannot be read is never thrown away, and saving the rest out of a damaged file is for the store itself to do.
"""

from pathlib import Path

from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.errors import StoreCorrupt
from claudemesh.runtime.home import InstanceLock


def check_outbox(state_dir: Path) -> None:
    """Raise StoreCorrupt, with what can be done, if the outbox cannot be opened."""
    with InstanceLock(state_dir / "pid"):
        path = state_dir / "outbox.db"
        if not path.exists():
            return
        try:
            SqliteOutboxStore.open(path).close()
        except StoreCorrupt as error:
            raise StoreCorrupt(
                f"{error.detail}. This version cannot save its rows yet: keep {path} and its -wal file. Put back a "
                "copy of both, or move both away to begin with an empty outbox, which knows none of the old ids"
            ) from error
