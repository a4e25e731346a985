"""An attacker with the file and a shell: what the law forbids is refused in its own words, and nothing changes.

Foreign keys and CHECKs are off, and deletes by REPLACE fire no trigger (or do), with the oldest SQLite that the law
allows for and with the newest.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.contract.ledger import attacks, attacks_v2
from tests.contract.ledger.attacks import Attack
from tests.contract.ledger.scenes import Scene
from tests.contract.ledger.shells import ERRORS, SHELLS, Shell, attacking, dump, lawless_shell

in_every_way = pytest.mark.parametrize(
    ("kind", "recursive"), [(kind, recursive) for kind in SHELLS for recursive in (False, True)]
)
of_version_2 = pytest.mark.parametrize("version", [2], indirect=True)


def refusal(shell: Shell, sql: str) -> str:
    """Return the words of a refusal, or nothing if there was none."""
    try:
        shell(sql)
    except ERRORS as error:
        return str(error)
    return ""


def withstand(
    scene: Scene, group: Callable[[], Iterator[Attack]], kind: str, *, recursive: bool, first: Sequence[str] = ()
) -> None:
    with attacking(scene.path, kind, recursive=recursive) as shell:
        for sql in first:
            shell(sql)
        before = dump(shell)
        for attack in group():
            if scene.version in attack.versions:
                said = refusal(shell, scene.fill(attack.sql))
                assert re.search(attack.words, said), f"{attack.sql}: {said or 'accepted'}"
                assert dump(shell) == before, attack.sql
    outside = ["chain: message m was written outside of it"] if first else []
    assert scene.issues() == outside + scene.expected()


@pytest.mark.req("L2")
@in_every_way
def test_no_row_takes_the_place_of_another(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.replacing, kind, recursive=recursive)


@pytest.mark.req("L2")
@in_every_way
def test_nobody_chooses_where_a_row_stands(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.placing, kind, recursive=recursive)


@pytest.mark.req("L2")
@in_every_way
def test_what_was_written_is_neither_changed_nor_deleted(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.rewriting, kind, recursive=recursive)


@pytest.mark.req("L2")
@in_every_way
def test_what_is_no_row_of_a_ledger_is_not_inserted(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.malformed, kind, recursive=recursive)


@pytest.mark.req("L2")
@in_every_way
def test_a_step_is_in_no_state_that_it_did_not_come_to(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.skipping, kind, recursive=recursive)


@pytest.mark.req("L2", "L3")
@in_every_way
def test_a_lease_is_whole_and_raises_the_token_by_one(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.leasing, kind, recursive=recursive)


@pytest.mark.req("L2")
@in_every_way
def test_a_receipt_is_for_the_live_lease_and_for_no_other(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks.receipting, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_records_and_the_order_of_steps_are_neither_changed_nor_deleted(
    scene: Scene, kind: str, *, recursive: bool
) -> None:
    withstand(scene, attacks_v2.rewriting, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_a_chained_message_takes_no_more_jobs_and_steps(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks_v2.growing, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_a_message_that_is_not_chained_yet_takes_lawful_rows_only(
    scene: Scene, kind: str, *, recursive: bool
) -> None:
    withstand(scene, attacks_v2.opening, kind, recursive=recursive, first=attacks_v2.OPEN)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_a_lease_is_longer_only_with_a_record_and_claimed_now(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks_v2.claiming, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_a_requeue_is_of_the_lease_that_expired_and_once(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks_v2.requeuing, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_a_renewal_is_of_the_live_lease_and_never_shortens_it(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks_v2.renewing, kind, recursive=recursive)


@pytest.mark.req("L2")
@of_version_2
@in_every_way
def test_the_chain_grows_by_one_fitting_link_at_its_end(scene: Scene, kind: str, *, recursive: bool) -> None:
    withstand(scene, attacks_v2.chaining, kind, recursive=recursive)


@pytest.mark.req("L2")
def test_a_refused_statement_leaves_the_rest_of_its_transaction(scene: Scene) -> None:
    """One that is lawful and one that is not: the shell decides about the first, the law about the second."""
    with attacking(scene.path) as shell:
        shell("BEGIN")
        shell(scene.fill("UPDATE cassette_steps SET status = 'PENDING' WHERE step_id = '{free}'"))
        assert "PENDING -> COMMITTED" in refusal(
            shell, scene.fill("UPDATE cassette_steps SET status = 'COMMITTED' WHERE step_id = '{free}'")
        )
        shell("COMMIT")
    assert scene.issues() == scene.expected()


@pytest.mark.req("L2")
@pytest.mark.parametrize("kind", SHELLS)
def test_tables_of_the_same_name_elsewhere_do_not_mislead_the_law(scene: Scene, kind: str) -> None:
    """Triggers ask the tables of their own file, whatever a connection has under these names."""
    with attacking(scene.path, kind) as shell:
        before = dump(shell)
        shell("CREATE TEMP TABLE cassette_receipts AS SELECT * FROM main.cassette_receipts")
        shell(
            scene.fill("UPDATE temp.cassette_receipts SET step_id = '{held}', worker_id = 'ben', fencing_token = 1")
        )
        committing = scene.fill("UPDATE main.cassette_steps SET status = 'COMMITTED' WHERE step_id = '{held}'")
        assert "LEASED -> COMMITTED" in refusal(shell, committing)
        shell("CREATE TEMP VIEW cassette_jobs AS SELECT 'ghost' AS job_id, 'x' AS message_id, 1 AS ordinal")
        columns = "step_id, job_id, ordinal, payload_json"
        orphan = f"INSERT INTO main.cassette_steps ({columns}) VALUES ('s', 'ghost', 1, '{{}}')"  # noqa: S608
        assert "FOREIGN KEY" in refusal(shell, orphan)
        assert dump(shell) == before
    with attacking(scene.path.parent / "elsewhere.db", kind) as shell:
        shell("ATTACH ? AS victim", (str(scene.path),))
        shell("CREATE TABLE cassette_messages (message_id)")
        assert "append-only" in refusal(shell, "DELETE FROM victim.cassette_messages")
    assert scene.issues() == scene.expected()


@pytest.mark.req("L2")
@pytest.mark.parametrize("kind", SHELLS)
def test_vacuum_analyze_and_a_copy_leave_a_ledger_as_it_is(scene: Scene, kind: str) -> None:
    copy = scene.path.parent / "copy.db"
    with attacking(scene.path, kind) as shell:
        before = dump(shell)
        shell("VACUUM")
        shell("REINDEX")
        assert dump(shell) == before
        shell("VACUUM INTO ?", (str(copy),))
        shell("ANALYZE")
    assert scene.issues() == scene.expected()
    assert Scene(copy, scene.version, scene.names).issues() == scene.expected()


@pytest.mark.req("L2", "L3")
@of_version_2
@pytest.mark.parametrize("kind", SHELLS)
def test_an_order_is_that_of_job_and_message(scene: Scene, kind: str) -> None:
    """Of a message that is not chained yet: who says the order of a step says the right one."""
    wrong = (
        {"run_id": "'weekly'", "message_order": "4", "job_ordinal": "3"},
        {"run_id": "'nightly'", "message_order": "1", "job_ordinal": "3"},
        {"run_id": "'nightly'", "message_order": "4", "job_ordinal": "1"},
        {"run_id": "'nightly'", "message_order": "4"},
    )
    with attacking(scene.path, kind) as shell:
        shell(attacks.insert("cassette_messages", **attacks.MESSAGE))
        shell(attacks.insert("cassette_jobs", **(attacks.JOB | {"message_id": "'m'", "ordinal": "3"})))
        step = attacks.STEP | {"job_id": "'j'"}
        before = dump(shell)
        for order in wrong:
            assert "order of a step" in refusal(shell, attacks.insert("cassette_steps", **step, **order))
            assert dump(shell) == before
        right = {"run_id": "'nightly'", "message_order": "4", "job_ordinal": "3"}
        shell(attacks.insert("cassette_steps", **step, **right))
    assert [issue for issue in scene.issues() if issue not in scene.expected()] == [
        "chain: message m was written outside of it"
    ]


@pytest.mark.req("L2")
@pytest.mark.parametrize("kind", SHELLS)
def test_whose_ledger_it_is_is_said_once_and_in_hex(scene: Scene, kind: str) -> None:
    with lawless_shell(scene.path) as shell:
        shell("DELETE FROM cassette_meta WHERE key = 'ledger_id'")
    with attacking(scene.path, kind) as shell:
        for wrong in ("'0123456789ABCDEF'", "'0123'", "''", "'0123456789abcdef0'"):
            sql = attacks.insert("cassette_meta", "OR REPLACE", key="'ledger_id'", value=wrong)
            assert "append-only" in refusal(shell, sql), wrong
        named = attacks.insert("cassette_meta", key="'ledger_id'", value="'0123456789abcdef'")
        assert refusal(shell, named) == ""
        assert "append-only" in refusal(shell, named.replace("0123", "3210").replace("INSERT", "INSERT OR REPLACE"))
