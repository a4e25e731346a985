"""The orphan check finds every kind of hole. They are made with SQL: this is about the SQLite store alone."""

from pathlib import Path

import apsw
import pytest

from tests.contract.broker.backends import open_house
from tests.contract.broker.holes import HOLES, fill, found

ALL = {
    **HOLES,
    "DELETE FROM delivery_open": (None, "delivery_open"),
    "UPDATE delivery_queue SET delivered_at = 1 WHERE history_id = 1": (None, "delivery_open"),
}


@pytest.mark.req("B8")
@pytest.mark.parametrize("hole", ALL)
async def test_a_hole_in_an_accept_is_found(tmp_path: Path, hole: str) -> None:
    house = open_house("sqlite-grouped", tmp_path)
    try:
        await fill(house.stores)
        connection = apsw.Connection(str(tmp_path / "broker.db"))
        connection.execute(f"PRAGMA foreign_keys = 0; {hole}").fetchall()
        connection.close()
        assert ALL[hole] in await found(house.stores)
    finally:
        await house.stores.aclose()
