# ruff: noqa: S608 - statements that are put together
"""Triggers of the attacker's own connection run among those of the file, and one can end a statement before ours.

SQLite cannot refuse them. What they do is either without harm, or it is found.
"""

from collections.abc import Sequence

import pytest

from tests.contract.ledger.attacks import update
from tests.contract.ledger.scenes import Scene
from tests.contract.ledger.shells import SHELLS, Shell, attacking, dump, lawless_shell
from tests.contract.ledger.test_attacks import refusal

pytestmark = [pytest.mark.req("L2"), pytest.mark.parametrize("kind", SHELLS)]

AFTER = "CREATE TEMP TRIGGER mine AFTER INSERT ON main.{table} BEGIN SELECT RAISE(IGNORE); END"
MESSAGE = (
    "INSERT INTO cassette_messages ({rowid}message_id, run_id, source, payload_json)"
    " VALUES ({at}'m', 'r', 'USER', '{{}}')"
)
RECEIPT = (
    "INSERT INTO cassette_receipts (receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json)"
    " VALUES ('r', '{held}', '{job}', 'ben', 1, 'SUCCESS', '{}')"
)
REQUEUE = (
    "INSERT INTO cassette_requeues (requeue_id, step_id, worker_id, fencing_token, lease_expires_at)"
    " VALUES ('q', '{late}', 'cat', 2, '{ended}')"
)
RENEWAL = (
    "INSERT INTO cassette_renewals (renewal_id, step_id, worker_id, fencing_token, lease_expires_at)"
    " VALUES ('n', '{held}', 'ben', 1, '{future}')"
)

of_version_2 = pytest.mark.parametrize("version", [2], indirect=True)


def run(scene: Scene, kind: str, *script: str) -> list[str]:
    """Run statements that are all accepted; return what is found afterwards, without what always is."""
    with attacking(scene.path, kind) as shell:
        for sql in script:
            assert refusal(shell, scene.fill(sql)) == "", sql
    return without_the_chain(scene, scene.issues())


def without_the_chain(scene: Scene, issues: Sequence[str]) -> list[str]:
    """Leave out that a row has no link: whoever can do this can compute one."""
    return [issue for issue in issues if issue not in scene.expected() and "outside of it" not in issue]


def test_a_receipt_that_commits_nothing_is_found(scene: Scene, kind: str) -> None:
    found = run(scene, kind, AFTER.format(table="cassette_receipts"), RECEIPT)
    assert found == ["receipt r is for a step that is not COMMITTED"]


def test_a_receipt_that_commits_nothing_is_not_replaced(scene: Scene, kind: str) -> None:
    """Its step looks leased, and there is no way on but to be committed as the receipt says."""
    with attacking(scene.path, kind) as shell:
        shell(AFTER.format(table="cassette_receipts"))
        shell(scene.fill(RECEIPT))
        shell("DROP TRIGGER temp.mine")
        before = dump(shell)
        other = scene.fill(RECEIPT).replace("INSERT", "INSERT OR REPLACE").replace("'r'", "'r2'")
        assert "has its one receipt" in refusal(shell, other)
        if scene.version > 1:
            assert "Step is not leased" in refusal(shell, scene.fill(RENEWAL))
        assert dump(shell) == before
        committing = update("cassette_steps", "step_id = '{held}'", status="'COMMITTED'")
        assert refusal(shell, scene.fill(committing)) == ""
    assert without_the_chain(scene, scene.issues()) == []


@of_version_2
def test_a_step_with_a_receipt_is_not_requeued(scene: Scene, kind: str) -> None:
    with lawless_shell(scene.path) as shell:
        shell(scene.fill(RECEIPT.replace("{held}", "{late}").replace("{job}", "{job_2}")))
    with attacking(scene.path, kind) as shell:
        assert "Step is not leased" in refusal(shell, scene.fill(REQUEUE))


@pytest.mark.parametrize("rowid", ["-1", "0", "1000", "9223372036854775807"])
def test_a_message_at_a_rowid_of_its_choice_is_found(scene: Scene, kind: str, rowid: str) -> None:
    sql = MESSAGE.format(rowid="rowid, ", at=f"{rowid}, ")
    found = run(scene, kind, AFTER.format(table="cassette_messages"), sql)
    assert found == ["cassette_messages has rows missing or out of order"]


@pytest.mark.parametrize("table", ["cassette_jobs", "cassette_steps"])
def test_a_child_at_a_rowid_of_its_choice_is_found(scene: Scene, kind: str, table: str) -> None:
    found = run(
        scene,
        kind,
        AFTER.format(table=table),
        MESSAGE.format(rowid="", at=""),
        "INSERT INTO cassette_jobs (rowid, job_id, message_id, intent, ordinal) VALUES (70, 'j', 'm', 'i', 1)"
        if table == "cassette_jobs"
        else "INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', 'm', 'i', 1)",
        "INSERT INTO cassette_steps (rowid, step_id, job_id, ordinal, payload_json) VALUES (70, 's', 'j', 1, '{}')"
        if table == "cassette_steps"
        else "INSERT INTO cassette_steps (step_id, job_id, ordinal, payload_json) VALUES ('s', 'j', 1, '{}')",
    )
    assert f"{table} has rows missing or out of order" in found


@of_version_2
def test_a_step_without_its_order_is_found(scene: Scene, kind: str) -> None:
    found = run(
        scene,
        kind,
        AFTER.format(table="cassette_steps"),
        MESSAGE.format(rowid="", at=""),
        "INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', 'm', 'i', 1)",
        "INSERT INTO cassette_steps (step_id, job_id, ordinal, payload_json) VALUES ('s', 'j', 1, '{}')",
    )
    assert found == ["step s is not where its job and message are"]


@of_version_2
def test_a_requeue_that_frees_nothing_is_found(scene: Scene, kind: str) -> None:
    found = run(scene, kind, AFTER.format(table="cassette_requeues"), REQUEUE)
    assert found == [scene.fill("step {late} has token 2, is LEASED, and was requeued 2 times")]


@of_version_2
def test_a_requeue_that_frees_nothing_lets_nobody_keep_the_lease(scene: Scene, kind: str) -> None:
    """Its record allows to free the step, as it would have been, and nothing else."""
    with attacking(scene.path, kind) as shell:
        shell(AFTER.format(table="cassette_requeues"))
        shell(scene.fill(REQUEUE))
        cleared = {"lease_owner": "NULL", "lease_expires_at": "NULL"}
        for kept in (
            {"lease_owner": "'eve'"},
            {"lease_expires_at": "'{future}'"},
            {"fencing_token": "1"},
            {"claimed_at": "NULL"},
        ):
            freeing = update("cassette_steps", "step_id = '{late}'", status="'PENDING'", **(cleared | kept))
            assert "requeue clears them" in refusal(shell, scene.fill(freeing))
        freeing = update("cassette_steps", "step_id = '{late}'", status="'PENDING'", **cleared)
        assert refusal(shell, scene.fill(freeing)) == ""
    assert without_the_chain(scene, scene.issues()) == []


@of_version_2
def test_a_renewal_that_extends_nothing_is_found(scene: Scene, kind: str) -> None:
    found = run(scene, kind, AFTER.format(table="cassette_renewals"), RENEWAL)
    assert found == [scene.fill("step {held} has a lease that is not the one last renewed")]


@of_version_2
@pytest.mark.parametrize("table", ["cassette_requeues", "cassette_renewals"])
def test_a_record_that_does_nothing_is_not_replaced(scene: Scene, kind: str, table: str) -> None:
    record, name, words = {
        "cassette_requeues": (REQUEUE, "'q'", "this lease was requeued"),
        "cassette_renewals": (RENEWAL, "'n'", "this lease was renewed so"),
    }[table]
    with attacking(scene.path, kind) as shell:
        shell(AFTER.format(table=table))
        shell(scene.fill(record))
        before = dump(shell)
        again = scene.fill(record).replace("INSERT", "INSERT OR REPLACE").replace(name, "'another'")
        assert words in refusal(shell, again)
        assert dump(shell) == before


@of_version_2
def test_a_renewal_that_extends_nothing_lets_nobody_take_the_lease(scene: Scene, kind: str) -> None:
    """Its record allows to extend the lease, as it would have been, and nothing else."""
    with attacking(scene.path, kind) as shell:
        shell(AFTER.format(table="cassette_renewals"))
        shell(scene.fill(RENEWAL))
        before = dump(shell)
        later = {"lease_expires_at": "'{future}'"}
        for taken in ({"lease_owner": "'eve'"}, {"fencing_token": "2"}, {"claimed_at": "NULL"}):
            taking = update("cassette_steps", "step_id = '{held}'", **later, **taken)
            assert "LEASED -> LEASED" in refusal(shell, scene.fill(taking))
        assert dump(shell) == before
        extending = update("cassette_steps", "step_id = '{held}'", **later)
        assert refusal(shell, scene.fill(extending)) == ""
    assert without_the_chain(scene, scene.issues()) == []


@of_version_2
def test_a_job_that_slips_in_while_its_message_is_chained_is_found(scene: Scene, kind: str) -> None:
    """A BEFORE trigger of the attacker's runs after ours has looked, or before: then it is refused."""
    link = "INSERT INTO cassette_chain VALUES ({next}, 'message', 'm', '{end}', '{hash}')"
    with attacking(scene.path, kind) as shell:
        shell(MESSAGE.format(rowid="", at=""))
        shell(scene.fill(f"CREATE TEMP TRIGGER mine BEFORE INSERT ON main.cassette_jobs BEGIN {link}; END"))
        job = "INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', 'm', 'i', 1)"
        said = refusal(shell, job)
    found = [issue for issue in scene.issues() if "is not what was chained" in issue]
    assert "the message is chained" in said or found


def steal(shell: Shell, scene: Scene, owner: str) -> str:
    """Claim a step for one worker, and have it claimed and committed by another before that is written."""
    columns = "receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json"
    inner = (
        "UPDATE cassette_steps SET status = 'LEASED', lease_owner = 'bob', lease_expires_at = '{future}',"
        " fencing_token = fencing_token + 1 WHERE step_id = '{free}';"
        f"INSERT INTO cassette_receipts ({columns})"
        " VALUES ('r', '{free}', '{free_job}', 'bob', 1, 'SUCCESS', '{}');"
    )
    when = f"WHEN NEW.lease_owner = '{owner}'"
    shell(scene.fill(f"CREATE TEMP TRIGGER mine BEFORE UPDATE ON main.cassette_steps {when} BEGIN {inner} END"))
    return refusal(
        shell,
        scene.fill(
            f"UPDATE cassette_steps SET status = 'LEASED', lease_owner = '{owner}', fencing_token = 1,"
            " lease_expires_at = '{future}' WHERE step_id = '{free}'"
        ),
    )


@pytest.mark.parametrize("owner", ["eve", "bob"])
def test_a_claim_that_is_written_over_a_commit_is_found(scene: Scene, kind: str, owner: str) -> None:
    """Our triggers were told of the row as it was before the attacker's."""
    with attacking(scene.path, kind) as shell:
        assert steal(shell, scene, owner) == ""
    assert without_the_chain(scene, scene.issues()) == ["receipt r is for a step that is not COMMITTED"]


def test_a_trigger_that_skips_what_ours_do_gets_the_statement_refused(scene: Scene, kind: str) -> None:
    """The update inside of ours is skipped, and ours looks whether it happened."""
    skip = "CREATE TEMP TRIGGER mine BEFORE UPDATE ON main.cassette_steps BEGIN SELECT RAISE(IGNORE); END"
    scripts = [(RECEIPT, "a receipt commits its step")]
    if scene.version > 1:
        scripts += [(REQUEUE, "a requeue frees its step"), (RENEWAL, "a renewal extends its lease")]
    with attacking(scene.path, kind) as shell:
        before = dump(shell)
        shell(skip)
        for sql, words in scripts:
            assert words in refusal(shell, scene.fill(sql))
            assert dump(shell) == before


def test_a_trigger_that_skips_the_statement_itself_changes_nothing(scene: Scene, kind: str) -> None:
    with attacking(scene.path, kind) as shell:
        before = dump(shell)
        for table in ("cassette_messages", "cassette_receipts"):
            for moment in ("INSERT", "UPDATE", "DELETE"):
                name = f"{table}_{moment}"
                shell(f"CREATE TEMP TRIGGER {name} BEFORE {moment} ON main.{table} BEGIN SELECT RAISE(IGNORE); END")
            refusal(shell, f"DELETE FROM {table}")
            refusal(shell, f"UPDATE {table} SET created_at = 'x'")
        refusal(shell, scene.fill(RECEIPT))
        assert dump(shell) == before
    assert scene.issues() == scene.expected()
