"""`statehub serve` as a process, on each of its stores: its routes, what is refused, a kill at the worst moment."""

import json
import signal
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claudemesh.runtime.patience import wait_until
from tests.integration.hub_process import WITHIN_S, Answer, Hub
from tests.services.postgres import Postgres, installations

pytestmark = pytest.mark.req("R2")

STORES = ("sqlite", "postgresql")

NEW = {
    "/progress/": {"agent": "codex", "summary": "wrote it"},
    "/messages/": {"to": "ada", "from": "bob", "body": "hi"},
    "/token-events/": {"agent": "codex", "input_tokens": 3, "output_tokens": 0},
    "/decisions/": {"title": "which database?"},
    "/tasks/": {"title": "write it"},
    "/workplans/": {"title": "the plan"},
}


@pytest.fixture(params=STORES)
def hub(request: pytest.FixtureRequest, postgres_servers: Callable[[str], Postgres], tmp_path: Path) -> Hub:
    """Where a hub can be started, on each kind of store."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    if request.param == "sqlite":
        return Hub(home, f"sqlite:///{home / 'hub.db'}")
    return Hub(home, postgres_servers(installations()[0].name).create_database("hub"))


@pytest.fixture
def served(hub: Hub) -> Iterator[Hub]:
    with hub.serving() as process:
        yield hub
    assert process.returncode == 0


# --- rows ------------------------------------------------------------------------------------------


def test_every_kind_is_made_read_and_listed(served: Hub) -> None:
    for path, body in NEW.items():
        made = served.ask("POST", path, body)
        row = made.json
        assert made.status == 201
        assert {name: row[name] for name in body} == body
        assert row["revision"] == 1
        assert row["created_at"] == row["updated_at"]
        assert made.headers["etag"] == '"1"'
        assert made.headers["location"] == f"{path}{row['id']}"
        read = served.ask("GET", made.headers["location"])
        assert (read.status, read.json, read.headers["etag"]) == (200, row, '"1"')
        assert served.ask("GET", path).json == {"items": [row], "next_cursor": None}
    assert {row["status"] for row in served.listed("/tasks/")} == {"todo"}
    assert {row["status"] for row in served.listed("/decisions/")} == {"open"}


def test_details_and_texts_come_back_as_they_were_sent(served: Hub) -> None:
    details = {"files": ["a.py", "ü"], "deep": [[{"x": None}]], "pi": 3.25, "quote": '"\\\n', "empty": {}}
    row = served.make(
        "/progress/", {"agent": "Ωmega", "summary": "line\n\ttwo \u2028 \U0001f600", "details": details}
    )
    read = served.ask("GET", f"/progress/{row['id']}").json
    assert (read["agent"], read["details"]) == ("Ωmega", details)
    assert read["summary"] == "line\n\ttwo \u2028 \U0001f600"


def test_a_list_is_given_page_by_page(served: Hub) -> None:
    made = [served.make("/tasks/", {"title": str(number)})["id"] for number in range(7)]
    assert [row["id"] for row in served.listed("/tasks/")] == made
    first = served.ask("GET", "/tasks/?limit=2").json
    assert [row["id"] for row in first["items"]] == made[:2]
    assert served.ask("GET", "/tasks/?limit=7").json["next_cursor"] is None
    assert len(served.ask("GET", "/tasks/?limit=100000").json["items"]) == 7


def test_a_task_is_changed_by_whoever_knows_what_it_is(served: Hub) -> None:
    task = served.make("/tasks/", {"title": "t", "status": "todo"})
    path = f"/tasks/{task['id']}"
    doing = served.ask("PATCH", path, {"status": "doing", "expected_updated_at": task["updated_at"]})
    assert (doing.status, doing.json["status"], doing.headers["etag"]) == (200, "doing", '"2"')
    assert doing.json["previous"] == {"revision": 1, "updated_at": task["updated_at"], "status": "todo"}
    assert doing.json["updated_at"] > task["updated_at"]
    for answer, status, code in (
        (
            served.ask("PATCH", path, {"status": "x", "expected_updated_at": task["updated_at"]}),
            409,
            "revision_conflict",
        ),
        (served.ask("PATCH", path, {"status": "x", "expected_status": "todo"}), 409, "revision_conflict"),
        (served.ask("PATCH", path, {"status": "x"}, if_match='"1"'), 412, "stale_version"),
        (served.ask("DELETE", path, if_match='"1"'), 412, "stale_version"),
    ):
        assert (answer.status, answer.code) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["current"] == {name: doing.json[name] for name in task}
    assert served.ask("PATCH", path, {"title": "new"}, if_match='"2"').json["title"] == "new"
    assert served.ask("PATCH", path, {"status": "done"}, if_match="*").status == 200
    assert served.ask("PATCH", path, {"status": "last write wins"}).json["revision"] == 5
    assert served.ask("DELETE", path, if_match='"5"').status == 204
    assert served.ask("GET", path).code == "not_found"
    assert served.ask("PATCH", path, {"status": "x"}).status == 404


def test_workplans_and_decisions_are_changed_the_same_way(served: Hub) -> None:
    plan = served.make("/workplans/", {"title": "p", "status": "active"})
    changed = served.ask("PATCH", f"/workplans/{plan['id']}", {"status": "finished", "expected_status": "active"})
    assert (changed.json["status"], changed.json["previous"]["status"]) == ("finished", "active")

    decision = served.make("/decisions/", {"title": "d", "rationale": "because"})
    path = f"/decisions/{decision['id']}"
    assert served.ask("PATCH", path, {"rationale": None, "title": "d2"}).json["rationale"] is None
    resolved = served.ask("POST", f"{path}/resolve", {"resolution": "SQLite", "expected_status": "open"})
    assert (resolved.json["status"], resolved.json["resolution"]) == ("resolved", "SQLite")
    assert resolved.json["previous"]["status"] == "open"
    again = served.ask("POST", f"{path}/resolve", {"resolution": "other", "expected_status": "open"})
    assert (again.code, again.json["current"]["resolution"]) == ("revision_conflict", "SQLite")


def test_a_message_is_read_once(served: Hub) -> None:
    message = served.make("/messages/", NEW["/messages/"])
    assert message["read_at"] is None
    path = f"/messages/{message['id']}/read"
    first = served.ask("PATCH", path, {})
    assert first.json["read_at"] is not None
    assert first.json["previous"]["revision"] == 1
    again = served.ask("PATCH", path)
    assert again.status == 200
    assert {**again.json, "previous": None} == {**first.json, "previous": None}


def test_statuses_are_set_in_bulk(served: Hub) -> None:
    one, two = (served.make("/tasks/", {"title": "t", "status": "todo"}) for _ in range(2))
    asked = {
        "tasks": [
            {"id": one["id"], "status": "done", "expected_status": "todo"},
            {"id": "nobody", "status": "done"},
            {"id": two["id"], "status": "done", "expected_updated_at": "2020-01-01T00:00:00Z"},
        ]
    }
    answer = served.ask("POST", "/tasks/bulk-status-sync", asked, idempotency_key="bulk-1")
    assert answer.status == 200
    assert [item["http_status"] for item in answer.json["items"]] == [200, 404, 409]
    assert answer.json["items"][0]["task"]["status"] == "done"
    assert answer.json["items"][2]["problem"]["current"]["id"] == two["id"]
    again = served.ask("POST", "/tasks/bulk-status-sync", asked, idempotency_key="bulk-1")
    assert (again.body, again.headers["idempotent-replayed"]) == (answer.body, "true")


def test_the_summary_says_what_there_is(served: Hub) -> None:
    for status in ("todo", "todo", "done"):
        served.make("/tasks/", {"title": "t", "status": status})
    last = served.make("/progress/", NEW["/progress/"])
    summary = served.ask("GET", "/state/summary").json
    assert summary["kinds"]["tasks"] == {"count": 3, "by_status": {"todo": 2, "done": 1}}
    assert summary["kinds"]["progress"] == {"count": 1, "by_status": {}}
    assert summary["kinds"]["decisions"] == {"count": 0, "by_status": {}}
    assert summary["newest"][0] == {
        "kind": "progress",
        "id": last["id"],
        "revision": 1,
        "updated_at": last["updated_at"],
        "deleted": False,
    }
    assert summary["writes"] == 4
    assert summary["generated_at"] >= last["updated_at"]


# --- what is refused -------------------------------------------------------------------------------

BAD_BODIES: list[tuple[str, str, object, int, str]] = [
    ("POST", "/progress/", {}, 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "a"}, 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "", "summary": "s"}, 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "a", "summary": 7}, 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "a", "summary": "s", "surprise": 1}, 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "a" * 201, "summary": "s"}, 400, "invalid_request"),
    ("POST", "/progress/", b'{"agent":"a","summary":"s","details":NaN}', 400, "invalid_request"),
    ("POST", "/progress/", b'{"agent":"a","summary":"\\ud800"}', 400, "invalid_request"),
    ("POST", "/progress/", b'{"agent":"a","summary":"\xff"}', 400, "invalid_request"),
    ("POST", "/progress/", {"agent": "a", "summary": "zero \0 byte"}, 422, "unstorable"),
    ("POST", "/progress/", {"agent": "a", "summary": "s", "details": {"\0": 1}}, 422, "unstorable"),
    (
        "POST",
        "/progress/",
        b'{"agent":"a","summary":"s","details":' + b"[" * 65 + b"]" * 65 + b"}",
        400,
        "too_deep",
    ),
    ("POST", "/progress/", b'{"agent":"a","summary":"s","details":' + b"[" * 100_000, 400, "invalid_request"),
    ("POST", "/progress/", b"[]", 400, "invalid_request"),
    ("POST", "/progress/", b"", 400, "invalid_request"),
    ("POST", "/progress/", b'{"agent":"a","summary":"' + b"x" * (1 << 20) + b'"}', 413, "payload_too_large"),
    ("POST", "/messages/", {"to": "a", "body": "b"}, 400, "invalid_request"),
    ("POST", "/token-events/", {"agent": "a", "input_tokens": -1, "output_tokens": 0}, 400, "invalid_request"),
    ("POST", "/token-events/", {"agent": "a", "input_tokens": 2**53, "output_tokens": 0}, 400, "invalid_request"),
    ("POST", "/token-events/", {"agent": "a", "input_tokens": "1", "output_tokens": 0}, 400, "invalid_request"),
    ("POST", "/tasks/", {"title": "t", "status": ""}, 400, "invalid_request"),
    ("POST", "/tasks/", {"title": "t", "status": None}, 400, "invalid_request"),
    ("PATCH", "/tasks/x", {}, 400, "invalid_request"),
    ("PATCH", "/tasks/x", {"expected_status": "todo"}, 400, "invalid_request"),
    ("PATCH", "/tasks/x", {"title": None}, 400, "invalid_request"),
    ("PATCH", "/tasks/x", {"status": "x", "expected_updated_at": "yesterday"}, 400, "invalid_request"),
    ("PATCH", "/tasks/x", {"status": "\0"}, 422, "unstorable"),
    ("PATCH", "/tasks/x", {"status": "done"}, 404, "not_found"),
    ("POST", "/decisions/x/resolve", {}, 400, "invalid_request"),
    ("POST", "/decisions/x/resolve", {"resolution": "r"}, 404, "not_found"),
    ("POST", "/tasks/bulk-status-sync", {"tasks": [{"id": "x", "status": "s"}] * 501}, 400, "invalid_request"),
    ("POST", "/tasks/bulk-status-sync", {"tasks": [{"id": "x"}]}, 400, "invalid_request"),
    ("POST", "/tasks/bulk-status-sync", {"tasks": [{"id": "x", "status": "\0"}]}, 422, "unstorable"),
    ("PATCH", "/messages/x/read", {}, 404, "not_found"),
    ("DELETE", "/tasks/x", None, 404, "not_found"),
    ("DELETE", "/tasks/", None, 405, "method_not_allowed"),
    ("PUT", "/tasks/x", {"status": "s"}, 405, "method_not_allowed"),
    ("GET", "/tasks/x", None, 404, "not_found"),
    ("GET", "/nothing/", None, 404, "not_found"),
    ("GET", "/tasks/?limit=0", None, 400, "invalid_request"),
    ("GET", "/tasks/?limit=x", None, 400, "invalid_request"),
    ("GET", "/tasks/?cursor=nonsense", None, 400, "invalid_request"),
    ("GET", "/tasks/?cursor=", None, 400, "invalid_request"),
    ("GET", "/tasks/?surprise=1", None, 400, "invalid_request"),
]

BAD_HEADERS: list[tuple[dict[str, str], int, str]] = [
    ({"if_match": "3"}, 400, "bad_header"),
    ({"if_match": '"3'}, 400, "bad_header"),
    ({"if_match": ""}, 400, "bad_header"),
    ({"if_match": 'W/"1"'}, 412, "stale_version"),
    ({"if_match": '"other"'}, 412, "stale_version"),
    ({"if_match": '"0", "7"'}, 412, "stale_version"),
    ({"content_type": "text/plain"}, 415, "json_only"),
    ({"content_encoding": "gzip"}, 415, "json_only"),
    ({"idempotency_key": "with space"}, 400, "bad_idempotency_key"),
    ({"origin": "https://evil.example"}, 403, "bad_origin"),
    ({"host": "evil.example"}, 403, "bad_host"),
]


def test_what_cannot_be_taken_is_refused_with_a_reason_and_changes_nothing(served: Hub) -> None:
    task = served.make("/tasks/", {"title": "t", "status": "todo"})
    for method, path, body, status, code in BAD_BODIES:
        answer = served.ask(method, path, body)
        assert (answer.status, answer.code) == (status, code), (method, path, answer.body)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["retry"] == "no"
        assert answer.json["title"]
    for headers, status, code in BAD_HEADERS:
        answer = served.ask("PATCH", f"/tasks/{task['id']}", {"status": "x"}, **headers)
        assert (answer.status, answer.code) == (status, code), headers
    assert served.ask("GET", "/state/summary").json["writes"] == 1
    assert served.ask("GET", f"/tasks/{task['id']}").json == task


# --- keys ------------------------------------------------------------------------------------------


def test_the_same_write_again_is_answered_as_the_first_time(served: Hub) -> None:
    first = served.ask("POST", "/progress/", NEW["/progress/"], idempotency_key="k-1")
    again = served.ask("POST", "/progress/", NEW["/progress/"], idempotency_key='"k-1"')
    assert (again.status, again.body) == (first.status, first.body) == (201, first.body)
    assert [again.headers[name] for name in ("etag", "location")] == [
        first.headers[name] for name in ("etag", "location")
    ]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    other = served.ask("POST", "/progress/", {"agent": "a", "summary": "other"}, idempotency_key="k-1")
    assert (other.status, other.code) == (409, "key_reused")
    assert len(served.listed("/progress/")) == 1


def test_a_conflict_is_judged_anew_under_the_same_key(served: Hub) -> None:
    task = served.make("/tasks/", {"title": "t", "status": "todo"})
    path = f"/tasks/{task['id']}"
    asked = {"status": "done", "expected_status": "doing"}
    assert served.ask("PATCH", path, asked, idempotency_key="k").status == 409
    served.ask("PATCH", path, {"status": "doing"})
    assert served.ask("PATCH", path, asked, idempotency_key="k").json["status"] == "done"
    replayed = served.ask("PATCH", path, asked, idempotency_key="k")
    assert (replayed.status, replayed.headers["idempotent-replayed"]) == (200, "true")


def test_many_at_once_under_one_key_write_one_row(served: Hub) -> None:
    def send(_: int) -> Answer:
        return served.ask("POST", "/progress/", NEW["/progress/"], idempotency_key="herd")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, range(64)))
    assert {answer.status for answer in answers} <= {201, 409}
    assert {answer.code for answer in answers if answer.status == 409} <= {"key_in_progress"}
    assert len({answer.body for answer in answers if answer.status == 201}) == 1
    assert len(served.listed("/progress/")) == 1


def test_of_many_who_expect_the_same_one_changes_the_task(served: Hub) -> None:
    task = served.make("/tasks/", {"title": "t", "status": "todo"})

    def send(number: int) -> int:
        asked = {"status": f"of {number}", "expected_status": "todo"}
        return served.ask("PATCH", f"/tasks/{task['id']}", asked, idempotency_key=f"k{number}").status

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(send, range(8)))
    assert statuses == [200, *[409] * 7]
    assert served.ask("GET", f"/tasks/{task['id']}").json["revision"] == 2


@pytest.mark.prints("statehub idempotency list")
def test_keys_are_listed_without_what_was_answered(served: Hub) -> None:
    served.ask(
        "POST",
        "/progress/",
        {"agent": "codex", "summary": "nobody may see this"},
        idempotency_key="k-1",
        x_source_host="laptop",
        x_source_agent="codex",
    )
    served.ask("DELETE", "/tasks/nobody", idempotency_key="k-2")
    listed = served.run("idempotency", "list", "--json", "--store", served.store)
    assert "nobody may see" not in listed.stdout + listed.stderr
    keys = json.loads(listed.stdout)["keys"]
    told = [(key["key"], key["method"], key["path"], key["state"], key["status"]) for key in keys]
    assert told == [
        ("k-1", "POST", "/progress/", "settled", 201),
        ("k-2", "DELETE", "/tasks/nobody", "settled", 404),
    ]
    assert (keys[0]["source_host"], keys[0]["source_agent"]) == ("laptop", "codex")
    people = served.run("idempotency", "list", "--store", served.store, "--after", "1", "--limit", "5")
    assert "k-2" in people.stdout
    assert "k-1" not in people.stdout


# --- its life --------------------------------------------------------------------------------------


def killed_under(hub: Hub, tmp_path: Path, commits: int) -> None:
    """Have a keyed write meet a hub that dies after its n-th commit, before anybody is answered."""
    point = "sqlite.after_commit" if hub.store.startswith("sqlite") else "postgres.after_commit"
    trigger = tmp_path / "trigger"
    with hub.serving(victim=(point, commits, trigger)) as process:
        hub.make("/tasks/", {"title": "before"})
        trigger.touch()
        with pytest.raises(OSError, match=r".*"):
            hub.ask("POST", "/progress/", NEW["/progress/"], idempotency_key="k")
        assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_a_hub_that_is_killed_after_the_commit_has_written_once(hub: Hub, tmp_path: Path) -> None:
    # On SQLite the mark is a commit of the same writer, before that of the row.
    killed_under(hub, tmp_path, 2 if hub.store.startswith("sqlite") else 1)
    with hub.serving():
        rows = hub.listed("/progress/")
        assert len(rows) == 1
        again = hub.ask("POST", "/progress/", NEW["/progress/"], idempotency_key="k")
        assert (again.status, again.json, again.headers["idempotent-replayed"]) == (201, rows[0], "true")
        assert hub.listed("/progress/") == rows
        assert hub.ask("GET", "/state/summary").json["writes"] == 2


def test_a_hub_that_is_killed_before_the_write_frees_the_key_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    hub = Hub(home, f"sqlite:///{home / 'hub.db'}")
    killed_under(hub, tmp_path, 1)
    with hub.serving():
        assert hub.listed("/progress/") == []
        answers: list[Answer] = []

        def is_free() -> bool:
            answers.append(hub.ask("POST", "/progress/", NEW["/progress/"], idempotency_key="k"))
            return answers[-1].status != 409

        assert wait_until(is_free, WITHIN_S)
        *refused, done = answers
        assert {answer.code for answer in refused} == {"key_in_progress"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert done.status == 201
        assert len(hub.listed("/progress/")) == 1


def test_what_was_answered_is_there_after_a_restart(hub: Hub) -> None:
    with hub.serving():
        rows = {path: hub.make(path, body) for path, body in NEW.items()}
    with hub.serving() as process:
        for path, row in rows.items():
            assert hub.listed(path) == [row]
        policy = hub.ask("GET", "/.well-known/idempotency-policy").json
        assert policy["expiry_s"] >= 30 * 86_400
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


def test_health_metrics_and_the_document_are_there(served: Hub) -> None:
    served.make("/tasks/", {"title": "t"})
    served.ask("PATCH", "/tasks/nobody", {"status": "x"})
    health = served.ask("GET", "/health").json
    assert (health["status"], health["writes"]) == ("ok", 1)
    assert health["store"] == ("sqlite" if served.store.startswith("sqlite") else "postgresql")
    metrics = served.ask("GET", "/metrics").body.decode()
    assert 'cm_hub_writes_total{kind="tasks",outcome="created"} 1.0' in metrics
    assert 'cm_hub_writes_total{kind="tasks",outcome="missing"} 1.0' in metrics
    assert 'cm_hub_requests_total{method="POST",status="2xx"} 1.0' in metrics
    document = served.ask("GET", "/openapi.json").json
    operations = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
    assert operations == {
        *(("POST", path) for path in NEW),
        *(("GET", path) for path in NEW),
        *(("GET", f"{path}{{id}}") for path in NEW),
        *(("PATCH", f"/{kind}/{{id}}") for kind in ("tasks", "workplans", "decisions")),
        ("PATCH", "/messages/{id}/read"),
        ("POST", "/decisions/{id}/resolve"),
        ("POST", "/tasks/bulk-status-sync"),
        ("DELETE", "/tasks/{id}"),
        ("GET", "/state/summary"),
        ("GET", "/.well-known/idempotency-policy"),
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
    }


# --- who gets in -----------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path) -> Hub:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Hub(home, f"sqlite:///{home / 'hub.db'}")


def test_one_file_has_one_hub_and_is_nobody_elses(alone: Hub) -> None:
    with alone.serving():
        second = alone.run("serve", "--listen", "127.0.0.1:0", "--store", alone.store)
        assert second.returncode == 1
        assert "already_running" in second.stderr
        assert stat.S_IMODE((alone.home / "hub.db").stat().st_mode) == 0o600


def test_beyond_this_machine_it_needs_a_token_and_no_page_gets_in(alone: Hub) -> None:
    refused = alone.run("serve", "--listen", "0.0.0.0:0", "--store", alone.store)
    assert (refused.returncode, "token_file" in refused.stderr) == (1, True)
    port = alone.listen.rpartition(":")[2]
    alone.listen = f"0.0.0.0:{port}"
    with alone.serving("--token-file", str(alone.home / "token")):
        alone.listen = f"127.0.0.1:{port}"
        assert alone.ask("GET", "/tasks/").code == "missing_token"
        alone.token = (alone.home / "token").read_text().strip()
        assert alone.ask("GET", "/tasks/", host="hub.example.org").status == 200
        assert (
            alone.ask("GET", "/tasks/", host="hub.example.org", origin="http://hub.example.org").code
            == "bad_origin"
        )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("serve", "--store", "mysql://x"), 2),
        (("serve", "--store", "sqlite:///"), 2),
        (("serve", "--listen", "nowhere"), 2),
        (("idempotency", "list", "--store", "sqlite:///nothing/there.db"), 1),
        (("idempotency", "list", "--limit", "0"), 2),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(alone: Hub, words: tuple[str, ...], code: int) -> None:
    ran = alone.run(*words)
    assert ran.returncode == code
    assert ran.stderr.startswith("statehub: ")
