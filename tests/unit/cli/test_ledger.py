"""`cortex cassette` and `claudemesh ledger`: the words, the exit codes and the JSON that callers rely on."""

import io
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli import cortex
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from claudemesh.runtime.home import Home
from tests.unit.cli.conftest import Ran, Run

Cassette = Callable[..., Ran]

NOBODYS = ("--run-id", "r", "--step", "x", "--worker", "w", "--token", "1")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def payload(tmp_path: Path) -> str:
    file = tmp_path / "payload.json"
    file.write_text('{"intent": "build", "n": 1}')
    return str(file)


@pytest.fixture
def cassette(home: Home, place: Path, capsys: pytest.CaptureFixture[str]) -> Cassette:
    """`cortex cassette …` on a ledger of the test's own."""
    assert home

    def cassette(*words: str, db: Path | None = place) -> Ran:
        capsys.readouterr()
        code = cortex.main(["cassette", *words, *(["--db", str(db)] if db else [])])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return cassette


@pytest.fixture
def post(cassette: Cassette, payload: str) -> Callable[..., Ran]:
    def post(*words: str) -> Ran:
        return cassette("post", "--json", payload, "--run-id", "r", "--source", "USER", *words)

    return post


def claim(cassette: Cassette, *words: str) -> Any:  # noqa: ANN401  JSON
    return cassette("claim", "--run-id", "r", "--worker", "w", "--json", *words).json


def held(step: dict[str, Any]) -> list[str]:
    return ["--run-id", "r", "--step", step["step_id"], "--worker", "w", "--token", str(step["fencing_token"])]


@pytest.mark.req("L1")
def test_a_step_goes_from_post_to_receipt_and_the_ledger_verifies(
    cassette: Cassette, post: Callable[..., Ran], payload: str
) -> None:
    posted = post("--idempotency-key", "k").json
    assert set(posted) == {"message_id", "job_id"}
    assert post("--idempotency-key", "k").json == posted
    step = claim(cassette)
    assert set(step) == {
        "step_id", "job_id", "message_id", "ordinal", "payload", "fencing_token", "lease_expires_at",
    }  # fmt: skip
    assert (step["message_id"], step["job_id"], step["payload"]["n"]) == (*posted.values(), 1)
    renewed = cassette("renew", *held(step), "--ttl", "900", "--json").json
    assert renewed["lease_expires_at"] > step["lease_expires_at"]
    done = cassette("complete", *held(step), "--receipt", payload, "--outcome", "SUCCESS", "--json")
    assert (done.code, done.json["outcome"]) == (0, "SUCCESS")
    verified = cassette("verify", "--run-id", "r")
    assert (verified.code, verified.err, verified.out) == (0, "PASS: All invariants verified\n", "")


@pytest.mark.req("L6")
def test_verify_counts_what_is_wrong_on_standard_error_and_fails(
    cassette: Cassette, post: Callable[..., Ran], place: Path
) -> None:
    post()
    claim(cassette, "--ttl", "0.001")
    found = cassette("verify", "--run-id", "r")
    assert (found.code, found.err.splitlines()[-1]) == (1, "FAIL: 1 issue(s) found")
    assert "lease expired" in found.err
    assert cassette("verify", "--run-id", "another run").code == 0
    with sqlite3.connect(place) as shell:
        shell.execute("DROP TRIGGER tr_messages_append_only_update")
    both = cassette("verify", "--json")
    assert (both.code, both.json["ok"], len(both.json["issues"])) == (1, False, 2)
    for refused in (post(), cassette("head")):
        assert (refused.code, "tr_messages_append_only_update is missing" in refused.err) == (1, True)


@pytest.mark.req("L7")
def test_what_expired_is_requeued_one_by_one_or_all_at_once(cassette: Cassette, post: Callable[..., Ran]) -> None:
    for _ in range(2):
        post()
        claim(cassette, "--ttl", "0.001")
    first, second = (step["step_id"] for step in cassette("list", "--json").json["steps"])
    one = cassette("requeue", "--run-id", "r", "--step", first, "--json").json
    assert [row["step_id"] for row in one["requeued"]] == [first]
    rest = cassette("requeue", "--run-id", "r", "--json").json
    assert [row["step_id"] for row in rest["requeued"]] == [second]
    assert cassette("requeue", "--run-id", "r").out == "nothing has expired\n"
    again = cassette("requeue", "--run-id", "r", "--step", first)
    assert (again.code, "Step is not leased" in again.err) == (1, True)
    assert [step["fencing_token"] for step in (claim(cassette), claim(cassette, "--ttl", "1ms"))] == [2, 2]
    assert "can be requeued: 1" in cassette("claim", "--run-id", "r", "--worker", "w").err


@pytest.mark.req("L7")
def test_a_ledger_of_version_1_is_upgraded_when_somebody_says_so(
    cassette: Cassette, post: Callable[..., Ran], place: Path
) -> None:
    LedgerFile.open(place, version=1).close()
    post()
    step = claim(cassette)
    refused = cassette("renew", *held(step))
    assert (refused.code, "cortex cassette upgrade" in refused.err) == (1, True)
    assert "upgrade" in cassette("head").err
    assert cassette("upgrade", "--json").json == {"from": 1, "to": 2}
    assert cassette("upgrade").out == "version 2 already\n"
    assert cassette("renew", *held(step), "--ttl", "900").code == 0
    assert cassette("verify").code == 0


@pytest.mark.req("L10")
def test_a_head_that_was_kept_shows_that_the_ledger_was_rewritten(
    cassette: Cassette, post: Callable[..., Ran], place: Path, tmp_path: Path, home: Home
) -> None:
    post()
    kept = tmp_path / "head.json"
    kept.write_text(cassette("head").out)
    assert (home.root / "ledger.key").stat().st_mode & 0o077 == 0
    post()
    assert cassette("verify", "--head", str(kept)).code == 0
    for companion in ("", "-wal", "-shm"):
        place.with_name(place.name + companion).unlink(missing_ok=True)
    post()
    assert cassette("verify", "--head", str(kept), "--pubkey", "ab" * 32).code == 2
    rewritten = cassette("verify", "--head", str(kept))
    assert (rewritten.code, "head: it is of ledger" in rewritten.err) == (1, True)
    forged = json.loads(kept.read_text()) | {"seq": 7}
    kept.write_text(json.dumps(forged))
    assert cassette("verify", "--head", str(kept)).code == 2
    kept.write_text("[]")
    assert cassette("verify", "--head", str(kept)).code == 2


def test_steps_are_listed_in_pages_with_how_they_stand(cassette: Cassette, post: Callable[..., Ran]) -> None:
    for _ in range(3):
        post()
    step = claim(cassette, "--ttl", "0.001")
    page = cassette("list", "--limit", "2", "--json").json
    assert [row["status"] for row in page["steps"]] == ["LEASED", "PENDING"]
    rest = cassette("list", "--after", str(page["next_after"]), "--json").json
    assert (len(rest["steps"]), rest["next_after"]) == (1, None)
    lines = cassette("list", "--status", "LEASED").out.splitlines()
    assert len(lines) == 2
    assert step["step_id"] in lines[1]
    assert "expired" in lines[1]
    assert cassette("list", "--run-id", "no such run", "--json").json["steps"] == []
    assert "more: --after 2" in cassette("list", "--limit", "2").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["claim", "--run-id", "empty", "--worker", "w"], 1, "No pending steps"),
        (["claim", "--run-id", "r", "--worker", "w", "--ttl", "0"], 2, "--ttl"),
        (["claim", "--run-id", "r", "--worker", "w", "--ttl", "999d"], 2, "ttl_seconds"),
        (["verify", "--pubkey", "ab"], 2, "--head"),
        (["claim", "--run-id", "r", "--worker", "w", "--ttl", "soon"], 2, "--ttl"),
        (["claim", "--run-id", "r"], 2, "--worker"),
        (["post", "--json", "-", "--run-id", "r", "--source", "NOBODY"], 2, "Invalid source"),
        (["post", "--json", "/no/such/file", "--run-id", "r", "--source", "USER"], 2, "/no/such/file"),
        (["complete", *NOBODYS, "--receipt", "-", "--outcome", "SUCCESS"], 1, "Step not found"),
        (["complete", *NOBODYS, "--receipt", "-", "--outcome", "MAYBE"], 2, "Invalid outcome"),
        (["list", "--status", "LOST"], 2, "Invalid status"),
        (["forget"], 2, "No such command"),
    ],
)
def test_bad_input_is_named_and_leaves_the_ledger_as_it_is(  # noqa: PLR0913, PLR0917  its cases
    cassette: Cassette,
    post: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    said: str,
) -> None:
    post()
    before = cassette("list", "--json").json
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    ran = cassette(*words)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert ran.err.startswith("cortex: ")
    assert cassette("list", "--json").json == before


def test_what_is_not_json_is_refused_and_the_same_key_for_another_payload_conflicts(
    cassette: Cassette, post: Callable[..., Ran], tmp_path: Path
) -> None:
    post("--idempotency-key", "k")
    other = tmp_path / "other.json"
    for text, code in (("{", 2), ("[]", 2), ('{"intent": "test"}', 4)):
        other.write_text(text)
        words = ("post", "--json", str(other), "--run-id", "r", "--source", "USER", "--idempotency-key", "k")
        ran = cassette(*words)
        assert ran.code == code, ran.err
        assert "code" in ran.json  # its output is JSON in any case
    assert len(cassette("list", "--json").json["steps"]) == 1


def test_a_ledger_is_made_by_a_post_and_by_nothing_else(
    cassette: Cassette, post: Callable[..., Ran], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for verb in ("verify", "list", "head", "upgrade"):
        ran = cassette(verb)
        assert (ran.code, f"there is no ledger at {place}" in ran.err) == (1, True)
        assert cassette(verb, db=None).code == 1  # nor at the place that is meant when none is named
    assert post("--source", "NOBODY").code == 2  # what is refused makes none either
    assert not place.exists()
    assert not (tmp_path / "CORTEX").exists()
    assert f"a new ledger: {place}" in post().err
    assert "a new ledger" not in post().err
    nowhere = tmp_path / "nowhere" / "work.db"
    words = ("post", "--json", str(tmp_path / "payload.json"), "--run-id", "r", "--source", "USER")
    refused = cassette(*words, db=nowhere)
    assert (refused.code, "there is no directory" in refused.err) == (1, True)


def test_cortex_keeps_its_ledger_in_the_repository_and_claudemesh_in_its_home(  # noqa: PLR0913, PLR0917  fixtures
    cassette: Cassette, run: Run, home: Home, payload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "repository" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(inside)
    words = ("post", "--json", payload, "--run-id", "r", "--source", "USER")
    assert cassette(*words, db=None).code == 0
    assert (tmp_path / "repository" / "CORTEX" / "_generated" / "system3.db").exists()
    assert [run("ledger", *words).code for _ in range(2)] == [0, 0]
    assert len(run("ledger", "list", "--json").json["steps"]) == 2
    assert (home.root / "ledger.db").stat().st_mode & 0o077 == 0
    assert len(cassette("list", "--json", db=None).json["steps"]) == 1


def test_both_names_have_the_same_verbs(run: Run, cassette: Cassette) -> None:
    verbs = ["claim", "complete", "head", "list", "post", "renew", "requeue", "upgrade", "verify"]
    for listed in (run("ledger", "--help").out, cassette("--help", db=None).out):
        assert [verb for verb in verbs if f"\n  {verb} " not in listed] == []


def test_no_ledger_is_world_readable_whatever_the_umask(
    cassette: Cassette, post: Callable[..., Ran], place: Path
) -> None:
    before = os.umask(0)
    try:
        post()
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o077 == 0
    assert cassette("verify").code == 0
