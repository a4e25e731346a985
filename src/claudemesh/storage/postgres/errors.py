"""What a driver's error means to us."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from claudemesh.kernel.errors import IntegrityError, MeshError, StoreFull, StoreUnavailable

# In this order: the first that fits.
_MEANING: Final[tuple[tuple[type[BaseException], type[MeshError]], ...]] = (
    (asyncpg.DiskFullError, StoreFull),
    (asyncpg.IntegrityConstraintViolationError, IntegrityError),
    (asyncpg.PostgresConnectionError, StoreUnavailable),
    (asyncpg.OperatorInterventionError, StoreUnavailable),  # shut down, starting up, or a statement's time is over
    (asyncpg.InsufficientResourcesError, StoreUnavailable),
    (asyncpg.TransactionRollbackError, StoreUnavailable),  # a deadlock, and it was tried again
    (asyncpg.ObjectNotInPrerequisiteStateError, StoreUnavailable),  # a lock was not to be had in time
    (asyncpg.InvalidTransactionStateError, StoreUnavailable),  # a standby, or a transaction that was idle too long
    (asyncpg.PostgresSystemError, StoreUnavailable),  # an I/O error on the server's side
    (asyncpg.InvalidCatalogNameError, StoreUnavailable),  # while the database is being exchanged for another
    (asyncpg.ProgramLimitExceededError, StoreUnavailable),  # a queue of notifications that is full
    (asyncpg.InvalidAuthorizationSpecificationError, StoreUnavailable),  # while a password is being changed
    (asyncpg.InterfaceError, StoreUnavailable),  # the connection is gone
    (asyncpg.InternalClientError, StoreUnavailable),
    (OSError, StoreUnavailable),
    (TimeoutError, StoreUnavailable),
)


def translate(error: BaseException) -> BaseException:
    """Return our error for a driver's; what is no driver's error, or is a mistake in our SQL, stays what it is."""
    if isinstance(error, MeshError | ValueError):
        return error  # the driver calls a value that it cannot send an interface error
    for theirs, ours in _MEANING:
        if isinstance(error, theirs):
            meaning = ours(_describe(error))
            meaning.__cause__ = error
            return meaning
    return error


def is_the_stores_fault(error: BaseException) -> bool:
    """Say whether it would have met any other caller too, so that trying items one by one tells nothing."""
    meaning = translate(error)
    return isinstance(meaning, StoreUnavailable | StoreFull)


def is_passing(error: BaseException) -> bool:
    """Say whether the same transaction, run again at once, may well go through: nothing of it was kept."""
    return isinstance(error, asyncpg.DeadlockDetectedError | asyncpg.SerializationError)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        meaning = translate(error)
        if meaning is error:
            raise
        raise meaning from error


def _describe(error: BaseException) -> str:
    # Of a driver's message the first line: details may quote rows.
    return str(error).partition("\n")[0] or type(error).__name__
