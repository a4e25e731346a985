"""What SQLite cannot prevent is found: a schema that is not the law's. And no write happens while that lasts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from claudemesh.kernel.errors import CassetteAltered
from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.stores.sqlite import law
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.scenes import OTHER_RUN, RUN, Scene, set_scene
from tests.contract.ledger.shells import Shell, attacking, dump, newest_shell

TRIGGERS = sorted(
    (version, one.name) for version in (1, 2) for one in law.objects_of(version) if one.type == "trigger"
)


def writes(scene: Scene) -> dict[str, Callable[[MessageCassette], object]]:
    """Return every write that there is, each of them lawful on the scene as it was."""
    names = scene.names
    return {
        "post": lambda ledger: ledger.post_message({}, RUN, "USER"),
        "post again": lambda ledger: ledger.post_message({"intent": "sweep"}, OTHER_RUN, "SYSTEM", "key-1"),
        "claim": lambda ledger: ledger.claim_step(RUN, "eve"),
        "complete": lambda ledger: ledger.complete_step(RUN, names["held"], "ben", 1, {}, "SUCCESS"),
        "requeue": lambda ledger: ledger.requeue_step(RUN, names["late"]),
        "requeue all": lambda ledger: ledger.requeue_expired(RUN),
        "renew": lambda ledger: ledger.renew_lease(RUN, names["held"], "ben", 1, 60),
        "upgrade": lambda ledger: ledger.upgrade(),
    }


def break_and_find(scene: Scene, *script: str) -> list[str]:
    """Run statements on the file; return what is found that was not wrong before. Opening changes nothing."""
    with newest_shell(scene.path) as shell:
        for sql in script:
            shell(scene.fill(sql))
        before = dump(shell)
    with scene.ledger() as ledger:
        found = [issue for issue in ledger.find_issues() if issue not in scene.expected()]
        for name, write in writes(scene).items():
            with pytest.raises(CassetteAltered) as caught:
                write(ledger)
            assert caught.value.code == "ledger_altered", name
    with newest_shell(scene.path) as shell:
        assert dump(shell) == before
    return found


# --- triggers, indexes and tables ----------------------------------------------------------------------


@pytest.mark.req("L2", "L6")
@pytest.mark.parametrize(("version", "trigger"), TRIGGERS)
def test_a_dropped_trigger_is_reported_and_stops_every_write(tmp_path: Path, version: int, trigger: str) -> None:
    scene = set_scene(tmp_path, version)
    assert break_and_find(scene, f"DROP TRIGGER {trigger}") == [f"trigger {trigger} is missing"]


@pytest.mark.req("L2", "L6")
def test_an_altered_trigger_is_reported_and_stops_every_write(scene: Scene) -> None:
    found = break_and_find(
        scene,
        "DROP TRIGGER tr_messages_append_only_update",
        "CREATE TRIGGER tr_messages_append_only_update BEFORE UPDATE ON cassette_messages BEGIN SELECT 1; END",
    )
    assert found == ["trigger tr_messages_append_only_update was altered"]


@pytest.mark.req("L2", "L6")
@pytest.mark.parametrize("table", ["cassette_steps", "CASSETTE_STEPS"])
def test_an_added_trigger_is_reported_and_stops_every_write(scene: Scene, table: str) -> None:
    added = f"CREATE TRIGGER mine AFTER INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END"
    assert break_and_find(scene, added) == ["trigger mine is not the law's"]


@pytest.mark.req("L2", "L6")
def test_a_schema_edited_by_hand_is_reported_and_stops_every_write(scene: Scene) -> None:
    """Neither by DROP nor by CREATE: in the table that SQLite keeps its schema in."""
    found = break_and_find(
        scene,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'append-only', 'append') WHERE name LIKE 'tr_receipts_app%'",
        "PRAGMA writable_schema = RESET",
    )
    assert found == [
        "trigger tr_receipts_append_only_delete was altered",
        "trigger tr_receipts_append_only_update was altered",
    ]


@pytest.mark.req("L2", "L6")
def test_a_constraint_edited_by_hand_is_reported_and_stops_every_write(scene: Scene) -> None:
    found = break_and_find(
        scene,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'ABORTED', 'GIVEN_UP') WHERE name = 'cassette_receipts'",
        "PRAGMA writable_schema = RESET",
    )
    assert found == ["table cassette_receipts was altered"]


@pytest.mark.req("L2", "L6")
def test_a_column_or_an_index_too_many_is_reported_and_stops_every_write(scene: Scene) -> None:
    found = break_and_find(
        scene,
        "ALTER TABLE cassette_jobs ADD COLUMN note TEXT",
        "CREATE UNIQUE INDEX mine ON cassette_messages (run_id, source, payload_json)",
    )
    assert found == ["table cassette_jobs was altered", "index mine is not the law's"]


@pytest.mark.req("L2", "L6")
@pytest.mark.parametrize("version", [2], indirect=True)
@pytest.mark.parametrize("index", ["ix_steps_open", "ix_chain_messages"])
def test_a_dropped_index_is_reported_and_stops_every_write(scene: Scene, index: str) -> None:
    assert break_and_find(scene, f"DROP INDEX {index}") == [f"index {index} is missing"]


@pytest.mark.req("L2", "L6")
@pytest.mark.parametrize("table", ["cassette_receipts", "cassette_jobs", "cassette_messages"])
def test_a_dropped_table_is_reported_and_the_rest_is_still_checked(scene: Scene, table: str) -> None:
    found = break_and_find(scene, f"DROP TABLE {table}")
    assert f"table {table} is missing" in found
    assert any("cannot be checked" in issue and table in issue for issue in found)
    assert len(found) > 3


@pytest.mark.req("L2", "L6")
def test_a_ledger_that_does_not_say_its_version_is_reported_and_not_written(scene: Scene) -> None:
    assert break_and_find(scene, "DROP TABLE cassette_meta") == ["cassette_meta does not say a version"]


@pytest.mark.req("L2", "L7")
@pytest.mark.parametrize("said", ["3", "0", "two", "-1", ""])
def test_a_version_that_nobody_knows_is_reported_and_not_written(scene: Scene, said: str) -> None:
    text = next(one.sql for one in law.objects_of(scene.version) if one.name == "tr_meta_append_only_update")
    found = break_and_find(
        scene,
        "DROP TRIGGER tr_meta_append_only_update",
        f"UPDATE cassette_meta SET value = '{said}' WHERE key = 'db_version'",  # noqa: S608
        str(text),
    )
    number = f"the ledger has version {said}, and this program knows 1 to 2"
    assert found == [number if said.isdecimal() else "cassette_meta does not say a version"]


@pytest.mark.req("L2", "L6")
@pytest.mark.parametrize("version", [2], indirect=True)
def test_a_ledger_that_calls_itself_older_than_it_is_is_reported(scene: Scene) -> None:
    text = next(one.sql for one in law.objects_of(2) if one.name == "tr_meta_append_only_update")
    found = break_and_find(
        scene,
        "DROP TRIGGER tr_meta_append_only_update",
        "UPDATE cassette_meta SET value = '1' WHERE key = 'db_version'",
        str(text),
    )
    assert "table cassette_steps was altered" in found
    assert "trigger tr_jobs_sealed is not the law's" in found


# --- while it lasts, and for whom ----------------------------------------------------------------------


@pytest.mark.req("L2")
def test_a_ledger_that_is_open_notices_at_its_next_write_and_goes_on_when_it_is_repaired(scene: Scene) -> None:
    text = str(next(one.sql for one in law.objects_of(scene.version) if one.name == "tr_jobs_in_order"))
    with scene.ledger() as ledger, newest_shell(scene.path) as shell:
        ledger.post_message({}, RUN, "USER")
        shell("DROP TRIGGER tr_jobs_in_order")
        for _ in range(2):
            with pytest.raises(CassetteAltered, match="tr_jobs_in_order is missing"):
                ledger.post_message({}, RUN, "USER")
        shell(text)
        ledger.post_message({}, RUN, "USER")
        assert ledger.find_issues() == scene.expected()


@pytest.mark.req("L2")
def test_other_tables_of_the_file_are_nobodys_business(scene: Scene) -> None:
    def add(shell: Shell) -> None:
        shell("CREATE TABLE sections (id INTEGER PRIMARY KEY, cassette_steps TEXT)")
        shell("CREATE INDEX ix_sections ON sections (cassette_steps)")
        shell("CREATE TRIGGER tr_sections AFTER INSERT ON sections BEGIN SELECT 1; END")
        shell("CREATE VIEW cassette_view AS SELECT * FROM cassette_steps")
        shell("INSERT INTO sections VALUES (7, 'x')")

    with attacking(scene.path) as shell:
        add(shell)
    with scene.ledger() as ledger:
        assert ledger.find_issues() == scene.expected()
        ledger.post_message({}, RUN, "USER")
        ledger.upgrade()
    with newest_shell(scene.path) as shell:
        assert shell("SELECT * FROM sections") == [(7, "x")]


# --- leases, and how it is said ------------------------------------------------------------------------


@pytest.mark.req("L6")
def test_a_lease_that_expired_is_an_issue_of_its_run(
    ledger: MessageCassette, clock: LedgerClock, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.post_message({}, RUN, "USER")
    ledger.post_message({}, OTHER_RUN, "USER")
    step = ledger.claim_step(RUN, "ann", ttl_seconds=10)
    clock.advance(9.999)
    ledger.verify_cassette()
    clock.advance(0.001)
    ledger.verify_cassette(OTHER_RUN)
    assert capsys.readouterr().err == "PASS: All invariants verified\n" * 2
    for run in (None, RUN):
        with pytest.raises(MessageCassetteError, match="lease expired") as caught:
            ledger.verify_cassette(run)
        said = f"lease expired: step {step['step_id']} of run {RUN}, held by ann until {clock.now}"
        assert caught.value.extras == {"issues": [said]}
        assert capsys.readouterr().err == "FAIL: 1 issue(s) found\n"


@pytest.mark.req("L6")
def test_all_that_is_wrong_is_counted(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    with newest_shell(scene.path) as shell:
        shell("DROP TRIGGER tr_jobs_in_order")
        shell("DROP TRIGGER tr_steps_fsm_illegal_1")
    with scene.ledger() as ledger, pytest.raises(MessageCassetteError):
        ledger.verify_cassette()
    assert capsys.readouterr().err == "FAIL: 3 issue(s) found\n"
