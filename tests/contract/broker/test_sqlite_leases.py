"""The lease clock of a file: it stands still while no broker runs on it."""

from pathlib import Path

from claudemesh.broker.model import Claim
from tests.contract.broker.backends import NOW, batch, job, open_house, settle

TTL = 300_000


async def test_a_lease_keeps_over_a_restart_what_was_left_of_it(tmp_path: Path) -> None:
    house = open_house("sqlite-grouped", tmp_path)
    town = await settle(house.stores, "boss", "ann", "ben")
    await house.stores.work.create_queue(town["boss"], "jobs", NOW)
    await house.stores.accepts.accept(batch(town["boss"], job("1", "jobs")))
    work = await house.stores.work.work(town["ann"], "jobs", TTL, NOW)
    assert work is not None
    held = Claim(town["ann"], "jobs", work.broker_message_id, work.lease_token)
    house.clock.advance(TTL - 1000)
    await house.stores.seats.beat()
    house.clock.monotonic = 7  # another boot, and a long time without a broker
    house.clock.wall += 3_600_000
    await house.reopen()
    assert await house.stores.work.work(town["ben"], "jobs", TTL, NOW) is None
    house.clock.advance(999)
    assert await house.stores.work.renew(held, 1) == 1
    house.clock.advance(1)
    assert await house.stores.work.work(town["ben"], "jobs", TTL, NOW) is not None
    await house.stores.aclose()
