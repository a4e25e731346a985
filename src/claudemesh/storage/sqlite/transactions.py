"""Who may end a transaction: whoever began it, and nobody in between.

Some errors (a full disk, `ON CONFLICT ROLLBACK`) make SQLite roll back by itself, after which the next statement
would commit on its own. And SQL that comes from elsewhere may hold a COMMIT. Two hooks notice the one and refuse
the other, so that what is inside lands whole or not at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import apsw

from claudemesh.kernel.errors import IntegrityError


class Transactions:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._may_commit = False
        self._was_rolled_back = False
        connection.set_commit_hook(self._must_not_commit)
        connection.set_rollback_hook(self._note_rollback)

    def begin(self, mode: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE") -> None:
        self._connection.execute(f"BEGIN {mode}")
        self._was_rolled_back = False

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Commit what was begun when the block ends; roll it back if the block raises or ended it by itself."""
        try:
            yield
            self.commit()
        except BaseException:
            self.roll_back()
            raise

    def commit(self) -> None:
        self._check_whole()
        self._may_commit = True
        try:
            self._connection.execute("COMMIT")
        finally:
            self._may_commit = False

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _check_whole(self) -> None:
        if self._was_rolled_back or not self._connection.in_transaction:
            raise IntegrityError("the transaction was ended by something inside it")

    def _must_not_commit(self) -> bool:
        return not self._may_commit

    def _note_rollback(self) -> None:
        self._was_rolled_back = True
