"""SQLite is copied by ranges of numbers: rows of history up to marks, journals up to the moment."""

import shutil
from pathlib import Path

import apsw
import pytest

import claudemesh
from claudemesh.pipeline.catalogue import BROKER, INBOX, KINDS, OUTBOX
from claudemesh.pipeline.shapes import TOMBSTONE, Grave, Growth, Kind, Series, Table
from claudemesh.pipeline.sources import sqlite
from claudemesh.pipeline.sources.sqlite import SqliteStore
from claudemesh.pipeline.stores import find_stores, open_stores
from tests.contract.pipeline.pulling import Copy
from tests.contract.pipeline.visits import VISIT
from tests.spark.stores import writing

OF_ALL, OF_A_DAEMON = (
    Path(claudemesh.__file__).parent / package / "stores" / "sqlite" / "migrations"
    for package in ("outbox", "daemon")
)
OUTBOX_SCHEMA = "\n".join(
    path.read_text() for path in (OF_ALL / "0001_outbox.sql", OF_A_DAEMON / "outbox" / "0001_sends.sql")
)
INBOX_SCHEMA = (OF_A_DAEMON / "inbox" / "0001_inbox.sql").read_text()


def make(path: Path, schema: str, *statements: str) -> None:
    """Change a file and close it: what is open twice in one process loses its locks."""
    connection = apsw.Connection(str(path))
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        connection.execute(schema)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.req("S1")
def test_a_brokers_store_is_copied_once_and_what_is_deleted_has_its_tombstone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/broker.db"
    copy = Copy(SqliteStore(tmp_path / "broker.db", BROKER))
    with writing(url) as writer:
        writer.say("old 3")
        writer.say("fill 20")
        copy.pull()
        assert copy.counts["message_history"] == len(copy.rows["message_history"]) == 23
        writer.say("sweep")
        writer.say("fill 4")
        copy.pull()
        assert copy.pull() == 0
    history = copy.rows["message_history"]
    assert len(history) == len({(row["mesh_id"], row["history_id"]) for row in history}) == 27
    assert len(copy.rows["client_message_dedupe"]) == len(
        {*copy.values("client_message_dedupe", "broker_message_id")}
    )
    gone = {row["broker_message_id"] for row in copy.rows["tombstone"] if row["what"] == "message"}
    assert len(gone) == 3
    assert copy.counts["message_history"] == len(history) - len(gone)
    assert {row["slug"] for row in copy.wholes["mesh"]} == {"demo", "past"}


@pytest.mark.req("S1")
def test_what_happened_to_leases_is_copied_once_in_its_order(tmp_path: Path) -> None:
    copy = Copy(SqliteStore(tmp_path / "broker.db", BROKER))
    with writing(f"sqlite:///{tmp_path}/broker.db") as writer:
        writer.say("visit 2")
        copy.pull()
        writer.say("visit 1")
        assert copy.pull() == len(VISIT)
        assert copy.pull() == 0
    events = copy.rows["presence_event"]
    assert [event["what"] for event in events] == 3 * VISIT
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})
    assert [event["seq"] for event in events if event["seq"] is not None] == [1, 2, 3, 4, 5, 6]
    assert len({(event["presence_uid"], event["session_pubkey"]) for event in events}) == 3


@pytest.mark.req("S1")
def test_of_leases_a_cut_has_all_that_its_moment_has_and_a_file_without_them_went_back(tmp_path: Path) -> None:
    """They are a journal: read in the moment of the cut, and not up to the marks before it."""
    store = SqliteStore(tmp_path / "broker.db", BROKER)
    with writing(f"sqlite:///{tmp_path}/broker.db") as writer:
        moments = store.moments()
        first = next(moments)
        writer.say("visit 1")
        second = next(moments)
        assert second.position["presence_event"][0][0] == first.position["presence_event"][0][0] + len(VISIT)
        assert second.has_news(first.position)
        assert first.went_back(second.position)
        assert list(moments) == []


@pytest.mark.req("S1")
def test_what_was_committed_after_the_marks_is_for_the_next_cut(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "broker.db", BROKER)
    with writing(f"sqlite:///{tmp_path}/broker.db") as writer:
        writer.say("fill 4")
        moments = store.moments()
        first = next(moments)
        writer.say("fill 4")
        second = next(moments)
        assert second.position["history"] == first.position["history"]
        assert second.count(None, {})["message_history"] == 4
        assert [row["history_id"] for row in second.whole(store.kind.table("history_counter")).to_pylist()] == [
            4,
            0,
        ]
        assert list(moments) == []


@pytest.mark.req("S1")
def test_a_file_that_is_behind_its_copy_is_another_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "broker.db", BROKER)
    with writing(f"sqlite:///{tmp_path}/broker.db") as writer:
        writer.say("fill 4")
        *_, moment = store.moments()
    ahead = {**moment.position, "history": [[1, 5], [2, 0]]}
    assert moment.went_back(ahead)
    assert not moment.went_back(moment.position)


SEND = """
INSERT INTO outbox (
    seq, id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at,
    status, broker_message_id, aborted_at
) VALUES (
    {0}, 'row-{0}', 'id-{0}', zeroblob(32), 'bob', 'dm:bob', CAST('secret words' AS BLOB), 1, 1, '{1}', 'B{0}', {2}
)"""


def send(seq: int, status: str) -> str:
    return SEND.format(seq, status, "1" if status == "aborted" else "NULL")


def done(seq: int, name: str = "row") -> str:
    return send(seq, "done").replace("'row-", f"'{name}-")


@pytest.mark.req("S1")
def test_a_row_of_an_outbox_is_copied_once_it_is_settled_and_shown_as_open_until_then(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    make(path, OUTBOX_SCHEMA, send(1, "pending"), send(2, "done"), send(3, "dead"), send(4, "done"))
    copy = Copy(SqliteStore(path, OUTBOX))
    copy.pull()
    assert copy.values("outbox", "seq") == [2, 4]
    assert [row["seq"] for row in copy.wholes["outbox_open"]] == [1, 3]
    settle = "UPDATE outbox SET status = 'done' WHERE seq = 1"
    make(path, OUTBOX_SCHEMA, settle, send(5, "inflight"), send(6, "aborted"))
    copy.pull()
    assert copy.values("outbox", "seq") == [1, 2, 4, 6]
    assert [row["seq"] for row in copy.wholes["outbox_open"]] == [3, 5]
    assert copy.counts == {
        "outbox": 6,
        "outbox.aborted": 1,
        "outbox.dead": 1,
        "outbox.done": 3,
        "outbox.inflight": 1,
    }
    assert "secret" not in str(copy.rows)


@pytest.mark.req("S1")
def test_of_an_outbox_with_thousands_of_open_rows_none_is_copied_twice(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    copy = Copy(SqliteStore(path, OUTBOX))
    for first, step in ((1, 2), (4001, 4)):  # gaps of one and of three: none is closed for another
        sends = (send(seq, "dead" if seq % step == 0 else "done") for seq in range(first, first + 4000))
        make(path, OUTBOX_SCHEMA, f"BEGIN; {';'.join(sends)}; COMMIT")
        copy.pull()
    settled = copy.values("outbox", "seq")
    assert len(settled) == len({*settled}) == 5000
    assert {row["seq"] for row in copy.wholes["outbox_open"]}.isdisjoint(settled)


@pytest.mark.req("S1")
@pytest.mark.parametrize("kind", [OUTBOX, INBOX], ids=["outbox", "inbox"])
def test_a_file_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again(
    tmp_path: Path, kind: Kind
) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    schema, write = (OUTBOX_SCHEMA, done) if kind is OUTBOX else (INBOX_SCHEMA, receive)
    make(path, schema, write(1), write(2))
    shutil.copy(path, backup)
    make(path, schema, write(3))
    *_, last = SqliteStore(path, kind).moments()
    shutil.copy(backup, path)
    make(path, schema, write(3, "other"), write(4, "other"))
    for moment in SqliteStore(path, kind).moments():
        assert moment.went_back(last.position)
        assert not moment.went_back(moment.position)


RECEIVE = """
INSERT INTO event (seq, type, at) VALUES ({0}, 'message', 1);
INSERT INTO inbox (
    seq, sender_id, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, body, priority,
    reply_to, accepted_at, received_at
) VALUES ({0}, 'S', 'id-{0}', 'B{0}', {0}, 'K', 'alice', 'secret words', 'next', '', 1, 2)"""


def receive(seq: int, name: str = "") -> str:
    return RECEIVE.format(seq).replace("'message', 1)", f"'message', {1 + len(name)})")


@pytest.mark.req("S1")
def test_an_inbox_that_was_swept_stays_in_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    make(path, INBOX_SCHEMA, receive(1), receive(2))
    copy = Copy(SqliteStore(path, INBOX))
    copy.pull()
    make(path, INBOX_SCHEMA, "DELETE FROM inbox WHERE seq = 1", receive(3))
    copy.pull()
    assert copy.values("inbox", "seq") == [1, 2, 3]
    assert copy.counts == {"inbox": 3}
    assert copy.rows["inbox"][0]["topic"] is None
    assert "secret" not in str(copy.rows)


LATER = Kind(
    name="later",
    marker="entry",
    files="later.db",
    tables=(
        Table(
            name="entry",
            columns={"id": "bigint", "said": "string"},
            series=Series("entry", "id"),
            key=("id",),
            grave=Grave("entry", ("id",)),
        ),
        Table(
            name=TOMBSTONE,
            columns={"seq": "bigint", "what": "string", "id": "bigint"},
            series=Series(TOMBSTONE, "seq", is_journal=True),
            key=("seq",),
        ),
        Table(name="place", columns={"id": "bigint", "name": "string"}, growth=Growth.WHOLE),
    ),
)
LATER_SCHEMA = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, said TEXT, secret TEXT);
CREATE TABLE tombstone (seq INTEGER PRIMARY KEY, what TEXT, id INTEGER);
CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT);
"""
LATER_SQL = """
-- name: identity
-- Who.
SELECT '0123456789abcdef'

-- name: position
-- How far.
SELECT (SELECT json_array(json_array(coalesce(max(id), 0))) FROM entry) AS entry,
  (SELECT json_array(json_array(coalesce(max(seq), 0))) FROM tombstone) AS tombstone

-- name: counts
-- How many.
SELECT 'entry', count(*) FROM entry
"""


@pytest.mark.req("S1")
def test_a_kind_of_store_is_a_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, LATER.name, LATER)
    monkeypatch.setattr(sqlite, "_HERE", tmp_path)
    (tmp_path / "later_sqlite.sql").write_text(LATER_SQL)
    place = tmp_path / "later.db"
    make(
        place,
        LATER_SCHEMA,
        "INSERT INTO entry VALUES (1, 'one', 'words'), (2, 'two', 'words')",
        "INSERT INTO place VALUES (1, 'here')",
    )
    [store] = open_stores(find_stores(tmp_path))
    assert store.identify().name == "later-0123456789abcdef"
    copy = Copy(store)
    copy.pull()
    make(
        place,
        LATER_SCHEMA,
        "INSERT INTO entry VALUES (3, 'three', 'words')",
        "DELETE FROM entry WHERE id = 1",
        "INSERT INTO tombstone VALUES (1, 'entry', 1)",
    )
    assert copy.pull() == 2
    assert [row["said"] for row in copy.rows["entry"]] == ["one", "two", "three"]
    assert [row["id"] for row in copy.rows["tombstone"]] == [1]
    assert copy.wholes == {"place": [{"id": 1, "name": "here"}]}
    assert copy.counts == {"entry": 2}
