"""The chain betrays what was changed after it was written; a signed head betrays a chain that was made anew."""

import json
from pathlib import Path

import pytest

from claudemesh.kernel.chain import GENESIS, derive_link
from claudemesh.kernel.errors import CassetteInvalid
from claudemesh.ledger import MessageCassette, MessageCassetteError, heads
from claudemesh.ledger.stores.sqlite import chain
from claudemesh.runtime.keys import KeyPair
from tests.contract.ledger.scenes import RUN, Scene, make_ledger, set_scene
from tests.contract.ledger.shells import lawless_shell

pytestmark = pytest.mark.req("L10")

KEYS = KeyPair(b"\7" * 32)


@pytest.fixture
def version() -> int:
    return 2


def sign_head(ledger: MessageCassette) -> heads.Head:
    ledger_id, end = ledger.read_end()
    return heads.parse(json.dumps(heads.sign(KEYS, ledger_id, end.seq, end.hash, "2026-01-01T00:00:00.000Z")))


def edit(scene: Scene, *script: str) -> list[str]:
    """Change rows past the law; return what is found that was not wrong before."""
    with lawless_shell(scene.path) as shell:
        for sql in script:
            shell(scene.fill(sql))
    return [issue for issue in scene.issues() if issue not in scene.expected()]


def make_anew(ledger: MessageCassette) -> None:
    """Compute every link again, as somebody would who rewrites the whole file."""
    connection = ledger._file._connection
    connection.set_commit_hook(None)
    links = connection.execute("SELECT seq, kind, row_id FROM cassette_chain ORDER BY seq").fetchall()
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE 'tr_chain%'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("DELETE FROM cassette_chain")
    previous = GENESIS
    for seq, (_, kind, row_id) in enumerate(links, start=1):
        row = chain.read_row(connection, kind, row_id)
        if row is not None:
            hash_ = derive_link(previous, kind, row)
            connection.execute(
                "INSERT INTO cassette_chain VALUES (?, ?, ?, ?, ?)", (seq, kind, row_id, previous, hash_)
            )
            previous = hash_
    for _, sql in triggers:
        connection.execute(sql)


# --- each row, in the transaction that writes it -------------------------------------------------------


def test_every_message_receipt_requeue_and_renewal_has_its_link(scene: Scene) -> None:
    with lawless_shell(scene.path) as shell:
        links = shell("SELECT seq, kind, previous_hash, hash FROM cassette_chain ORDER BY seq")
    assert [kind for _, kind, *_ in links] == [*["message"] * 3, "receipt", "requeue", "renewal"]
    assert [seq for seq, *_ in links] == [1, 2, 3, 4, 5, 6]
    assert [before for *_, before, _ in links] == [GENESIS, *(hash_ for *_, hash_ in links[:-1])]


def test_a_link_is_made_of_the_whole_row_and_the_link_before(scene: Scene) -> None:
    with scene.ledger() as ledger:
        connection = ledger._file._connection
        message = chain.read_row(connection, "message", scene.names["message"])
        assert message is not None
        assert [job["intent"] for job in message["jobs"]] == ["build", "test"]
        assert [step["payload_json"] for step in message["steps"]] == ['{"n":1}', '{"n":2}', '{"n":3}']
        assert derive_link(GENESIS, "message", message) == chain.find_link(connection, 1)


@pytest.mark.parametrize(
    ("sql", "kind", "name", "seq"),
    [
        ("UPDATE cassette_messages SET payload_json = '[]' WHERE rowid = 1", "message", "message", 1),
        ("UPDATE cassette_messages SET source = 'WORKER' WHERE rowid = 1", "message", "message", 1),
        ("UPDATE cassette_messages SET idempotency_key = 'k' WHERE rowid = 1", "message", "message", 1),
        ("UPDATE cassette_messages SET created_at = '{past}' WHERE rowid = 1", "message", "message", 1),
        ("UPDATE cassette_jobs SET intent = 'other' WHERE rowid = 2", "message", "message", 1),
        ("UPDATE cassette_jobs SET ordinal = 7 WHERE rowid = 3", "message", "second", 2),
        ("UPDATE cassette_steps SET payload_json = '[]' WHERE rowid = 3", "message", "message", 1),
        ("UPDATE cassette_steps SET ordinal = 7 WHERE rowid = 4", "message", "second", 2),
        ("UPDATE cassette_receipts SET receipt_json = '[]'", "receipt", "receipt", 4),
        ("UPDATE cassette_receipts SET outcome = 'ABORTED'", "receipt", "receipt", 4),
        ("UPDATE cassette_receipts SET created_at = '{past}'", "receipt", "receipt", 4),
        ("UPDATE cassette_requeues SET created_at = '{past}'", "requeue", "requeue", 5),
    ],
)
def test_a_row_that_was_changed_is_found(scene: Scene, sql: str, kind: str, name: str, seq: int) -> None:
    assert f"chain: {kind} {scene.names[name]} is not what was chained as link {seq}" in edit(scene, sql)


def test_a_row_that_was_added_to_a_chained_message_or_deleted_is_found(scene: Scene) -> None:
    added = "INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal) VALUES ('j', '{other}', 'i', 2)"
    found = edit(scene, added, "DELETE FROM cassette_receipts")
    assert scene.fill("chain: message {other} is not what was chained as link 3") in found
    assert scene.fill("chain: receipt {receipt} is not what was chained as link 4") in found


def test_a_link_that_was_cut_out_is_found(scene: Scene) -> None:
    found = edit(scene, "DELETE FROM cassette_chain WHERE seq = 4")
    assert found[-2:] == ["chain: link 4 is missing", "chain: link 5 does not follow the link before it"]
    assert scene.fill("chain: receipt {receipt} was written outside of it") in found


def test_a_link_that_was_cut_off_at_the_end_is_found(scene: Scene) -> None:
    (found,) = edit(scene, "DELETE FROM cassette_chain WHERE seq = 6")
    assert found.startswith("chain: renewal ")
    assert found.endswith(" was written outside of it")


def test_links_that_were_swapped_or_edited_are_found(scene: Scene) -> None:
    found = edit(
        scene,
        "UPDATE cassette_chain SET row_id = 'x' WHERE seq = 2",
        "UPDATE cassette_chain SET row_id = '{second}' WHERE seq = 3",
        "UPDATE cassette_chain SET row_id = '{other}' WHERE seq = 2",
        "UPDATE cassette_chain SET hash = '{hash}' WHERE seq = 5",
        "UPDATE cassette_chain SET previous_hash = 'no hash', kind = 'step' WHERE seq = 6",
    )
    assert {
        scene.fill("chain: message {other} is not what was chained as link 2"),
        scene.fill("chain: message {second} is not what was chained as link 3"),
        scene.fill("chain: requeue {requeue} is not what was chained as link 5"),
        "chain: link 6 does not follow the link before it",
    } <= set(found)
    assert any(issue.startswith("chain: step ") and issue.endswith("as link 6") for issue in found)


def test_a_text_that_is_no_text_is_found_and_the_rest_is_still_checked(scene: Scene) -> None:
    garble = "UPDATE cassette_receipts SET receipt_json = CAST(x'22ff22' AS TEXT)"
    found = edit(scene, garble, "UPDATE cassette_requeues SET created_at = '{future}'")
    assert found == [
        scene.fill("chain: receipt {receipt} is not what was chained as link 4"),
        scene.fill("chain: requeue {requeue} is not what was chained as link 5"),
    ]


# --- heads ---------------------------------------------------------------------------------------------


def test_a_head_fits_for_ever_while_the_ledger_grows(scene: Scene) -> None:
    with scene.ledger() as ledger:
        head = sign_head(ledger)
        assert head["seq"] == 6
        ledger.post_message({}, RUN, "USER")
        assert ledger.find_issues(head=head) == scene.expected()


def test_a_head_of_a_ledger_without_a_row_fits(path: Path) -> None:
    with make_ledger(path) as ledger:
        head = sign_head(ledger)
        assert (head["seq"], head["hash"]) == (0, GENESIS)
        ledger.post_message({}, RUN, "USER")
        assert ledger.find_issues(head=head) == []


def test_a_file_that_was_rewritten_as_a_whole_is_found_by_a_head_from_before(scene: Scene) -> None:
    with scene.ledger() as ledger:
        head = sign_head(ledger)
    edit(scene, "UPDATE cassette_receipts SET outcome = 'FAILURE'")
    with scene.ledger() as ledger:
        make_anew(ledger)
        assert ledger.find_issues() == scene.expected(), "its chain fits"
        (found,) = [issue for issue in ledger.find_issues(head=head) if issue not in scene.expected()]
    assert found == "head: link 6 of the chain is not the one that was signed at 2026-01-01T00:00:00.000Z"


def test_a_file_that_lost_its_end_is_found_by_a_head_from_before(scene: Scene) -> None:
    with scene.ledger() as ledger:
        ledger.post_message({}, RUN, "USER")
        head = sign_head(ledger)
    script = ("messages", "rowid = 4"), ("jobs", "rowid = 5"), ("steps", "rowid = 6"), ("chain", "seq = 7")
    assert edit(scene, *(f"DELETE FROM cassette_{table} WHERE {where}" for table, where in script)) == []  # noqa: S608
    with scene.ledger() as ledger:
        found = ledger.find_issues(head=head)
    assert "head: link 7 of the chain is not the one that was signed at 2026-01-01T00:00:00.000Z" in found


def test_a_head_of_another_ledger_does_not_fit(scene: Scene, path: Path) -> None:
    with make_ledger(path.with_name("other.db")) as other, scene.ledger() as ledger:
        head = sign_head(other)
        found = ledger.find_issues(head=head)
    assert any(issue.startswith(f"head: it is of ledger {head['ledger_id']}, and this is ") for issue in found)


def test_a_head_whose_signature_is_not_its_own_is_refused(scene: Scene) -> None:
    with scene.ledger() as ledger:
        head = sign_head(ledger)
    with pytest.raises(CassetteInvalid, match="signature"):
        heads.parse(json.dumps(head | {"seq": 1}))


def test_a_ledger_of_version_1_has_no_head(tmp_path: Path) -> None:
    with set_scene(tmp_path, 1).ledger() as ledger, pytest.raises(MessageCassetteError, match="needs version 2"):
        ledger.read_end()
