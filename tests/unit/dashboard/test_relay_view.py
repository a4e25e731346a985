"""How a relay is, as all pages of a dashboard are told it: by one look at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claudemesh.dashboard.relay import RelayView
from claudemesh.edge.desk import Desk
from claudemesh.kernel.errors import DependencyError
from claudemesh.runtime.clock import SystemClock
from tests.unit.edge.well import WELL

WITHIN_S = 30


class Looked(RelayView):
    """Each look ends when the test says so: with a status, or with an error."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SystemClock())
        self.looks: list[asyncio.Future[dict[str, Any]]] = []

    async def ask(self, _: Callable[[Desk], Any], __: float = 0) -> Any:  # noqa: ANN401 - JSON is anything
        self.looks.append(asyncio.get_running_loop().create_future())
        return await self.looks[-1]


async def waiting(view: Looked, count: int) -> list["asyncio.Task[Any]"]:
    """Have so many ask, and return when each of them waits."""
    asked = [asyncio.create_task(view.status()) for _ in range(count)]
    async with asyncio.timeout(WITHIN_S):
        while not view.looks:  # noqa: ASYNC110 - all are of this loop
            await asyncio.sleep(0)
    return asked


@pytest.mark.req("C4")
async def test_all_who_ask_at_once_are_told_what_one_look_found(tmp_path: Path) -> None:
    view = Looked(tmp_path)
    asked = await waiting(view, 5)
    for look in view.looks[1:]:
        look.set_exception(DependencyError("one that came second"))
    view.looks[0].set_result({**WELL, "running": False, "outbox": "there"})
    async with asyncio.timeout(WITHIN_S):
        assert {one.state for one in await asyncio.gather(*asked)} == {"stopped"}
        assert (await view.status()).state == "stopped"
    assert len(view.looks) == 1


async def test_who_gives_up_takes_the_look_from_nobody_else(tmp_path: Path) -> None:
    view = Looked(tmp_path)
    first, second = await waiting(view, 2)
    first.cancel()
    await asyncio.wait([first], timeout=WITHIN_S)
    view.looks[0].set_result({**WELL, "running": True, "outbox": "there"})
    async with asyncio.timeout(WITHIN_S):
        assert (await second).state == "running"


async def test_a_look_that_began_before_a_decision_is_not_kept(tmp_path: Path) -> None:
    view = Looked(tmp_path)
    (before,) = await waiting(view, 1)
    view.forget()
    view.looks[0].set_result({**WELL, "running": True, "outbox": "there", "conflicts": 1})
    async with asyncio.timeout(WITHIN_S):
        assert (await before).conflicts == 1
        after = asyncio.create_task(view.status())
        while len(view.looks) == 1:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        view.looks[1].set_result({**WELL, "running": True, "outbox": "there"})
        assert (await after).conflicts == 0
