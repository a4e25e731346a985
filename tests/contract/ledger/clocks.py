"""A clock for a ledger: what its SQL calls `now` stands still until a test moves it."""

from datetime import UTC, datetime

import apsw

from claudemesh.ledger import MessageCassette

START_MS = 1_767_225_600_000  # 2026-01-01


def instant(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LedgerClock:
    """Stands in for SQLite's `strftime` on a ledger's connection. All else that it can do is left to SQLite."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self._sqlite = apsw.Connection(":memory:")

    @property
    def now(self) -> str:
        return instant(self.now_ms)

    def rule(self, ledger: MessageCassette) -> MessageCassette:
        """From now on the ledger asks this clock."""
        ledger._file._connection.create_scalar_function("strftime", self._strftime, flags=apsw.SQLITE_INNOCUOUS)
        return ledger

    def advance(self, seconds: float) -> None:
        """Also backwards."""
        self.now_ms += round(seconds * 1000)

    def _strftime(self, form: str, at: str | None, *modifiers: str) -> str | None:
        values = (form, self.now if at == "now" else at, *modifiers)
        marks = ",".join("?" * len(values))
        found: str | None = self._sqlite.execute(f"SELECT strftime({marks})", values).fetchall()[0][0]
        return found
