"""The archive of messages: what a search in it finds, in which order, and what a rebuild may not disturb."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.daemon.ports import InboxFilter
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.kernel.errors import AlreadyRunning, InvalidRequest, NotFound, StoreCorrupt
from claudemesh.kernel.fingerprint import Kind
from claudemesh.pipeline import archive
from claudemesh.runtime import points
from claudemesh.wire.frames import DeliverItem
from tests.unit.pipeline.archives import TEXTS, document, found, holds, publish, write_parts

BOUND_S = 60

some_text = st.sampled_from(TEXTS) | st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12
)
some_body = st.lists(some_text, max_size=4).map(" ".join)


# --- what is found ---------------------------------------------------------------------------------------


@pytest.mark.req("S2")
@settings(deadline=None)
@given(
    bodies=st.lists(some_body, max_size=8), searches=st.lists(some_body.filter(str.strip), min_size=1, max_size=8)
)
def test_the_index_finds_what_a_scan_of_the_bodies_finds(bodies: list[str], searches: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        numbered = [document(seq, body) for seq, body in enumerate(bodies)]
        publish(lake, [numbered[:3], numbered[3:]])
        for words in [*searches, *filter(str.strip, bodies)]:
            assert found(lake, words) == [body for body in bodies if holds(body, words)]


@pytest.mark.req("S2")
async def test_the_archive_finds_what_the_inbox_itself_finds(tmp_path: Path) -> None:
    publish(tmp_path, [[document(seq, body) for seq, body in enumerate(TEXTS)]])
    inbox = SqliteInboxStore.in_memory()
    await inbox.receive(
        [
            DeliverItem(
                history_id=seq,
                broker_message_id=f"b{seq}",
                client_message_id=f"c{seq}",
                sender_id="S",
                sender_pubkey="ab" * 32,
                sender_name="bob",
                kind=Kind.DM,
                ref="cd" * 32,
                body=body,
                accepted_at=1,
            )
            for seq, body in enumerate(TEXTS)
        ],
        2,
    )
    for words in TEXTS:
        page = await inbox.page(InboxFilter(words=words), 0, 1_000)
        assert found(tmp_path, words) == [message.body for message in page], words
    inbox.close()


def test_a_message_is_shown_as_the_daemon_shows_it(tmp_path: Path) -> None:
    publish(tmp_path, [[document(7, topic="ops", meta='{"a": [1]}', reply_to="b1")]])
    assert archive.search(tmp_path, "words", 10) == {
        "messages": [
            {
                "client_message_id": "c7",
                "broker_message_id": "b7",
                "history_id": 7,
                "from": "ab" * 32,
                "from_name": "bob",
                "topic": "ops",
                "body": "words",
                "meta": {"a": [1]},
                "priority": "next",
                "reply_to_id": "b1",
                "accepted_at": "1970-01-01T00:00:01.007Z",
                "received_at": "1970-01-01T00:00:02.007Z",
                "cursor": "2007.7.s1",
                "source": "s1",
            }
        ],
        "next_cursor": None,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_give_every_hit_of_all_inboxes_once_in_the_order_received(tmp_path: Path, limit: int) -> None:
    # Parts that begin within a millisecond, and inboxes that received in the same one.
    publish(
        tmp_path, [[document(1, received_at=5), document(2, received_at=6)], [document(3, received_at=6)]], "b.b"
    )
    publish(tmp_path, [[document(n, received_at=6) for n in (1, 2)], [document(9, received_at=9)]], "a")
    publish(tmp_path, [[document(n, received_at=6) for n in (4, 5)]], "c")
    seen, cursor = [], None
    for _ in range(20):
        page = archive.search(tmp_path, "words", limit, cursor)
        assert len(page["messages"]) <= limit
        seen += [(message["source"], message["history_id"]) for message in page["messages"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [("b.b", 1), ("a", 1), ("a", 2), ("b.b", 2), ("b.b", 3), ("c", 4), ("c", 5), ("a", 9)]


def test_a_page_has_a_thousand_messages_at_most(tmp_path: Path) -> None:
    publish(tmp_path, [[document(n) for n in range(1_002)]])
    page = archive.search(tmp_path, "words", 5_000)
    assert len(page["messages"]) == 1_000
    assert page["next_cursor"] == page["messages"][-1]["cursor"]


def test_an_inbox_without_messages_is_searched_in_vain(tmp_path: Path) -> None:
    publish(tmp_path, [], "none")
    publish(tmp_path, [[]], "empty")
    assert archive.search(tmp_path, "words", 10) == {"messages": [], "next_cursor": None}


@pytest.mark.parametrize("cursor", ["", "1", "1.2", "1.2.", "a.b.c", "e0.17", f"{1 << 64}.1.s1"])
def test_a_cursor_of_elsewhere_is_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        archive.search(tmp_path, "words", 10, cursor)


def test_words_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        archive.search(tmp_path, "\udcff", 10)


def test_a_lake_without_an_archive_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"pipeline ingest --bodies.*pipeline run search"):
        archive.search(tmp_path, "words", 10)


def test_an_archive_that_lost_a_file_says_so_instead_of_finding_less(tmp_path: Path) -> None:
    directory = publish(tmp_path, [[document(1)], [document(2)]])
    (directory / "first-1.db").unlink()
    with pytest.raises(StoreCorrupt, match="pipeline run search"):
        archive.search(tmp_path, "words", 10)


# --- rebuilds --------------------------------------------------------------------------------------------


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.req("S2")
def test_a_rebuild_leaves_nothing_of_what_was_there_and_is_for_its_owner_only(tmp_path: Path) -> None:
    publish(tmp_path, [[document(1, "old")], [document(2, "old")]])
    directory = publish(tmp_path, [[document(1, "new")]], name="second")
    assert names(directory) == {"index.json", "lock", "second-0.db"}
    assert (found(tmp_path, "old"), found(tmp_path, "new")) == ([], ["new"])
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (directory, directory.parent)} == {0o700}


@pytest.mark.req("S2")
def test_a_rebuild_that_fails_leaves_the_archive_as_it_was(tmp_path: Path) -> None:
    directory = publish(tmp_path, [[document(1, "old")]])
    before = names(directory)

    def write() -> list[archive.Shard]:
        write_parts(directory, "second", [[document(1, "new")]])
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        archive.rebuild(directory, write)
    assert names(directory) == before
    assert found(tmp_path, "old") == ["old"]


VICTIM = """
import signal, sys
from pathlib import Path
from claudemesh.pipeline import archive, shardfile
from tests.unit.pipeline.archives import document

directory = Path(sys.argv[1])

def parts():
    yield document(1, "new")
    if sys.argv[2] == "within":
        hang()

def hang():
    print("here", flush=True)
    signal.pause()

def write():
    shardfile.write(directory / "second-0.db", parts())
    hang()

archive.rebuild(directory, write)
"""


@pytest.mark.req("S2")
@pytest.mark.parametrize("where", ["within", "behind"])
def test_a_rebuild_that_is_killed_leaves_the_archive_as_it_was_and_the_next_one_tidies_up(
    tmp_path: Path, where: str
) -> None:
    directory = publish(tmp_path, [[document(1, "old")]])
    command = [sys.executable, "-c", VICTIM, str(directory), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"here\n"
            assert "second-0.db" in names(directory)
        finally:
            victim.send_signal(signal.SIGKILL)
    assert victim.wait(BOUND_S) == -signal.SIGKILL
    assert (found(tmp_path, "old"), found(tmp_path, "new")) == (["old"], [])
    publish(tmp_path, [[document(1, "third")]], name="third")
    assert names(directory) == {"index.json", "lock", "third-0.db"}


@pytest.mark.req("S2")
def test_of_two_rebuilds_at_once_one_is_refused_and_nothing_is_mixed(tmp_path: Path) -> None:
    directory = publish(tmp_path, [[document(1, "old")]])

    def write() -> list[archive.Shard]:
        first = write_parts(directory, "second", [[document(1, "words first")]])
        with pytest.raises(AlreadyRunning):
            publish(tmp_path, [[document(1, "words other")]], name="third")
        return first + write_parts(directory, "fourth", [[document(2, "words second")]])

    archive.rebuild(directory, write)
    assert found(tmp_path, "words") == ["words first", "words second"]
    assert names(directory) == {"index.json", "lock", "second-0.db", "fourth-0.db"}


@pytest.mark.req("S2")
def test_a_rebuild_while_somebody_reads_is_harmless(tmp_path: Path) -> None:
    publish(tmp_path, [[document(1, "words old")]])

    def rebuild_now() -> None:
        points.disarm_all()
        publish(tmp_path, [[document(1, "words new")]], name="second")

    points.arm("archive.index_read", rebuild_now)
    try:
        assert found(tmp_path, "words") == ["words new"]
    finally:
        points.disarm_all()


def test_searching_loads_neither_spark_nor_a_daemon() -> None:
    script = "import sys, claudemesh.pipeline.archive; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "claudemesh.pipeline.shardfile" in loaded
    assert not {"pyspark", "pyarrow", "claudemesh.daemon"} & set(loaded)
