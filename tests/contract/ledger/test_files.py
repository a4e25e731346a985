"""Which files a ledger opens, what it leaves alone, and who may use one that is open."""

import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import CassetteUnavailable
from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.api import find_place
from tests.contract.ledger.scenes import RUN, Scene, make_ledger, set_scene
from tests.contract.ledger.shells import dump, newest_shell

WITHIN_S = 30


def look(path: Path) -> tuple[bytes, int, list[str]]:
    beside = sorted(each.name for each in path.parent.iterdir())
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode), beside


# --- what is no ledger ---------------------------------------------------------------------------------


@pytest.mark.req("L1")
@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, *, create: bool) -> None:
    path.write_bytes(b"root:x:0:0:root:/root:/bin/bash\n" * 40)
    path.chmod(0o644)
    before = look(path)
    with pytest.raises(MessageCassetteError, match="not a database"):
        MessageCassette(db_path=path, create=create)
    assert look(path) == before


@pytest.mark.req("L1")
@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_others_is_refused_and_left_as_it_is(path: Path, *, create: bool) -> None:
    with newest_shell(path) as shell:
        shell("CREATE TABLE accounts (name)")
    path.chmod(0o664)
    before = look(path)
    with pytest.raises(MessageCassetteError, match="holds other things and no ledger"):
        MessageCassette(db_path=path, create=create)
    assert look(path) == before


@pytest.mark.req("L1")
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("other.db")])
def test_what_is_no_plain_file_is_refused(path: Path, make: object) -> None:
    make(path)  # type: ignore[operator]
    with pytest.raises(MessageCassetteError, match="is not a plain file"):
        MessageCassette(db_path=path)
    assert not path.is_file()


@pytest.mark.req("L1")
def test_a_link_that_leads_to_itself_is_refused(path: Path) -> None:
    loop = path.with_name("loop")
    loop.symlink_to(loop)
    with pytest.raises(MessageCassetteError):
        MessageCassette(db_path=loop / "ledger.db")


@pytest.mark.req("L1")
def test_a_place_below_a_file_is_refused(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(MessageCassetteError):
        MessageCassette(db_path=path / "ledger.db")
    assert path.read_text() == "a file"


@pytest.mark.req("L1")
@pytest.mark.parametrize("is_there", [True, False])
def test_where_there_is_no_ledger_none_is_made_unless_it_is_to_be(path: Path, *, is_there: bool) -> None:
    if is_there:
        path.touch()
    with pytest.raises(MessageCassetteError, match="there is no ledger at"):
        MessageCassette(db_path=path, create=False)
    assert path.exists() == is_there
    assert not is_there or path.stat().st_size == 0


@pytest.mark.req("L1")
def test_a_file_whose_wal_outlived_it_is_refused(scene: Scene) -> None:
    """Opening it would destroy the writes that the WAL still holds."""
    with scene.ledger() as ledger:
        ledger.post_message({}, RUN, "USER")
        kept = scene.path.with_name("kept.db-wal")
        shutil.copy(f"{scene.path}-wal", kept)
    with pytest.raises(MessageCassetteError, match="still holds writes"):
        MessageCassette(db_path=kept.with_name("kept.db"))


# --- what is one ---------------------------------------------------------------------------------------


@pytest.mark.req("L1")
def test_a_ledger_is_for_its_owners_eyes_only_and_folders_are_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "ledger.db"
    with MessageCassette(db_path=path) as ledger:
        ledger.post_message({}, RUN, "USER")
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
        assert ledger.path == path


@pytest.mark.req("L1")
def test_opening_changes_nothing(scene: Scene) -> None:
    with newest_shell(scene.path) as shell:
        before = dump(shell)
    for create in (True, False):
        with MessageCassette(db_path=scene.path, create=create) as ledger:
            assert ledger.read_version() == scene.version
    with newest_shell(scene.path) as shell:
        assert dump(shell) == before


@pytest.mark.req("L1")
def test_who_may_read_a_ledger_that_is_there_was_decided_by_whoever_made_it(scene: Scene) -> None:
    scene.path.chmod(0o640)
    with scene.ledger() as ledger:
        ledger.post_message({}, RUN, "USER")
        assert {stat.S_IMODE(each.stat().st_mode) for each in scene.path.parent.iterdir()} == {0o640}


@pytest.mark.req("L1")
def test_a_folder_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with MessageCassette(db_path=tmp_path / "link" / "ledger.db") as ledger:
        ledger.post_message({}, RUN, "USER")
    assert (tmp_path / "real" / "ledger.db").exists()


@pytest.mark.req("L1")
def test_without_a_path_it_is_below_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep" / "down").mkdir(parents=True)
    place = Path("CORTEX", "_generated", "system3.db")
    monkeypatch.chdir(tmp_path / "deep" / "down")
    assert find_place() == tmp_path / place
    assert find_place(repo_root=tmp_path / "deep") == tmp_path / "deep" / place
    assert find_place(repo_root=tmp_path, db_path="x.db") == Path("x.db")
    with MessageCassette(repo_root=str(tmp_path)) as ledger:
        ledger.post_message({}, RUN, "USER")
    assert (tmp_path / place).exists()


@pytest.mark.req("L1")
def test_a_torn_file_is_an_error_of_the_ledger(scene: Scene) -> None:
    content = scene.path.read_bytes()
    scene.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(MessageCassetteError), scene.ledger() as ledger:
        ledger.claim_step(RUN, "eve")


# --- one that is open ----------------------------------------------------------------------------------


@pytest.mark.req("L1")
def test_a_ledger_may_be_closed_twice_and_then_says_so(ledger: MessageCassette) -> None:
    with ledger:
        ledger.post_message({}, RUN, "USER")
    ledger.close()
    for ask in (ledger.find_issues, ledger.list_steps, lambda: ledger.claim_step(RUN, "ann")):
        with pytest.raises(MessageCassetteError, match="the ledger is closed"):
            ask()


@pytest.mark.req("L3")
def test_threads_share_a_ledger_and_never_get_the_same_step(ledger: MessageCassette) -> None:
    count, workers = 60, 6
    ledger.post_message({"jobs": [{"intent": "i", "steps": list(range(count))}]}, RUN, "USER")
    start = threading.Barrier(workers)

    def work(worker: int) -> list[str]:
        start.wait(WITHIN_S)
        claimed = [ledger.claim_step(RUN, f"w{worker}") for _ in range(count // workers)]
        for step in claimed:
            ledger.complete_step(RUN, step["step_id"], f"w{worker}", step["fencing_token"], {}, "SUCCESS")
        return [step["step_id"] for step in claimed]

    with ThreadPoolExecutor(workers) as pool:
        claimed = [step for steps in pool.map(work, range(workers), timeout=WITHIN_S) for step in steps]
    assert len(claimed) == len(set(claimed)) == count
    assert ledger.find_issues() == []


@pytest.mark.req("L3")
def test_several_connections_never_get_the_same_step(path: Path, version: int) -> None:
    ledgers = [make_ledger(path, version), *(MessageCassette(db_path=path) for _ in range(3))]
    ledgers[0].post_message({"jobs": [{"intent": "i", "steps": list(range(40))}]}, RUN, "USER")
    start = threading.Barrier(len(ledgers))

    def work(ledger: MessageCassette) -> list[int]:
        start.wait(WITHIN_S)
        return [ledger.claim_step(RUN, "w")["payload"] for _ in range(10)]

    with ThreadPoolExecutor(len(ledgers)) as pool:
        claimed = list(pool.map(work, ledgers, timeout=WITHIN_S))
    assert sorted(step for steps in claimed for step in steps) == list(range(40))
    assert all(steps == sorted(steps) for steps in claimed)
    for ledger in ledgers:
        ledger.close()


def in_a_child(ask: object) -> str:
    """Run something in a fork of this process; return what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(ask())  # type: ignore[operator]
        except MessageCassetteError as error:
            said = f"refused: {error}"
        except BaseException as error:  # noqa: BLE001 - it must not go on as the parent
            said = f"broken: {error!r}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.req("L3")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads: those of the tests before
def test_a_child_neither_uses_nor_closes_its_parents_ledger(ledger: MessageCassette, path: Path) -> None:
    ledger.post_message({}, RUN, "USER")
    words = "refused: the ledger was opened before a fork: the child opens one of its own"
    assert in_a_child(lambda: ledger.claim_step(RUN, "child")) == words
    assert in_a_child(ledger.find_issues) == words
    assert in_a_child(ledger.close) == "None"
    assert ledger.claim_step(RUN, "parent")["fencing_token"] == 1
    assert in_a_child(lambda: MessageCassette(db_path=path).list_steps(RUN)[0]["lease_owner"]) == "parent"
    assert ledger.find_issues() == []


@pytest.mark.req("L1")
def test_a_file_that_is_held_by_another_for_too_long_is_unavailable(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudemesh.ledger.stores.sqlite.file.BUSY_TIMEOUT_MS", 1)
    scene = set_scene(tmp_path, version)
    other = apsw.Connection(str(scene.path))
    with scene.ledger() as ledger:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CassetteUnavailable):
            ledger.post_message({}, RUN, "USER")
        other.execute("ROLLBACK")
        ledger.post_message({}, RUN, "USER")
    other.close()
