"""A queue worked through a ledger, by the command line of members with daemons of their own."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from claudemesh.ledger import MessageCassette
from tests.mesh import LocalDaemon, local_mesh
from tests.printed import check_output

SCRIPT = "import sys; text = sys.stdin.read(); print(text.upper()); sys.exit('bad' in text)"


async def claudemesh(who: LocalDaemon, *words: str, status: int = 0) -> Any:  # noqa: ANN401  JSON
    """Run a command in a member's home, and return the one document that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "claudemesh.cli.main",
        *words,
        env={**os.environ, "CLAUDEMESH_HOME": str(who.state_dir.parent.parent)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == status, err.decode()
    check_output("claudemesh", words, status, out.decode())
    return json.loads(out)


async def put(who: LocalDaemon, *bodies: str) -> None:
    await who.post("/v1/queue/create", {"queue": "builds"})
    for body in bodies:
        await who.send("queue:builds", body, client_message_id=body)
        await who.until(lambda found: found["state"] == "accepted", f"/v1/trace/{body}")


async def is_acted(who: LocalDaemon, id_: str) -> dict[str, Any]:
    return await who.until(lambda found: found["state"] == "acted", f"/v1/trace/{id_}")


@pytest.mark.req("L9")
async def test_a_queues_message_is_posted_claimed_handed_to_the_caller_and_answered_with_its_receipt(
    tmp_path: Path,
) -> None:
    place = tmp_path / "work.db"
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await put(alice, "one")
        taken = await claudemesh(bob, "queue", "work", "builds", "--ledger", str(place), "--json")
        assert (taken["client_message_id"], taken["from"], taken["body"]) == ("one", alice.keys.pubkey, "one")
        assert (taken["lease_token"], taken["run_id"]) == (1, "queue:builds@demo")
        life = await is_acted(alice, "one")
        assert [step["state"] for step in life["steps"]] == ["queued", "accepted", "delivered", "acted"]
        [reply] = await alice.receives(1)
        assert reply["reply_to_id"] == taken["broker_message_id"]
        assert (reply["meta"]["outcome"], json.loads(reply["body"])["outcome"]) == ("SUCCESS", "SUCCESS")
        assert await claudemesh(bob, "queue", "work", "builds", "--ledger", str(place), "--json") is None
    with MessageCassette(db_path=place) as ledger:
        assert ledger.find_issues() == []
        [step] = ledger.list_steps()
        assert (step["status"], step["outcome"], step["receipt_id"]) == (
            "COMMITTED", "SUCCESS", reply["meta"]["receipt_id"],
        )  # fmt: skip


@pytest.mark.req("L9")
async def test_a_command_does_the_work_under_a_lease_that_is_renewed_and_its_status_is_the_outcome(
    tmp_path: Path,
) -> None:
    place = tmp_path / "work.db"
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await put(alice, "good", "bad")
        work = ("queue", "work", "builds", "--ledger", str(place), "--json", "--ttl", "2s", "--")
        slow = (sys.executable, "-c", f"import time; time.sleep(3); {SCRIPT}")  # longer than a lease
        done = await claudemesh(bob, *work, *slow)
        assert (done["body"], done["outcome"], done["receipt"]) == (
            "good", "SUCCESS", {"exit_status": 0, "output": "GOOD\n"},
        )  # fmt: skip
        failed = await claudemesh(bob, *work, sys.executable, "-c", SCRIPT)
        assert (failed["body"], failed["outcome"], failed["receipt"]["exit_status"]) == ("bad", "FAILURE", 1)
        await is_acted(alice, "good")
        await is_acted(alice, "bad")
        outcomes = [reply["meta"]["outcome"] for reply in await alice.receives(2)]
        assert outcomes == ["SUCCESS", "FAILURE"]
    with MessageCassette(db_path=place) as ledger:
        assert ledger.find_issues() == []
        assert [step["fencing_token"] for step in ledger.list_steps()] == [1, 1]


@pytest.mark.req("L9")
@pytest.mark.prints("claudemesh queue ack --ledger", "claudemesh queue work --ledger")
async def test_what_is_held_is_completed_later_and_whoever_handed_it_over_answers_for_it(tmp_path: Path) -> None:
    place = tmp_path / "work.db"
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        await put(alice, "held", "left")
        work = ("queue", "work", "builds", "--ledger", str(place), "--json")
        held = await claudemesh(bob, *work, "--hold")
        assert (await alice.get("/v1/trace/held"))["state"] == "delivered"
        claim = ("queue", "ack", "builds", "--id", held["broker_message_id"], "--ledger", str(place), "--json")
        refused = await claudemesh(bob, *claim, "--token", "7", status=1)
        assert "Fencing token mismatch" in refused["detail"]
        forgot = ("queue", "ack", "builds", "--id", held["broker_message_id"], "--token", "1", "--json")
        assert "say --ledger" in (await claudemesh(bob, *forgot, status=2))["detail"]
        assert (await alice.get("/v1/trace/held"))["state"] == "delivered"
        done = await claudemesh(bob, *claim, "--token", str(held["lease_token"]), "--outcome", "ABORTED")
        assert done["outcome"] == "ABORTED"
        await is_acted(alice, "held")
        # Carol does what bob handed over; bob, who did that, answers when he next looks.
        left = await claudemesh(bob, *work, "--hold", "--ttl", "1ms")
        with MessageCassette(db_path=place) as ledger:
            ledger.requeue_step(left["run_id"], left["step_id"])
        assert (await claudemesh(carol, *work))["step_id"] == left["step_id"]
        assert (await alice.get("/v1/trace/left"))["state"] == "delivered"
        assert await claudemesh(bob, *work) is None
        await is_acted(alice, "left")
        assert [reply["from_name"] for reply in await alice.receives(2)] == ["bob", "bob"]
        assert not list((bob.state_dir / "handed-over").iterdir())


async def test_what_cannot_be_worked_is_refused_by_name_before_the_queue_is_asked(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await put(alice, "one")
        place, other = str(tmp_path / "work.db"), tmp_path / "text.db"
        other.write_text("not a database " * 100)
        work = ("queue", "work", "builds", "--json")
        for words, said in (
            (("--", "true"), "need --ledger"),
            (("--ttl", "9s"), "need --ledger"),
            (("--ledger", place, "--hold", "--", "true"), "one of them"),
            (("--ledger", place, "--", "/no/such/program"), "/no/such/program"),
            (("--ledger", place, "--ttl", "999d"), "ttl_seconds"),
        ):
            assert said in (await claudemesh(bob, *work, *words, status=2))["detail"]
        refused = await claudemesh(bob, *work, "--ledger", str(other), status=1)
        assert refused["code"] == "ledger_refused"
        assert (await alice.get("/v1/trace/one"))["state"] == "accepted"  # nobody took it
