"""A transaction that PostgreSQL ended steps aside before it begins again."""

import asyncpg
import pytest

from claudemesh.storage.postgres.retrying import STEP_ASIDE_S, TRIES, retried


async def test_whoever_was_ended_steps_aside_and_longer_each_time() -> None:
    waits: list[float] = []

    async def once() -> str:
        if len(waits) < TRIES - 1:
            raise asyncpg.DeadlockDetectedError
        return "done"

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    assert await retried(once, sleep) == "done"
    assert len(waits) == TRIES - 1
    for tries, wait in enumerate(waits, 1):
        assert STEP_ASIDE_S * tries <= wait <= STEP_ASIDE_S * tries * 2


async def test_whoever_was_ended_too_often_is_told() -> None:
    tries = 0

    async def once() -> None:
        nonlocal tries
        tries += 1
        raise asyncpg.DeadlockDetectedError

    async def sleep(_seconds: float) -> None:
        return

    with pytest.raises(asyncpg.DeadlockDetectedError):
        await retried(once, sleep)
    assert tries == TRIES


async def test_what_trying_again_cannot_mend_is_tried_once() -> None:
    tries = 0

    async def once() -> None:
        nonlocal tries
        tries += 1
        raise asyncpg.UniqueViolationError

    with pytest.raises(asyncpg.UniqueViolationError):
        await retried(once)
    assert tries == 1
