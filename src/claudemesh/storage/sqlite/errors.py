"""What a driver's error means to us."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreCorrupt, StoreFull, StoreUnavailable

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
