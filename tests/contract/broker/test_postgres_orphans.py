"""The orphan check finds every kind of hole. They are made with SQL: this is about the PostgreSQL store alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.broker.backends import PostgresBackend
from tests.contract.broker.holes import HOLES, fill, found
from tests.doubles import ManualClock
from tests.services.postgres import Installation


@pytest.fixture
async def backend(postgres_installation: Installation, contract_dsn: Callable[[str], str]) -> PostgresBackend:
    made = PostgresBackend(contract_dsn(postgres_installation.name))
    await made.clear()
    return made


@pytest.mark.req("B8")
@pytest.mark.parametrize("hole", HOLES)
async def test_a_hole_in_an_accept_is_found(backend: PostgresBackend, tmp_path: Path, hole: str) -> None:
    stores = await backend.open(tmp_path, ManualClock())
    await fill(stores)
    await backend.execute(f"SET search_path = mesh; SET session_replication_role = replica; {hole}")
    assert HOLES[hole] in await found(stores)
    await stores.aclose()
