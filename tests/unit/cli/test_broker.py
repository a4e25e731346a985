"""`broker sweep --plan`, and what a file of settings may hold, as the command line takes it."""

import asyncio
import json
from pathlib import Path

import pytest

from claudemesh.broker.model import Accepted
from claudemesh.runtime.home import Home
from tests.contract.broker.backends import NOW, batch, dm, open_house, settle
from tests.unit.cli.conftest import Run


def a_year_ago(folder: Path) -> dict[str, object]:
    """Make a store with a message that is too old, delivered; return the line that plans it."""

    async def fill() -> dict[str, object]:
        stores = open_house("sqlite-grouped", folder).stores
        town = await settle(stores, "alice", "bob")
        [accepted] = await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))  # the test's own years ago
        await stores.deliveries.ack(town["bob"], [1], NOW)
        await stores.aclose()
        assert isinstance(accepted, Accepted)
        return {"mesh": town.mesh.uid, "history_id": 1, "broker_message_id": accepted.broker_message_id}

    return asyncio.run(fill())


@pytest.mark.req("C1", "S2")
@pytest.mark.prints("claudemesh broker sweep --plan")
def test_a_plan_is_executed_and_its_outcome_told(run: Run, tmp_path: Path) -> None:
    plan, store = tmp_path / "plan.jsonl", ("--store", f"sqlite:///{tmp_path / 'broker.db'}")
    plan.write_text(json.dumps(a_year_ago(tmp_path)) + "\n")
    told = [run("broker", "sweep", *store, "--plan", str(plan), "--json").json for _ in range(2)]
    nothing = {"planned": 1, "deleted": 0, "refused": 0, "gone": 0, "buried": 0}
    assert told == [nothing | {"deleted": 1}, nothing | {"gone": 1}]


@pytest.mark.req("C1", "S2")
def test_a_plan_that_cannot_be_read_is_wrong_usage_and_says_where(run: Run, tmp_path: Path) -> None:
    plan, store = tmp_path / "plan.jsonl", ("--store", f"sqlite:///{tmp_path / 'broker.db'}")
    plan.write_text(json.dumps(a_year_ago(tmp_path)) + "\nnonsense\n")
    ran = run("broker", "sweep", *store, "--plan", str(plan))
    assert (ran.code, "line 2 " in ran.err) == (2, True)
    assert run("broker", "sweep", *store, "--plan", str(tmp_path / "nothing")).code == 2
    assert run("broker", "sweep", *store, "--json").json["messages"] == 1, "nothing was deleted before"


@pytest.mark.req("P6")
def test_a_key_of_resume_tokens_in_a_file_that_others_can_read_is_refused(run: Run, home: Home) -> None:
    home.ensure()
    file = home.root / "broker.toml"
    file.write_text(f'resume_token_key = "{"ab" * 32}"\n')
    file.chmod(0o644)
    store = ("--store", f"sqlite:///{home.root / 'broker.db'}")
    a_year_ago(home.root)
    refused = run("broker", "check", *store, "--json")
    assert (refused.code, refused.json["code"]) == (1, "config_invalid")
    assert "abab" not in refused.err + refused.out
    file.chmod(0o600)
    assert run("broker", "check", *store, "--json").json["violations"] == 0
