"""Whatever is asked, in whatever order: every backend does what a plain dictionary does."""

import json
import random
from typing import Any

import pytest

from claudemesh.hub.model import (
    NO_OPINION,
    Asked,
    Create,
    Delete,
    Expectation,
    Kind,
    Origin,
    SetOnce,
    Shape,
    Update,
    Write,
)
from tests.contract.hub.backends import NOW, House, ulids
from tests.contract.hub.oracle import OracleHub

pytestmark = pytest.mark.req("R2")

STATUSES = ("todo", "doing", "done")


def random_write(dice: random.Random, ids: list[tuple[Kind, str]], now_ms: int) -> Write:
    def ask() -> Asked:
        if not ids or dice.random() < 0.3:
            kind = dice.choice([Kind.TASKS, Kind.TASKS, Kind.MESSAGES, Kind.PROGRESS])
            fields: dict[str, Any] = (
                {"title": "ä", "status": dice.choice(STATUSES)}
                if kind is Kind.TASKS
                else {"to": "a", "read_at": None}
            )
            ids.append((kind, ulids.ulid()))
            return Asked(*ids[-1], Create(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))))
        kind, row_id = dice.choice(ids)
        expected = NO_OPINION
        if dice.random() < 0.5:
            expected = Expectation(
                dice.choice([None, None, (1,), (1, 2, 3)]),
                dice.choice([None, None, now_ms, now_ms - 1]),
                dice.choice([None, *STATUSES]) if kind is Kind.TASKS else None,
            )
        if kind is not Kind.TASKS:
            return Asked(kind, row_id, SetOnce("read_at", "now"), expected)
        change = Delete() if dice.random() < 0.1 else Update({"status": dice.choice(STATUSES)})
        return Asked(kind, row_id, change, expected)

    origin = Origin("POST", "/x", None, None, "a")
    if dice.random() < 0.15:
        asks = tuple(
            one for one in (ask() for _ in range(dice.randrange(5))) if not isinstance(one.change, Create | Delete)
        )
        return Write(asks, origin, now_ms, Shape.LIST)
    return Write((ask(),), origin, now_ms)


def comparable(body: bytes) -> Any:  # noqa: ANN401  JSON
    """Return what both must say; the words of a problem are the hub's own."""
    document = json.loads(body) if body else None
    if isinstance(document, dict) and "code" in document:
        return {name: document.get(name) for name in ("code", "current")}
    if isinstance(document, dict) and "items" in document:
        for item in document["items"]:
            if "problem" in item:
                item["problem"] = {name: item["problem"].get(name) for name in ("code", "current")}
    return document


@pytest.mark.parametrize("seed", range(4))
async def test_it_does_what_a_dictionary_does(stored: House, seed: int) -> None:
    oracle = OracleHub()
    dice = random.Random(seed)  # noqa: S311  no secret
    ids: list[tuple[Kind, str]] = []
    for _ in range(12):
        stored.clock.wall = NOW + dice.randrange(-50, 50)
        writes = [random_write(dice, ids, stored.clock.wall) for _ in range(dice.randrange(1, 12))]
        given = await stored.together(*(stored.hub.write(write) for write in writes))
        for write, answered in zip(writes, given, strict=True):
            wanted = await oracle.write(write)
            assert answered.answer.status == wanted.answer.status
            assert comparable(answered.answer.body) == comparable(wanted.answer.body)
    for kind, row_id in ids:
        assert await stored.hub.get(kind, row_id) == await oracle.get(kind, row_id)
    for kind in Kind:
        assert await stored.hub.page(kind, 0, 200) == await oracle.page(kind, 0, 200)
    assert await stored.hub.summary(50) == await oracle.summary(50)
    journal = [{**entry} for entry in await stored.journal()]
    for entry in journal:
        del entry["expectation"]
    assert journal == oracle.journal
