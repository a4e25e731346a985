"""From version 1 to version 2: when it is asked for, at once or not at all, and with everything that stands."""

from pathlib import Path

import pytest

from claudemesh.kernel.errors import CassetteAltered
from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.stores.sqlite import law
from claudemesh.runtime import points
from tests.contract.ledger.scenes import RUN, Scene, make_ledger, set_scene
from tests.contract.ledger.shells import Shell, dump, newest_shell

pytestmark = pytest.mark.req("L7")

COLUMNS = {
    "messages": "rowid, message_id, run_id, source, idempotency_key, payload_json, created_at",
    "jobs": "rowid, job_id, message_id, intent, ordinal, created_at",
    "steps": (
        "rowid, step_id, job_id, ordinal, status, lease_owner, lease_expires_at, fencing_token, payload_json,"
        " created_at"
    ),
    "receipts": "rowid, *",
}


@pytest.fixture
def version() -> int:
    return 1


def old_rows(shell: Shell) -> dict[str, object]:
    return {table: shell(f"SELECT {columns} FROM cassette_{table}") for table, columns in COLUMNS.items()}  # noqa: S608


def test_new_ledgers_are_of_version_2(path: Path) -> None:
    with MessageCassette(db_path=path) as ledger:
        assert ledger.read_version() == 2
        assert ledger.upgrade() == (2, 2)


def test_a_ledger_of_version_1_stays_so_until_it_is_upgraded(scene: Scene) -> None:
    for _ in range(2):
        with scene.ledger() as ledger:
            ledger.post_message({}, RUN, "USER")
            assert ledger.read_version() == 1
            assert ledger.find_issues() == scene.expected()


def test_everything_that_stands_is_kept_live_leases_too(scene: Scene) -> None:
    with newest_shell(scene.path) as shell:
        before = old_rows(shell)
    with scene.ledger() as ledger:
        assert ledger.upgrade() == (1, 2)
        assert ledger.find_issues() == scene.expected()
        with newest_shell(scene.path) as shell:
            assert old_rows(shell) == before
            meta = dict(shell("SELECT key, value FROM cassette_meta"))
        assert meta["db_version"] == meta["schema_version"] == "2"
        assert ledger.complete_step(RUN, scene.names["held"], "ben", 1, {}, "SUCCESS")
        assert ledger.requeue_step(RUN, scene.names["late"])
        assert [ledger.claim_step(RUN, "eve")["step_id"] for _ in range(2)] == [
            scene.names["late"],
            scene.names["free"],
        ]
        assert ledger.find_issues() == []


@pytest.mark.req("L10")
def test_the_chain_covers_what_was_there_before(scene: Scene) -> None:
    with scene.ledger() as ledger:
        ledger.upgrade()
    with newest_shell(scene.path) as shell:
        links = shell("SELECT kind, row_id FROM cassette_chain ORDER BY seq")
    names = scene.names
    assert links == [
        ("message", names["message"]),
        ("message", names["second"]),
        ("message", names["other"]),
        ("receipt", names["receipt"]),
    ]


def test_an_upgraded_ledger_has_the_schema_of_a_new_one(scene: Scene, tmp_path: Path) -> None:
    make_ledger(tmp_path / "new.db", 2).close()
    with scene.ledger() as ledger:
        ledger.upgrade()
    with newest_shell(scene.path) as upgraded, newest_shell(tmp_path / "new.db") as new:
        assert dump(upgraded)["schema"] == dump(new)["schema"]


def test_an_upgrade_is_done_once(scene: Scene) -> None:
    with scene.ledger() as ledger:
        assert ledger.upgrade() == (1, 2)
        with newest_shell(scene.path) as shell:
            before = dump(shell)
            assert ledger.upgrade() == (2, 2)
            assert dump(shell) == before


def test_who_had_it_open_writes_version_2_from_then_on(scene: Scene) -> None:
    with scene.ledger() as early, scene.ledger() as ledger:
        early.post_message({"n": 1}, RUN, "USER")
        assert ledger.upgrade() == (1, 2)
        early.post_message({"n": 2}, RUN, "USER")
        assert early.upgrade() == (2, 2)
        early.requeue_expired(RUN)
        assert early.find_issues() == ledger.find_issues() == []
        assert early.read_end()[1].seq == 7, "what it wrote after is chained"


def test_who_upgraded_writes_version_2_from_then_on(scene: Scene) -> None:
    with scene.ledger() as ledger:
        ledger.post_message({"n": 1}, RUN, "USER")
        ledger.upgrade()
        ledger.post_message({"n": 2}, RUN, "USER")
        assert ledger.find_issues() == scene.expected()
        assert ledger.read_end()[1].seq == 6


def test_an_upgrade_that_dies_leaves_version_1_whole(scene: Scene) -> None:
    def die() -> None:
        raise MemoryError

    with newest_shell(scene.path) as shell:
        before = dump(shell)
        with scene.ledger() as ledger:
            points.arm("ledger.before_commit", die)
            with pytest.raises(MemoryError):
                ledger.upgrade()
            points.disarm_all()
            assert dump(shell) == before
            assert ledger.find_issues() == scene.expected()
            ledger.post_message({}, RUN, "USER")
            assert ledger.read_version() == 1
            assert ledger.upgrade() == (1, 2)
            assert ledger.find_issues() == scene.expected()


def test_an_altered_ledger_is_not_upgraded(scene: Scene) -> None:
    with newest_shell(scene.path) as shell:
        shell("DROP TRIGGER tr_steps_fsm_illegal_3")
        before = dump(shell)
        with scene.ledger() as ledger, pytest.raises(CassetteAltered):
            ledger.upgrade()
        assert dump(shell) == before


def test_a_ledger_that_is_newer_than_this_program_is_neither_written_nor_upgraded(scene: Scene) -> None:
    text = str(next(one.sql for one in law.objects_of(1) if one.name == "tr_meta_append_only_update"))
    with newest_shell(scene.path) as shell:
        shell("DROP TRIGGER tr_meta_append_only_update")
        shell("UPDATE cassette_meta SET value = '3'")
        shell(text)
    with scene.ledger() as ledger:
        for write in (ledger.upgrade, lambda: ledger.claim_step(RUN, "eve")):
            with pytest.raises(CassetteAltered, match="version 3, and this program knows 1 to 2"):
                write()


def test_a_text_that_cannot_be_chained_is_not_upgraded(tmp_path: Path) -> None:
    """Only raw SQL writes one; the ledger stays as it is."""
    scene = set_scene(tmp_path, 1)
    with newest_shell(scene.path) as shell:
        columns = "message_id, run_id, source, payload_json"
        shell(f"INSERT INTO cassette_messages ({columns}) VALUES ('m', 'r', 'USER', CAST(x'22ff22' AS TEXT))")  # noqa: S608
    with scene.ledger() as ledger:
        with pytest.raises(MessageCassetteError, match="not UTF-8"):
            ledger.upgrade()
        assert ledger.read_version() == 1
        ledger.post_message({}, RUN, "USER")
