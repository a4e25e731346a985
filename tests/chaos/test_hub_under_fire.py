"""A hub that is killed again and again while callers write: each write is there once, as it was answered.

Callers go on under the same key until they have an answer. Each changes a task of its own, expecting the revision
that it was told last: a write that was lost would stop it, one that was done twice would be a gap.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from claudemesh.runtime.patience import wait_until
from tests.integration.hub_process import Answer, Hub
from tests.services.postgres import Postgres, installations

pytestmark = [pytest.mark.timeout(600), pytest.mark.req("R2")]

WITHIN_S = 60  # a key whose worker was killed is free again after seconds
CALLERS = 6
WRITES_A_ROUND = 40
ROUNDS = 3


@dataclass
class Caller:
    hub: Hub
    name: str
    is_over: threading.Event
    answers: list[Any] = field(default_factory=list)  # of the changes to its task
    reported: int = 0
    failure: str = ""

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001  a thread has nobody to raise it to
            self.failure = repr(error)

    def _write(self) -> None:
        task = self._until_answered("POST", "/tasks/", {"title": self.name}, 0).json
        revision, number = 1, 0
        while not self.is_over.is_set():
            number += 1
            body = {"agent": self.name, "summary": f"{self.name} {number}"}
            assert self._until_answered("POST", "/progress/", body, number).status == 201
            self.reported = number
            path, body = f"/tasks/{task['id']}", {"status": f"s{number}"}
            changed = self._until_answered("PATCH", path, body, number, if_match=f'"{revision}"')
            assert changed.status == 200, changed.body
            revision = changed.json["revision"]
            self.answers.append(changed.json)

    def _until_answered(self, method: str, path: str, body: Any, number: int, **headers: str) -> Answer:  # noqa: ANN401
        key = f"{self.name}-{method}-{number}"
        answers: list[Answer] = []

        def ask() -> bool:
            try:
                answers.append(self.hub.ask(method, path, body, idempotency_key=key, **headers))
            except (OSError, http.client.HTTPException):
                return False
            is_passing = answers[-1].status >= 500 or (
                answers[-1].status == 409 and answers[-1].code == "key_in_progress"
            )
            return not is_passing

        assert wait_until(ask, WITHIN_S), f"{key} was never answered"
        return answers[-1]


@pytest.fixture(params=["sqlite", "postgresql"])
def hub(request: pytest.FixtureRequest, postgres_servers: Callable[[str], Postgres], tmp_path: Path) -> Hub:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    if request.param == "sqlite":
        return Hub(home, f"sqlite:///{home / 'hub.db'}")
    return Hub(home, postgres_servers(installations()[0].name).create_database("hub"))


def test_every_write_is_there_once_however_often_the_hub_is_killed(hub: Hub, effort: int) -> None:
    is_over = threading.Event()
    callers = [Caller(hub, f"caller{number}", is_over) for number in range(CALLERS)]
    threads = [threading.Thread(target=caller.run) for caller in callers]

    def written() -> int:
        return sum(caller.reported for caller in callers)

    for turn in range(ROUNDS * effort):
        with hub.serving() as process:
            for thread in threads if turn == 0 else ():
                thread.start()
            before = written()
            enough = lambda: written() - before >= WRITES_A_ROUND or any(c.failure for c in callers)  # noqa: B023, E731
            assert wait_until(enough, WITHIN_S)
            process.kill()
            process.wait(WITHIN_S)
    with hub.serving():
        is_over.set()
        for thread in threads:
            thread.join(WITHIN_S)
        assert [caller.failure for caller in callers if caller.failure] == []
        reported = sorted(row["summary"] for row in hub.listed("/progress/", 200))
        wanted = sorted(f"{c.name} {number}" for c in callers for number in range(1, c.reported + 1))
        assert reported == wanted, "what was acknowledged is there, and nothing is there twice"
        tasks = {row["title"]: row for row in hub.listed("/tasks/", 200)}
        assert len(tasks) == CALLERS
        for caller in callers:
            revisions = [answer["revision"] for answer in caller.answers]
            assert revisions == list(range(2, len(revisions) + 2)), "each change was made once"
            last = tasks[caller.name]
            assert {name: caller.answers[-1][name] for name in last} == last
        assert hub.ask("GET", "/state/summary").json["writes"] == len(reported) + CALLERS + sum(
            len(caller.answers) for caller in callers
        )
