"""Work of a ledger, claimed and completed by an agent: once for each key, and only by whoever holds the lease."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claudemesh.ledger import MessageCassette
from claudemesh.mcp import work
from claudemesh.mcp.mesh import Daemon
from claudemesh.mcp.parts import Parts, open_parts
from claudemesh.mcp.tools import TOOLS, call
from claudemesh.runtime.home import Home
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import real_world
from tests.unit.mcp.conftest import Use

CLAIM_K1 = {"source": "ledger:run", "idempotency_key": "k1"}


@pytest.fixture
def ledger(parts: Parts) -> Path:
    with MessageCassette(db_path=parts.home.ledger_db) as opened:
        for number in range(3):
            opened.post_message({"do": f"step {number}"}, "run", "USER")
    return parts.home.ledger_db


@pytest.mark.req("C3")
async def test_a_step_is_claimed_once_for_a_key_and_completed_once(use: Use, ledger: Path) -> None:
    first = (await use("claim", source="ledger:run", idempotency_key="k1")).data
    again = (await use("claim", source="ledger:run", idempotency_key="k1")).data
    other = (await use("claim", source="ledger:run", idempotency_key="k2")).data
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert (first["said"], again["said"]) == (work.LEASED, work.LEASED_BEFORE)
    assert first["work"] == again["work"]
    assert (first["work"]["body"], other["work"]["body"]) == ('{"do":"step 0"}', '{"do":"step 1"}')
    held = {"source": "ledger:run", **{name: first["work"][name] for name in ("id", "token", "worker_id")}}
    done = (await use("complete", **held, result={"ok": 1}, idempotency_key="k3")).data
    twice = (await use("complete", **held, result={"ok": 1}, idempotency_key="k3")).data
    assert (done["outcome"], done["replayed"], twice["replayed"]) == ("done", False, True)
    assert done["receipt_id"] == twice["receipt_id"]
    with MessageCassette(db_path=ledger) as opened:
        assert [step["status"] for step in opened.list_steps("run")] == ["COMMITTED", "LEASED", "PENDING"]
        assert opened.find_issues() == []


@pytest.mark.req("C3")
async def test_a_claim_that_crashed_before_it_was_kept_finds_its_step_again(
    use: Use, parts: Parts, ledger: Path
) -> None:
    with MessageCassette(db_path=ledger) as opened:
        worker_id = await parts.mark_of_home("claim", "k1", f"ledger:{opened.read_id()}")
        lost = opened.claim_step("run", worker_id, 300)
    found = (await use("claim", source="ledger:run", idempotency_key="k1")).data["work"]
    assert (found["id"], found["token"]) == (lost["step_id"], lost["fencing_token"])
    with MessageCassette(db_path=ledger) as opened:
        assert [step["status"] for step in opened.list_steps("run")] == ["LEASED", "PENDING", "PENDING"]


@pytest.mark.req("C3")
async def test_a_receipt_that_was_written_before_a_crash_is_found_and_not_written_twice(
    use: Use, ledger: Path
) -> None:
    work = (await use("claim", source="ledger:run")).data["work"]
    with MessageCassette(db_path=ledger) as opened:
        held = ("run", work["id"], work["worker_id"], work["token"])
        receipt_id = opened.complete_step(*held, {"ok": 1}, "SUCCESS")
    asked = {"source": "ledger:run", "id": work["id"], "token": work["token"], "worker_id": work["worker_id"]}
    done = (await use("complete", **asked, result={"ok": 1})).data
    assert (done["receipt_id"], done["replayed"]) == (receipt_id, True)
    other = await use("complete", **asked, result={"ok": 2})
    assert (other.is_error, other.data["code"]) == (True, "lease_lost")


@pytest.mark.req("C3")
@pytest.mark.parametrize("wrong", [{"token": 99}, {"worker_id": "mallory"}, {}])
async def test_who_does_not_hold_the_lease_completes_nothing(use: Use, ledger: Path, wrong: dict[str, Any]) -> None:
    with MessageCassette(db_path=ledger) as opened:
        step = opened.claim_step("run", "worker", 300 if wrong else 0.001)  # or it is over at once
    held = {"source": "ledger:run", "id": step["step_id"], "token": step["fencing_token"], "worker_id": "worker"}
    for outcome in ("done", "renew"):
        refused = await use("complete", **held | wrong, outcome=outcome)
        assert (refused.is_error, refused.data["code"], refused.data["retry"]) == (True, "lease_lost", "no")
    with MessageCassette(db_path=ledger) as opened:
        assert opened.find_receipt("run", step["step_id"]) is None


@pytest.mark.usefixtures("ledger")
async def test_a_lease_is_renewed_and_what_a_ledger_does_not_know_is_refused(use: Use) -> None:
    work = (await use("claim", source="ledger:run", ttl_s=10)).data["work"]
    asked = {"source": "ledger:run", "id": work["id"], "token": work["token"], "worker_id": work["worker_id"]}
    renewed = (await use("complete", **asked, outcome="renew", ttl_s=3600)).data
    assert renewed["outcome"] == "renewed"
    assert renewed["lease_expires_at"] > work["lease_expires_at"]
    assert (await use("complete", **asked, outcome="give_back")).data["code"] == "invalid_request"
    failed = (await use("complete", **asked, outcome="failed", result="broke")).data
    assert failed["outcome"] == "failed"


async def test_nothing_to_do_is_an_answer_and_no_ledger_an_error(use: Use, ledger: Path) -> None:
    assert (await use("claim", source="ledger:other", ledger=str(ledger))).data["work"] is None
    missing = await use("claim", source="ledger:run", ledger=str(ledger.with_name("none.db")))
    assert (missing.is_error, missing.data["code"]) == (True, "ledger_refused")


async def test_a_long_payload_is_read_on_under_the_key_of_the_claim(use: Use, parts: Parts) -> None:
    with MessageCassette(db_path=parts.home.ledger_db) as opened:
        opened.post_message({"text": "x" * 50}, "long", "USER")
    first = (await use("claim", source="ledger:long", body_chars=20)).data
    assert first["work"]["is_truncated"]
    assert f'idempotency_key="{first["idempotency_key"]}" and body_from=20' in first["read_on"]
    rest = (await use("claim", source="ledger:long", idempotency_key=first["idempotency_key"], body_from=20)).data
    assert (rest["replayed"], rest["read_on"]) == (True, None)
    assert first["work"]["body"].partition("…")[0] + rest["work"]["body"] == '{"text":"' + "x" * 50 + '"}'


@pytest.mark.req("C3")
async def test_what_is_leased_just_now_is_shown_whatever_was_to_be_read_on(use: Use, ledger: Path) -> None:
    asked = {"source": "ledger:run", "idempotency_key": "k1", "body_from": 999}
    first = await use("claim", **asked)
    assert (first.is_error, first.data["work"]["body"]) == (False, '{"do":"step 0"}')
    beyond = await use("claim", **asked)
    assert (beyond.is_error, beyond.data["code"]) == (True, "invalid_request")
    with MessageCassette(db_path=ledger) as opened:
        assert [step["status"] for step in opened.list_steps("run")] == ["LEASED", "PENDING", "PENDING"]


@pytest.mark.req("C3")
async def test_who_asks_for_work_under_one_key_gets_it_when_there_is_some(use: Use, ledger: Path) -> None:
    asked = {"source": "ledger:later", "ledger": str(ledger), "idempotency_key": "k1"}
    nothing = [(await use("claim", **asked)).data for _ in range(2)]
    assert [(told["work"], told["replayed"], told["said"]) for told in nothing] == [(None, False, work.NOTHING)] * 2
    with MessageCassette(db_path=ledger) as opened:
        opened.post_message({"do": "it"}, "later", "USER")
    assert (await use("claim", **asked)).data["work"]["body"] == '{"do":"it"}'
    assert (await use("claim", **asked)).data["replayed"] is True


@pytest.mark.req("C3")
async def test_the_same_key_in_two_meshes_is_two_claims_of_one_ledger(parts: Parts, ledger: Path) -> None:
    held = []
    for mesh in ("one", "two"):
        at_mesh = replace(parts, mesh=mesh)
        held.append((await call(at_mesh, TOOLS["claim"], CLAIM_K1, Observer())).data["work"])
    assert held[0]["id"] != held[1]["id"], "or two agents would do the same step"
    with MessageCassette(db_path=ledger) as opened:
        assert [step["status"] for step in opened.list_steps("run")] == ["LEASED", "LEASED", "PENDING"]


@pytest.mark.req("C3")
async def test_the_same_key_in_two_homes_is_two_claims_of_one_ledger(
    parts: Parts, ledger: Path, tmp_path: Path
) -> None:
    other_home = Home(tmp_path / "other")
    other_home.root.mkdir(mode=0o700)
    other = open_parts(other_home, None, real_world())
    asked = {**CLAIM_K1, "ledger": str(ledger)}
    try:
        held = [(await call(one, TOOLS["claim"], asked, Observer())).data["work"] for one in (parts, other)]
    finally:
        await other.keys.aclose()
    assert held[0]["id"] != held[1]["id"], "or two agents would do the same step"
    assert held[0]["worker_id"] != held[1]["worker_id"]


@pytest.mark.req("C3")
async def test_a_claim_is_made_once_for_a_key_though_a_mesh_was_joined_meanwhile(
    use: Use, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await use("claim", **CLAIM_K1)).data
    monkeypatch.setattr(Daemon, "mesh_id", "joined")
    again = (await use("claim", **CLAIM_K1)).data
    assert (again["replayed"], again["work"]) == (True, first["work"])
    with MessageCassette(db_path=ledger) as opened:
        assert [step["status"] for step in opened.list_steps("run")] == ["LEASED", "PENDING", "PENDING"]


@pytest.mark.req("C3")
async def test_ledgers_of_one_name_in_two_folders_share_no_key(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with MessageCassette(db_path="work.db") as opened:
            opened.post_message({"for": name}, "run", "USER")
        work = (await use("claim", **CLAIM_K1, ledger="work.db")).data["work"]
        held = {"source": "ledger:run", **{what: work[what] for what in ("id", "token", "worker_id")}}
        done = (await use("complete", **held, ledger="work.db", idempotency_key="k2")).data
        with MessageCassette(db_path="work.db") as opened:
            told[name] = (work["body"], done["replayed"], [step["status"] for step in opened.list_steps("run")])
    assert told == {name: (f'{{"for":"{name}"}}', False, ["COMMITTED"]) for name in ("a", "b")}


@pytest.mark.req("C3")
@pytest.mark.parametrize("payload", [{"n": 10**30}, {"deep": json.loads("[" * 400 + "]" * 400)}])
async def test_whatever_a_ledger_takes_as_a_payload_can_be_claimed_and_failed(
    use: Use, parts: Parts, payload: dict[str, Any]
) -> None:
    with MessageCassette(db_path=parts.home.ledger_db) as opened:
        opened.post_message(payload, "run", "USER")
    work = (await use("claim", source="ledger:run", body_chars=2_000)).data["work"]
    assert json.loads(work["body"]) == payload
    held = {"source": "ledger:run", **{what: work[what] for what in ("id", "token", "worker_id")}}
    assert (await use("complete", **held, outcome="failed")).data["outcome"] == "failed"


@pytest.mark.req("C3")
@pytest.mark.usefixtures("ledger")
async def test_a_renewal_is_asked_for_anew_each_time(use: Use) -> None:
    work = (await use("claim", source="ledger:run")).data["work"]
    held = {"source": "ledger:run", **{what: work[what] for what in ("id", "token", "worker_id")}}
    renew = {**held, "outcome": "renew", "idempotency_key": "r1"}
    assert (await use("complete", **renew)).data["outcome"] == "renewed"
    await use("complete", **held)
    again = await use("complete", **renew)
    assert (again.is_error, again.data["code"]) == (True, "lease_lost"), "or work that is done is called ours"


async def test_a_ledger_in_the_home_of_nobody_is_refused_by_name(use: Use) -> None:
    refused = await use("claim", source="ledger:run", ledger="~nobody-of-this-name/ledger.db")
    assert (refused.data["code"], "~nobody-of-this-name" in refused.data["detail"]) == ("invalid_request", True)
