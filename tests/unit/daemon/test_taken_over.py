"""The daemon's own connection, when another socket came under its own instance."""

from pathlib import Path

import pytest

from claudemesh.daemon.connector import Backoff
from claudemesh.daemon.events import BrokerDisconnected
from tests.unit.daemon.fake_broker import FakeBroker


@pytest.mark.req("N4")
async def test_a_daemon_whose_place_was_taken_under_its_own_instance_says_so_and_waits_a_while(
    tmp_path: Path,
) -> None:
    broker, waits = FakeBroker(), list[int | None]()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        daemon.world.observer.subscribe(BrokerDisconnected, lambda event: waits.append(event.retry_in_ms))
        await daemon.until(lambda health: health["connected"])
        await (await broker.visit(0)).socket.close(1000, "session_replaced")
        health = await daemon.until(lambda health: health["link"] == "closed: 1000 session_replaced")
        assert (health["connected"], health["degraded"]) == (False, True)
        assert [30_000 <= (wait or 0) <= 60_000 for wait in waits] == [True]


@pytest.mark.req("N4")
async def test_a_daemon_whose_place_was_taken_under_its_own_instance_is_not_locked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "at_the_cap_ms", lambda _: 10)
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        await (await broker.visit(0)).socket.close(1000, "session_replaced")
        await broker.visit(1)
        await daemon.until(lambda health: health["connected"] and not health["degraded"])
