"""A ledger is copied by its rowids, of either version and across an upgrade; a step when it is committed."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import ConfigError
from claudemesh.ledger import MessageCassette
from claudemesh.pipeline.catalogue import LEDGER
from claudemesh.pipeline.sources.sqlite import SqliteStore
from claudemesh.pipeline.stores import find_stores, open_stores
from tests.contract.pipeline.ledgers import RUN, commit, open_ledger, post, run_out
from tests.contract.pipeline.pulling import Copy


def copy_of(path: Path, *, bodies: bool = False) -> Copy:
    return Copy(SqliteStore(path, LEDGER), bodies=bodies)


@pytest.mark.req("S1")
def test_a_step_is_copied_once_it_is_committed_and_shown_as_open_until_then(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    copy = copy_of(path)
    with open_ledger(path) as ledger:
        post(ledger, 4)
        first = commit(ledger)
        second = ledger.claim_step(RUN, "ann")
    copy.pull()
    assert copy.values("cassette_steps", "step_id") == [first]
    leases = [(row["rowid"], row["status"], row["lease_owner"]) for row in copy.wholes["cassette_steps_open"]]
    assert leases == [(2, "LEASED", "ann"), (3, "PENDING", None), (4, "PENDING", None)]
    with open_ledger(path) as ledger:
        ledger.renew_lease(RUN, second["step_id"], "ann", 1, 600)
        requeued = run_out(ledger)
        ledger.complete_step(RUN, second["step_id"], "ann", 1, {"secret answer": 2}, "FAILURE")
        post(ledger)
    copy.pull()
    assert copy.values("cassette_steps", "step_id") == [first, second["step_id"]]
    assert [row["rowid"] for row in copy.wholes["cassette_steps_open"]] == [3, 4, 5]
    assert copy.values("cassette_requeues", "step_id") == [requeued]
    assert [(row["worker_id"], row["fencing_token"]) for row in copy.rows["cassette_renewals"]] == [("ann", 1)]
    assert [row["kind"] for row in copy.rows["cassette_chain"]].count("message") == 5
    assert copy.counts == {
        "cassette_messages": 5,
        "cassette_jobs": 5,
        "cassette_steps": 5,
        "cassette_steps.COMMITTED": 2,
        "cassette_steps.PENDING": 3,
        "cassette_receipts": 2,
        "cassette_receipts.FAILURE": 1,
        "cassette_receipts.SUCCESS": 1,
        "cassette_requeues": 1,
        "cassette_renewals": 1,
        "cassette_chain": 9,
    }
    assert copy.pull() == 0


@pytest.mark.req("S1")
def test_what_is_to_be_done_and_what_came_of_it_is_copied_only_if_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(path) as ledger:
        post(ledger, 2)
        commit(ledger)
    without, with_bodies = copy_of(path), copy_of(path, bodies=True)
    without.pull()
    with_bodies.pull()
    assert "secret" not in str([without.rows, without.wholes])
    bodies = {name: len(rows) for name, rows in with_bodies.rows.items() if "secret" in str(rows)}
    assert bodies == {"message_body": 2, "step_body": 2, "receipt_body": 1}


@pytest.mark.req("S1")
def test_a_file_of_version_1_is_copied_without_what_it_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    copy = copy_of(path)
    with open_ledger(path, version=1) as ledger:
        post(ledger, 3)
        commit(ledger)
        ledger.claim_step(RUN, "ann")
    copy.pull()
    assert [(row["status"], row["claimed_at"]) for row in copy.rows["cassette_steps"]] == [("COMMITTED", None)]
    assert {row["claimed_at"] for row in copy.wholes["cassette_steps_open"]} == {None}
    assert copy.counts == {
        "cassette_messages": 3,
        "cassette_jobs": 3,
        "cassette_steps": 3,
        "cassette_steps.COMMITTED": 1,
        "cassette_steps.LEASED": 1,
        "cassette_steps.PENDING": 1,
        "cassette_receipts": 1,
        "cassette_receipts.SUCCESS": 1,
    }
    assert copy.pull() == 0


@pytest.mark.req("S1")
def test_the_copy_of_a_ledger_goes_on_after_its_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    copy = copy_of(path)
    with open_ledger(path, version=1) as ledger:
        post(ledger, 3)
        commit(ledger)
        held = ledger.claim_step(RUN, "ann")
    copy.pull()
    before, last = copy.counts, copy.position
    with open_ledger(path) as ledger:
        ledger.upgrade()
    assert last is not None
    assert not any(moment.went_back(last) for moment in SqliteStore(path, LEDGER).moments())
    copy.pull()
    assert before.items() <= copy.counts.items()
    assert len(copy.rows["cassette_chain"]) == copy.counts["cassette_chain"] == 4
    with open_ledger(path) as ledger:
        ledger.complete_step(RUN, held["step_id"], "ann", 1, {}, "SUCCESS")
        run_out(ledger)
        commit(ledger)
    copy.pull()
    assert copy.values("cassette_steps", "rowid") == [1, 2, 3]
    assert [row["claimed_at"] is None for row in copy.rows["cassette_steps"]] == [True, True, False]
    assert len(copy.rows["cassette_requeues"]) == copy.counts["cassette_requeues"] == 1


def take_the_next(ledger: MessageCassette) -> None:
    ledger.claim_step(RUN, "ann", 900)


def renew(ledger: MessageCassette) -> None:
    (held,) = ledger.list_steps(RUN, "LEASED")
    ledger.renew_lease(RUN, held["step_id"], "ann", held["fencing_token"], 1800)


@pytest.mark.req("S1")
@pytest.mark.parametrize("act", [post, commit, run_out, renew])
def test_a_ledger_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again(
    tmp_path: Path, act: Callable[[MessageCassette], object]
) -> None:
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    with open_ledger(path) as ledger:
        post(ledger, 3)
        take_the_next(ledger)
    shutil.copy(path, backup)
    with open_ledger(path) as ledger:
        act(ledger)
    *_, last = SqliteStore(path, LEDGER).moments()
    shutil.copy(backup, path)
    with open_ledger(path) as ledger:
        act(ledger)
    for moment in SqliteStore(path, LEDGER).moments():
        assert moment.went_back(last.position)
        assert not moment.went_back(moment.position)


@pytest.mark.req("S1")
def test_a_claim_is_no_row_but_makes_another_state(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(path) as ledger:
        post(ledger)
    *_, moment = SqliteStore(path, LEDGER).moments()
    copy = copy_of(path)
    copy.pull()
    before = copy.wholes
    with open_ledger(path) as ledger:
        take_the_next(ledger)
    assert not any(later.has_news(moment.position) for later in SqliteStore(path, LEDGER).moments())
    assert copy.pull() == 0
    assert copy.wholes != before


FOREIGN = "INSERT INTO cassette_messages (message_id, run_id, source, payload_json) VALUES ('{}', 'r', 'USER', '1')"


@pytest.mark.req("S1")
def test_a_ledger_that_was_begun_before_ledgers_had_names_goes_by_its_first_message(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    connection = apsw.Connection(str(path))
    law = Path(sys.modules["claudemesh"].__file__ or "").parent / "ledger" / "stores" / "sqlite" / "law" / "v1.sql"
    connection.execute(law.read_text())
    store = SqliteStore(path, LEDGER)
    connection.close()
    with pytest.raises(ConfigError, match="which store"):
        store.identify()
    for message_id in ("m1", "m2"):
        connection = apsw.Connection(str(path))
        connection.execute(FOREIGN.format(message_id))
        connection.close()
        assert store.identify().name == f"ledger-303030303030{b'm1'.hex()}"


@pytest.mark.req("S1")
def test_a_home_has_a_ledger_and_other_ledgers_are_named(tmp_path: Path) -> None:
    named = tmp_path / "CORTEX" / "_generated" / "system3.db"
    for path in (tmp_path / "ledger.db", named):
        open_ledger(path).close()
    stores = open_stores([*find_stores(tmp_path), str(named)])
    assert [(store.kind.name, store.shown) for store in stores] == [
        ("ledger", f"sqlite:///{tmp_path}/ledger.db"),
        ("ledger", f"sqlite:///{named}"),
    ]


WRITER = """
import sys
from pathlib import Path
from tests.contract.pipeline.ledgers import commit, open_ledger, post
ledger = open_ledger(Path(sys.argv[1]))
for line in sys.stdin:
    post(ledger, 10)
    commit(ledger)
    print("done", flush=True)
"""


@pytest.mark.req("S1")
def test_a_ledger_is_copied_while_others_have_it_open(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    copy = copy_of(path)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for times in (1, 2):
            writer.stdin.write("go\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "done\n"
            copy.pull()
            assert len(copy.rows["cassette_messages"]) == copy.counts["cassette_messages"] == 10 * times
            assert len(copy.rows["cassette_steps"]) == times
    assert writer.returncode == 0
