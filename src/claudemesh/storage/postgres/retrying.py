"""How often a transaction that met another one is run, and what it does in between.

The one that PostgreSQL ends gives up the rows it held, and the other waits for just those. If it began again at
once, it could take them back before the other is awake, and both would stand as before: so it steps aside first.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from claudemesh.runtime.dice import roll
from claudemesh.storage.postgres.errors import is_passing

TRIES: Final = 3
STEP_ASIDE_S: Final = 0.01  # at least so long after the first try, twice that after the second

Outcome = TypeVar("Outcome")


async def retried(
    once: Callable[[], Awaitable[Outcome]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Outcome:
    """Run a transaction until none is in its way, or it was tried enough."""
    for tries in range(1, TRIES):
        try:
            return await once()
        except Exception as error:
            if not is_passing(error):
                raise
        await sleep(STEP_ASIDE_S * tries * (1 + roll()))
    return await once()
