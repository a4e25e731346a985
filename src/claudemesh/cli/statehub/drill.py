"""`statehub drill`: an outage rehearsed, with a verdict. Real processes in a folder of their own; nothing of yours.

The hub is killed under a relay, writes are queued and refused, both come back, one write has become stale: the
drill says whether each step went as the runbook promises, and stops at the first that did not.

    --json   {ok, verdict, seconds, home, steps: [{name, ok, detail}]}
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import click
import orjson

from claudemesh.cli.command import DONE, FAILED, Command, Session
from claudemesh.cli.render import Output, escape
from claudemesh.cli.statehub.stage import Stage, opened
from claudemesh.edge.asking import Answered, Api
from claudemesh.edge.desk import RelayDesk
from claudemesh.edge.stores.sqlite import outbox as edge_store
from claudemesh.hub.stores import sqlite as hub_store
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.processes import pause
from claudemesh.runtime.progress import Waiting
from claudemesh.runtime.tokens import fresh_token
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema

APPENDS: Final = 5
AGENT: Final = "drill"
RELAY_AGENT: Final = "statehub-edge"
WITHIN_S: Final = 20.0
LOOK_S: Final = 0.05

_SQL: Final = load_queries(files("claudemesh.cli.statehub") / "drill.sql")

_WORKPLAN: Final = """\
---
id: DRILL-WP-0001
title: "A rehearsed outage"
status: finished
---
## T01 - Applied
```task
id: DRILL-WP-0001-T01
status: done
```
## T02 - Contested
```task
id: DRILL-WP-0001-T02
status: done
```
## T03 - Written in the file alone
```task
id: DRILL-WP-0001-T03
status: todo
```
"""

Step = tuple[str, Callable[[], str]]


class NotSoError(Exception):
    """A step did not go as it should."""


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Leave the rehearsal's folder, to be looked at.")
@click.pass_obj
def drill(session: Session, *, keep: bool) -> int:
    """Rehearse an outage with processes of its own, away from your home; exit 0 if all went as promised."""
    clock, out = SystemClock(), session.out
    began_ms = clock.monotonic_ms()
    folder, secret = Path(tempfile.mkdtemp(prefix="statehub-drill-")), fresh_token()
    try:
        with opened(folder, secret) as stage, session.waiting("rehearsing", by_thread=False) as shown:
            steps = list(_run(Drill(stage, secret), out, shown))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    is_good = all(step["ok"] for step in steps)
    document = {
        "ok": is_good,
        "verdict": "passed" if is_good else "failed",
        "seconds": round((clock.monotonic_ms() - began_ms) / 1000, 1),
        "home": str(folder) if keep else None,
        "steps": steps,
    }
    out.document(document, _verdict(out, document))
    return DONE if is_good else FAILED


def _run(drill: "Drill", out: Output, shown: Waiting) -> Iterator[dict[str, Any]]:
    """Go through the steps, telling each as it is done, up to the first that fails."""
    steps = drill.steps()
    for number, (name, step) in enumerate(steps):
        shown.reach(number, len(steps), escape(name))
        try:
            ok, detail = True, step()
        except NotSoError as error:
            ok, detail = False, str(error)
        except MeshError as error:
            ok, detail = False, error.detail or error.title
        except Exception as error:  # noqa: BLE001  a rehearsal ends with a verdict, whatever went wrong in it
            ok, detail = False, f"{type(error).__name__}: {error}"
        if not out.as_json:
            mark = out.paint("✓", "green") if ok else out.paint("✗", "red")
            shown.aside(lambda line: out.write([line]), f"{mark} {escape(name)}: {escape(detail)}")
        yield {"name": name, "ok": ok, "detail": detail}
        if not ok:
            return


def _verdict(out: Output, document: dict[str, Any]) -> list[str]:
    steps, kept = document["steps"], document["home"]
    lines = [f"kept: {escape(kept)}"] if kept else []
    if document["ok"]:
        said = f"passed: {len(steps)} steps in {document['seconds']} s; nothing was lost, doubled or overwritten"
        return [*lines, out.paint(said, "green")]
    return [*lines, out.paint(f"failed: {escape(steps[-1]['name'])}", "red")]


class Drill:
    """The steps, in their order; each returns what it found, or raises."""

    def __init__(self, stage: Stage, secret: str) -> None:
        self._stage = stage
        self._secret = secret
        self._keys = [f"drill-progress-{number}" for number in range(APPENDS)]
        self._applied: dict[str, Any] = {}
        self._contested: dict[str, Any] = {}
        self._conflict = ""

    def steps(self) -> list[Step]:
        return [
            ("the hub starts", self._hub_starts),
            ("a relay starts before it", self._relay_starts),
            ("writes pass through", self._writes_pass),
            ("the hub is killed", lambda: f"process {self._stage.kill('hub')}, with SIGKILL"),
            ("writes are queued, and say so", self._writes_queue),
            ("what may not wait is refused", self._refusals),
            ("an operator sees what waits", self._operator_sees),
            ("the relay is killed, too", lambda: f"process {self._stage.kill('relay')}, with SIGKILL"),
            ("the hub is back, and a task is changed there", self._competing_change),
            ("the relay is back, and replays", self._replay),
            ("exactly one write is in conflict", self._one_conflict),
            ("the hub is told of the recovery", self._recovery_told),
            ("the conflict is decided", self._decide),
            ("the hub is made to match the files", self._fix),
            ("no append is lost or doubled", self._appends),
            ("both files say the same", self._files_agree),
            ("no secret is in any file", self._no_secret),
        ]

    # --- before --------------------------------------------------------------------------------------

    def _hub_starts(self) -> str:
        self._stage.start_hub()
        return f"at {self._stage.hub.where}"

    def _relay_starts(self) -> str:
        self._stage.start_relay()
        return f"at {self._stage.relay.where}"

    def _writes_pass(self) -> str:
        self._write("POST", "/progress/", _progress("before the outage"), 201)
        made = [
            self._write("POST", "/tasks/", {"title": f"DRILL-WP-0001-{name}", "status": "todo"}, 201).json
            for name in ("T01 - Applied", "T02 - Contested")
        ]
        self._applied, self._contested = made
        return "one progress event and two tasks, each answered by the hub itself"

    # --- the outage ----------------------------------------------------------------------------------

    def _writes_queue(self) -> str:
        receipts = [
            self._write("POST", "/progress/", _progress(key), 202, key=key).json
            for key in [*self._keys, *self._keys]
        ]
        ids = {receipt["outbox_id"] for receipt in receipts}
        _check(len(ids) == APPENDS, f"{APPENDS} writes, each sent twice, became {len(ids)} envelopes")
        self._write("POST", "/decisions/", {"title": "go on", "rationale": "rehearsed"}, 202, key="drill-decision")
        for status in ("doing", "done"):
            self._write("PATCH", f"/tasks/{self._applied['id']}", _expecting(self._applied, status), 202)
        self._write("PATCH", f"/tasks/{self._contested['id']}", _expecting(self._contested, "done"), 202)
        return f"{APPENDS} progress events, each sent twice; a decision; two updates of one task and one of another"

    def _refusals(self) -> str:
        secret = {**_progress("with a credential"), "details": {"password": self._secret}}
        task = f"/tasks/{self._applied['id']}"
        for method, path, body, reason in (
            ("POST", "/progress/", secret, "contains_secret"),
            ("PATCH", task, {"status": "whatever"}, "needs_expectation"),
            ("DELETE", f"/tasks/{self._contested['id']}", None, ""),
        ):
            answer = self._write(method, path, body, 503)
            _check(answer.json["code"] == "not_queueable", f"{method} {path} is refused as {answer.json['code']}")
            told = answer.json["reason"]
            _check(reason in {"", told}, f"{method} {path} is refused because of {told}, and not {reason}")
        return "a write with a credential, one without an expectation, a DELETE: 503 not_queueable"

    def _operator_sees(self) -> str:
        code, status = self._stage.command("outbox", "status")
        waiting = APPENDS + 3  # the decision, and of each task the last update
        _check(code == FAILED, f"`outbox status` ended with {code} while writes wait")
        _check(status["pending"] == waiting, f"{status['pending']} writes wait, and not {waiting}")
        _check(not status["outage_over"] and not status["upstream_reachable"], "the outage is told as over")
        return f"`statehub outbox status`: {waiting} writes wait, exit 1"

    # --- recovery ------------------------------------------------------------------------------------

    def _competing_change(self) -> str:
        self._stage.start_hub()
        path = f"/tasks/{self._contested['id']}"
        self._write("PATCH", path, {"status": "blocked"}, 200, api=self._stage.hub)
        return "the second task is blocked now, which the queued update never saw"

    def _replay(self) -> str:
        self._stage.start_relay()
        code, left = self._stage.command("outbox", "replay", "--wait", f"{WITHIN_S:g}s")
        _check(code == DONE, f"`outbox replay` ended with {code}, {left.get('pending')} writes wait")
        applied = self._row(self._applied)
        _check(applied["status"] == "done", f"the first task is {applied['status']}, and not done")
        _check(applied["revision"] == self._applied["revision"] + 1, "the update that was coalesced went out, too")
        return "nothing waits any more; the first task is done, by one write"

    def _one_conflict(self) -> str:
        desk = RelayDesk(self._stage.edge_dir)
        found = desk.page("conflict", 0, 100)["items"]
        _check(len(found) == 1, f"{len(found)} writes are in conflict, and not 1")
        self._conflict = found[0]["id"]
        shown = desk.show(self._conflict)
        both = (shown["mine"]["status"], (shown["theirs"] or {}).get("status"))
        _check(both == ("done", "blocked"), f"it shows mine and theirs as {both}")
        standing = self._row(self._contested)["status"]
        _check(standing == "blocked", f"the newer value was overwritten with {standing}")
        _check(desk.status()["dead"] == 0, "a write is dead")
        return "the stale update: mine done, theirs blocked; the hub's value stands"

    def _recovery_told(self) -> str:
        def told() -> list[Any]:
            return [row for row in self._rows("/progress/") if row["agent"] == RELAY_AGENT]

        _wait(lambda: bool(told()))
        found = told()
        _check(len(found) == 1, f"there are {len(found)} progress events of the recovery, and not 1")
        summary: str = found[0]["summary"]
        return summary

    def _decide(self) -> str:
        code, _ = self._stage.command("outbox", "resolve", self._conflict, "--keep", "mine", "--by", AGENT)
        _check(code == DONE, f"`outbox resolve` ended with {code}")
        _wait(lambda: self._row(self._contested)["status"] == "done")
        standing = self._row(self._contested)["status"]
        _check(standing == "done", f"the second task is {standing} after mine was kept")
        _wait(lambda: not RelayDesk(self._stage.edge_dir).status()["pending"])
        code, status = self._stage.command("outbox", "status")
        _check(code == DONE and status["outage_over"], f"`outbox status` ended with {code}: {status['why']}")
        return "`statehub outbox resolve --keep mine`; `outbox status` exits 0: the outage can be declared over"

    def _fix(self) -> str:
        repo = self._stage.folder / "repo"
        (repo / "workplans").mkdir(parents=True)
        (repo / "workplans" / "DRILL-WP-0001.md").write_text(_WORKPLAN, encoding="utf-8")
        words = ("fix-consistency", "--repo", str(repo), "--upstream", self._stage.hub.where)
        code, first = self._stage.command(*words)
        _check(code == DONE and first["matches"], f"`fix-consistency` ended with {code}: {first.get('failed')}")
        made = [item["id"] for item in first["changed"]]
        _check(made == ["DRILL-WP-0001", "DRILL-WP-0001-T03"], f"it changed {made}")
        code, second = self._stage.command(*words)
        _check(code == DONE and not second["changed"], f"done again it changed {second.get('changed')}")
        return f"`statehub fix-consistency`: {len(made)} created, {len(first['right'])} right; again: nothing to do"

    # --- what is left --------------------------------------------------------------------------------

    def _appends(self) -> str:
        expected = Counter([*self._keys, "before the outage"])
        found = Counter(row["summary"] for row in self._rows("/progress/") if row["agent"] == AGENT)
        _check(found == expected, f"the hub has {dict(found)}")
        decisions = [row["title"] for row in self._rows("/decisions/")]
        _check(decisions == ["go on"], f"the hub has the decisions {decisions}")
        return f"{sum(expected.values())} progress events and a decision, each once, as the hub lists them"

    def _files_agree(self) -> str:
        for name in ("relay", "hub"):
            code = self._stage.stop(name)
            _check(code == 0, f"the {name} was told to stop and ended with {code}")
        created = _read(self._stage.home / "hub.db", hub_store.SCHEMA, "created")
        envelopes = _read(self._stage.edge_dir / "outbox.db", edge_store.SCHEMA, "envelopes")
        _check({row[2] for row in envelopes} == {"done", "aborted"}, f"envelopes are left: {envelopes}")
        aborted = [row[3] for row in envelopes if row[2] == "aborted"]
        _check(aborted == ["coalesced"], f"given up were {aborted}, and not the one that was coalesced")
        often = {key: count for _, key, count in created if key is not None}
        appends = [key for key, asked, *_ in envelopes if asked.startswith("POST ")]
        _check(sorted(appends) == sorted([*self._keys, "drill-decision"]), f"the relay holds {appends}")
        wrong = {key: often.get(key, 0) for key in appends if often.get(key) != 1}
        _check(not wrong, f"not created exactly once: {wrong}")
        rows = _read(self._stage.home / "hub.db", hub_store.SCHEMA, "rows", "progress")
        _check(len(rows) == APPENDS + 2, f"the hub's file has {len(rows)} progress events, and not {APPENDS + 2}")
        told = Counter(orjson.loads(row[0])["summary"] for row in rows)
        _check(max(told.values()) == 1, f"doubled: {told.most_common(1)}")
        return f"{len(envelopes)} envelopes settled, each append in the hub's journal once, under its key"

    def _no_secret(self) -> str:
        paths = [path for path in self._stage.folder.rglob("*") if path.is_file()]
        found = [path.name for path in paths if self._secret.encode() in path.read_bytes()]
        _check(not found, f"the credential that came in headers and in a body is in {found}")
        return f"the credential that came in headers and in a body is in none of {len(paths)} files"

    # --- asking --------------------------------------------------------------------------------------

    def _write(  # noqa: PLR0913 - a request, and what is to come of it
        self,
        method: str,
        path: str,
        body: object,
        status: int,
        *,
        key: str | None = None,
        api: Api | None = None,
    ) -> Answered:
        answer = self._stage.ask(api or self._stage.relay, method, path, body, key)
        _check(answer.status == status, f"{method} {path} is answered {answer.status}, and not {status}")
        is_queued = isinstance(answer.json, dict) and answer.json.get("queued") is True
        _check(is_queued == (status == 202), f"{method} {path} is answered {status} with {answer.json}")  # noqa: PLR2004
        return answer

    def _row(self, task: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = self._stage.ask(self._stage.hub, "GET", f"/tasks/{task['id']}").checked()
        return row

    def _rows(self, path: str) -> list[Any]:
        page = self._stage.ask(self._stage.hub, "GET", f"{path}?limit=200").checked()
        rows: list[Any] = page["items"]
        return rows


def _progress(summary: str) -> dict[str, Any]:
    return {"agent": AGENT, "summary": summary}


def _expecting(task: dict[str, Any], status: str) -> dict[str, str]:
    return {"status": status, "expected_updated_at": task["updated_at"]}


def _check(is_so: bool, otherwise: str) -> None:  # noqa: FBT001 - the one question
    if not is_so:
        raise NotSoError(otherwise)


def _wait(is_so: Callable[[], bool]) -> None:
    """Give it time; whoever waits looks again, and says what is wrong."""

    def look() -> bool:
        if is_so():
            return True
        pause(LOOK_S)
        return False

    wait_until(look, WITHIN_S)


def _read(path: Path, schema: Schema, query: str, *values: str) -> list[Any]:
    with Database.open(path, schema) as database:
        return database.read_blocking(lambda connection: connection.execute(_SQL[query], values).fetchall())
