"""Databases, planted with damage for real."""

from pathlib import Path

import apsw
import pytest

from claudemesh.broker.stores.sqlite import SCHEMA as BROKER
from claudemesh.cli.doctor.checks import delivery, stores
from claudemesh.cli.doctor.model import Verdict
from claudemesh.daemon.stores.sqlite.inbox import SCHEMA as INBOX
from claudemesh.daemon.stores.sqlite.outbox import SCHEMA as OUTBOX
from claudemesh.edge.stores.sqlite.outbox import SCHEMA as EDGE
from claudemesh.hub.stores.sqlite import SCHEMA as HUB
from claudemesh.idempotency.stores.sqlite import SCHEMA as KEYS
from claudemesh.kernel.errors import DeadlineExceeded, StoreCorrupt
from claudemesh.ledger import MessageCassette
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.storage.sqlite.database import Database
from claudemesh.storage.sqlite.inspect import count_rows, looking
from tests.unit.cli.doctor.conftest import Judge, Look

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
DAY_MS = 86_400_000


@pytest.fixture
def everything(home: Home, state_dir: Path) -> dict[str, Path]:
    """Make each database of a home, and close it."""
    home.ensure_dir(home.edge_dir)
    kinds = {
        state_dir / "outbox.db": OUTBOX,
        state_dir / "inbox.db": INBOX,
        home.broker_db: BROKER,
        home.hub_db: HUB,
        home.edge_dir / "outbox.db": EDGE,
        home.ensure_dir(home.root / "mcp") / "keys.db": KEYS,
    }
    for path, schema in kinds.items():
        Database.open(path, schema).close()
    with MessageCassette(db_path=home.root / "ledger.db") as ledger:
        ledger.post_message({"a": 1}, "run", "USER")
    titles = ("outbox of demo", "inbox of demo", "broker", "hub", "relay", "keys of agents", "ledger")
    return dict(zip(titles, [*kinds, home.root / "ledger.db"], strict=True))


def change(path: Path, *statements: str, values: tuple[str | int | bytes, ...] = ()) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement, values).fetchall()
    connection.close()


def tear(path: Path) -> None:
    """Overwrite every page but the first: what a bad disk does."""
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


@pytest.mark.req("C5")
def test_sound_databases_pass_and_the_look_changes_none_of_them(look: Look, everything: dict[str, Path]) -> None:
    before = {title: path.read_bytes() for title, path in everything.items()}
    found = look(stores.integrity)
    assert {one.subject: one.verdict for one in found} == dict.fromkeys(everything, Verdict.OK)
    assert {title: path.read_bytes() for title, path in everything.items()} == before


@pytest.mark.req("C5")
def test_they_are_looked_at_from_a_folder_that_was_removed_too(
    look: Look, everything: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert {one.subject: one.verdict for one in look(stores.integrity)} == dict.fromkeys(everything, Verdict.OK)


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    "title", ["outbox of demo", "inbox of demo", "broker", "hub", "relay", "keys of agents", "ledger"]
)
def test_a_torn_page_fails_its_own_database_and_no_other(
    look: Look, everything: dict[str, Path], title: str
) -> None:
    tear(everything[title])
    found = {one.subject: one for one in look(stores.integrity)}
    assert {subject for subject, one in found.items() if one.verdict is Verdict.FAIL} == {title}
    assert found[title].fix


@pytest.mark.req("C5")
def test_a_ledger_that_was_rewritten_fails(look: Look, everything: dict[str, Path]) -> None:
    change(
        everything["ledger"], "DROP TRIGGER IF EXISTS cassette_messages_immutable", "DROP TABLE cassette_receipts"
    )
    found = {one.subject: one for one in look(stores.integrity)}
    assert found["ledger"].verdict is Verdict.FAIL


@pytest.mark.req("C5")
@pytest.mark.parametrize("statement", ["PRAGMA user_version = 99", "PRAGMA application_id = 7"])
def test_a_file_of_a_newer_program_or_of_another_one_fails(
    look: Look, everything: dict[str, Path], statement: str
) -> None:
    change(everything["inbox of demo"], statement)
    found = {one.subject: one for one in look(stores.integrity)}
    assert found["inbox of demo"].verdict is Verdict.FAIL


@pytest.mark.req("C5")
def test_what_is_in_the_place_of_a_database_is_told_and_not_followed(
    look: Look, home: Home, everything: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "theirs.db").write_bytes(everything["hub"].read_bytes())
    everything["hub"].unlink()
    everything["hub"].symlink_to(tmp_path / "theirs.db")
    everything["broker"].write_bytes(b"not a database" * 1000)
    everything["relay"].unlink()
    everything["relay"].mkdir()
    assert home.root.exists()
    found = {one.subject: one.verdict for one in look(stores.integrity)}
    assert {found["broker"], found["hub"], found["relay"]} == {Verdict.FAIL}
    assert found["outbox of demo"] is Verdict.OK


def test_a_look_ends_when_its_time_is_up(everything: dict[str, Path]) -> None:
    with (
        pytest.raises(DeadlineExceeded),
        looking(everything["hub"], SystemClock(), 0) as connection,
    ):
        connection.execute(ENDLESS).fetchall()


def test_a_look_writes_nothing_and_others_write_meanwhile(everything: dict[str, Path]) -> None:
    with looking(everything["outbox of demo"], SystemClock(), 30) as connection:
        before = count_rows(connection)["remembered"]
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("INSERT INTO remembered VALUES ('a', 'b')")
        change(everything["outbox of demo"], "INSERT INTO remembered VALUES ('a', 'b')")
        assert count_rows(connection)["remembered"] == before


@pytest.mark.req("C5", "D11")
@pytest.mark.parametrize(("kib", "expected"), [(0, Verdict.OK), (850, Verdict.WARN), (1000, Verdict.FAIL)])
def test_room_is_judged_by_what_is_reserved(
    look: Look, state_dir: Path, everything: dict[str, Path], kib: int, expected: Verdict
) -> None:
    (state_dir / "config.toml").write_text("[disk]\nreserved_bytes = 1_048_576\n")
    change(everything["outbox of demo"], "INSERT INTO remembered VALUES ('large', ?)", values=("x" * kib * 1024,))
    found = {one.subject: one.verdict for one in look(stores.pressure)}
    assert found == {"outbox of demo": expected, "inbox of demo": Verdict.OK}


# --- rows --------------------------------------------------------------------------------------------------


ROW = """
INSERT INTO outbox (
    id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at, status
) VALUES ('r', 'c', zeroblob(32), 'bob', 'bob', x'00', ?, 0, ?)
"""


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("status", "age_ms", "expected"),
    [
        ("pending", 0, Verdict.OK),
        ("pending", DAY_MS // 24, Verdict.WARN),
        ("pending", 30 * DAY_MS, Verdict.FAIL),
        ("dead", 0, Verdict.FAIL),
    ],
)
def test_rows_that_nobody_sends_any_more_are_told(
    verdict: Judge, everything: dict[str, Path], status: str, age_ms: int, expected: Verdict
) -> None:
    assert verdict(delivery.outbox) is Verdict.OK
    change(everything["outbox of demo"], ROW, values=(SystemClock().wall_ms() - age_ms, status))
    assert verdict(delivery.outbox) is expected


def test_a_look_at_a_file_that_lost_its_content_leaves_its_log(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    (tmp_path / "a.db-wal").write_bytes(b"what was written last, and nowhere else " * 100)
    with (
        pytest.raises(StoreCorrupt, match="still holds writes"),
        looking(tmp_path / "a.db", SystemClock(), 30) as connection,
    ):
        count_rows(connection)
    assert (tmp_path / "a.db-wal").stat().st_size == 4_000
