"""The end of keeping is a matter of time that passed, not of what the wall clock says."""

import pytest

from claudemesh.daemon.ports import Happened
from claudemesh.daemon.settings import Config, LiveConfig
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.daemon.sweep import sweep_inbox
from claudemesh.kernel.clock import DAY_MS
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from tests.doubles import ManualClock


@pytest.mark.req("F6")
async def test_setting_the_wall_clock_sweeps_nothing() -> None:
    inbox = SqliteInboxStore.in_memory()
    clock, live = ManualClock(), LiveConfig(Config())
    world = World(clock, UlidSource(clock), lambda: 0.0)
    kept_ms = live.config.inbox.keep_days * DAY_MS
    await inbox.append_events([Happened("receipt", world.steady_ms(), {})])
    clock.wall += 10 * kept_ms
    assert await sweep_inbox(inbox, live, world) == 0
    clock.monotonic += kept_ms + 1
    assert await sweep_inbox(inbox, live, world) == 1
    inbox.close()


@pytest.mark.req("F6")
async def test_a_start_with_a_clock_that_is_ahead_sweeps_nothing_once_it_is_set() -> None:
    inbox = SqliteInboxStore.in_memory()
    clock, live = ManualClock(), LiveConfig(Config())
    await inbox.append_events([Happened("receipt", clock.wall_ms(), {})])
    ahead_ms = 2 * live.config.inbox.keep_days * DAY_MS
    clock.wall += ahead_ms
    world = World(clock, UlidSource(clock), lambda: 0.0)
    clock.wall -= ahead_ms
    assert await sweep_inbox(inbox, live, world) == 0
    inbox.close()
