"""What a driver's error means to us, and which one ends the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreCorrupt, StoreFull, StoreUnavailable

_SYNC_FAILURES: Final = frozenset({apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC})

# In this order: the first that fits.
_MEANING: Final[tuple[tuple[type[apsw.Error], type[MeshError]], ...]] = (
    (apsw.FullError, StoreFull),
    (apsw.CorruptError, StoreCorrupt),
    (apsw.NotADBError, StoreCorrupt),
    (apsw.ConstraintError, IntegrityError),
    (apsw.BusyError, StoreUnavailable),
    (apsw.LockedError, StoreUnavailable),
    (apsw.IOError, StoreUnavailable),
    (apsw.CantOpenError, StoreUnavailable),
    (apsw.ReadOnlyError, StoreUnavailable),
    (apsw.NoMemError, StoreUnavailable),
    (apsw.ProtocolError, StoreUnavailable),
)


def is_sync_failure(error: BaseException) -> bool:
    """Say whether the disk refused to confirm a write, after which nothing on that file may be tried again."""
    return isinstance(error, apsw.Error) and getattr(error, "extendedresult", 0) in _SYNC_FAILURES


def translate(error: BaseException) -> BaseException:
    """Return our error for a driver's; what is no driver's error, or is a mistake in our SQL, stays what it is."""
    for theirs, ours in _MEANING:
        if isinstance(error, theirs):
            meaning = ours(str(error))
            meaning.__cause__ = error
            return meaning
    return error


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        meaning = translate(error)
        if meaning is error:
            raise
        raise meaning from error
