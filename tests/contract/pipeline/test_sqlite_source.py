"""SQLite is copied by ranges of numbers: rows of history up to marks, journals up to the moment."""

from pathlib import Path

import apsw
import pytest

import claudemesh
from claudemesh.pipeline.sources.sqlite import SqliteBroker, SqliteInbox, SqliteOutbox
from tests.contract.pipeline.pulling import Copy
from tests.spark.stores import writing

MIGRATIONS = Path(claudemesh.__file__).parent / "daemon" / "stores" / "sqlite" / "migrations"
OUTBOX = MIGRATIONS / "outbox" / "0001_outbox.sql"
INBOX = MIGRATIONS / "inbox" / "0001_inbox.sql"


def make(path: Path, schema: Path, *statements: str) -> None:
    """Change a file and close it: what is open twice in one process loses its locks."""
    connection = apsw.Connection(str(path))
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        connection.execute(schema.read_text())
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.req("S1")
def test_a_brokers_store_is_copied_once_and_what_is_deleted_has_its_tombstone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/broker.db"
    copy = Copy(SqliteBroker(tmp_path / "broker.db"))
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
def test_what_was_committed_after_the_marks_is_for_the_next_cut(tmp_path: Path) -> None:
    store = SqliteBroker(tmp_path / "broker.db")
    with writing(f"sqlite:///{tmp_path}/broker.db") as writer:
        writer.say("fill 4")
        moments = store.moments()
        first = next(moments)
        writer.say("fill 4")
        second = next(moments)
        assert second.position["history"] == first.position["history"]
        assert second.count(None, {}).counts["message_history"] == 4
        assert [row["history_id"] for row in second.whole(store.kind.table("history_counter")).to_pylist()] == [
            4,
            0,
        ]
        assert list(moments) == []


@pytest.mark.req("S1")
def test_a_file_that_is_behind_its_copy_is_another_one(tmp_path: Path) -> None:
    store = SqliteBroker(tmp_path / "broker.db")
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


@pytest.mark.req("S1")
def test_a_row_of_an_outbox_is_copied_once_it_is_settled_and_shown_as_open_until_then(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    make(path, OUTBOX, send(1, "pending"), send(2, "done"), send(3, "dead"), send(4, "done"))
    copy = Copy(SqliteOutbox(path))
    copy.pull()
    assert copy.values("outbox", "seq") == [2, 4]
    assert [row["seq"] for row in copy.wholes["outbox_open"]] == [1, 3]
    settle = "UPDATE outbox SET status = 'done' WHERE seq = 1"
    make(path, OUTBOX, settle, send(5, "inflight"), send(6, "aborted"))
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


RECEIVE = """
INSERT INTO event (seq, type, at) VALUES ({0}, 'message', 1);
INSERT INTO inbox (
    seq, sender_id, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, body, priority,
    reply_to, accepted_at, received_at
) VALUES ({0}, 'S', 'id-{0}', 'B{0}', {0}, 'K', 'alice', 'secret words', 'next', '', 1, 2)"""


def receive(seq: int) -> str:
    return RECEIVE.format(seq)


@pytest.mark.req("S1")
def test_an_inbox_that_was_swept_stays_in_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    make(path, INBOX, receive(1), receive(2))
    copy = Copy(SqliteInbox(path))
    copy.pull()
    make(path, INBOX, "DELETE FROM inbox WHERE seq = 1", receive(3))
    copy.pull()
    assert copy.values("inbox", "seq") == [1, 2, 3]
    assert copy.counts == {"inbox": 3}
    assert copy.rows["inbox"][0]["topic"] is None
    assert "secret" not in str(copy.rows)
