"""A ledger at work by several connections and threads: posted under keys, claimed, renewed, requeued and completed.

The careful workloads are `MessageCassette`'s own, on a new ledger and around an upgrade. The careless ones weaken
it in ways that people really do.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import apsw

from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.stores.sqlite import audit, chain, law
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from claudemesh.storage.sqlite import connection as settings
from tests.powercut.harness import Subject, Tell
from tests.powercut.states import Marks

FILE: Final = "ledger.db"
CONNECTIONS: Final = 2
CALLERS: Final = 4  # threads: two for each connection
ROUNDS: Final = 4
HELD: Final = 3  # leases that an upgrade finds
AT_ONCE_S: Final = 0.001  # a lease that has ended when somebody looks
LONG_S: Final = 100_000  # one that outlives every test

Said = dict[str, Any]


def payload_of(key: str) -> Said:
    """Return what is posted under a key: one job of one step, or two jobs with three."""
    text = key * 20
    if key.endswith(("0", "3")):
        return {"jobs": [{"intent": "sow", "steps": [text, key]}, {"intent": "reap", "steps": [text * 9]}]}
    return {"text": text}


def steps_of(key: str) -> int:
    return sum(len(job["steps"]) for job in payload_of(key).get("jobs", [])) or 1


# --- the callers ----------------------------------------------------------------------------------------


class Caller:
    """A worker with a run of its own, so that what it claims is what it posted."""

    def __init__(self, ledger: MessageCassette, mark: Tell, name: str) -> None:
        self._ledger = ledger
        self._mark = mark
        self._name = name
        self._run = f"run {name}"

    def post(self, key: str, *, again: bool) -> None:
        self._mark("post", key)
        message_id, _ = self._ledger.post_message(payload_of(key), self._run, "USER", key)
        self._mark("posted", f"{key} {message_id}")
        if again:
            assert self._ledger.post_message(payload_of(key), self._run, "USER", key)[0] == message_id

    def claim(self, ttl_s: float = LONG_S) -> Said:
        claimed = self._ledger.claim_step(self._run, self._name, ttl_s)
        self._mark("claimed", f"{claimed['step_id']} {claimed['fencing_token']} {self._name}")
        return claimed

    def complete(self, claimed: Said) -> None:
        step_id, token = claimed["step_id"], claimed["fencing_token"]
        self._mark("completing", step_id)
        said = {"of": step_id * 9}
        receipt_id = self._ledger.complete_step(self._run, step_id, self._name, token, said, "SUCCESS")
        self._mark("completed", f"{step_id} {token} {receipt_id}")

    def renew(self, claimed: Said) -> None:
        step_id, token = claimed["step_id"], claimed["fencing_token"]
        until = self._ledger.renew_lease(self._run, step_id, self._name, token, 2 * LONG_S)
        self._mark("renewed", f"{step_id} {token} {until}")

    def lose_and_requeue(self) -> None:
        """Claim for a moment, and give back what was held when the moment is over."""
        step_id = self.claim(AT_ONCE_S)["step_id"]
        requeued: dict[str, str] = {}
        while not requeued:  # for a millisecond
            requeued = self._ledger.requeue_expired(self._run)
        self._mark("requeued", f"{step_id} {requeued[step_id]}")

    def work(self, rounds: int, *, first: int = 0) -> None:
        for number in range(first, first + rounds):
            key = f"{self._name}.{number}"
            self.post(key, again=number % 2 == 0)
            if number % 3 == 1:
                self.lose_and_requeue()
            for _ in range(steps_of(key)):
                claimed = self.claim()
                if number % 2:
                    self.renew(claimed)
                self.complete(claimed)


class EarlyCaller(Caller):
    """Careless: it says that a step is completed before it is."""

    def complete(self, claimed: Said) -> None:
        self._mark("completed", f"{claimed['step_id']} {claimed['fencing_token']} soon")
        super().complete(claimed)


def call_all(path: Path, mark: Tell, life: str, kind: type[Caller] = Caller) -> list[MessageCassette]:
    """Let all of them work; return their ledgers, which are still open."""
    ledgers = [MessageCassette(db_path=path) for _ in range(CONNECTIONS)]
    callers = [kind(ledgers[number % CONNECTIONS], mark, f"{life}-{number}") for number in range(CALLERS)]
    in_threads(*(lambda caller=caller: caller.work(ROUNDS) for caller in callers))
    return ledgers


def in_threads(*calls: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        under_way = [pool.submit(call) for call in calls]
    for each in under_way:
        each.result()


# --- the workloads --------------------------------------------------------------------------------------


def two_lives(folder: Path, mark: Tell) -> None:
    for ledger in call_all(folder / FILE, mark, "1"):
        ledger.close()
    call_all(folder / FILE, mark, "2")


def upgraded(folder: Path, mark: Tell) -> None:
    """Begin with version 1; upgrade it while steps are held and others post, claim and complete."""
    path = folder / FILE
    LedgerFile.open(path, version=1).close()
    ledgers = [MessageCassette(db_path=path) for _ in range(CALLERS)]
    callers = [Caller(ledger, mark, f"1-{number}") for number, ledger in enumerate(ledgers)]
    held = []
    for caller in callers[:HELD]:
        for what in ("done", "held"):
            caller.post(f"{caller._name}.{what}", again=True)
        caller.complete(caller.claim())
        held.append(caller.claim())

    def upgrade() -> None:
        callers[HELD].post(f"{callers[HELD]._name}.first", again=False)
        mark("upgrading", 1)
        ledgers[HELD].upgrade()
        mark("upgraded", 2)

    def post_and_complete(caller: Caller) -> None:
        for number in range(ROUNDS):
            caller.post(f"{caller._name}.{number}", again=number % 2 == 0)
            caller.complete(caller.claim())

    in_threads(upgrade, *(lambda caller=caller: post_and_complete(caller) for caller in callers[:HELD]))
    for caller, claimed in zip(callers, held, strict=False):
        caller.renew(claimed)
        caller.complete(claimed)
    in_threads(*(lambda caller=caller: caller.work(2, first=ROUNDS) for caller in callers))


def with_sync_normal(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("normal", 1)
    two_lives(folder, mark)


def with_early_answers(folder: Path, mark: Tell) -> None:
    call_all(folder / FILE, mark, "1", EarlyCaller)


# --- what must hold -------------------------------------------------------------------------------------

_MESSAGES: Final = """
SELECT m.idempotency_key, m.message_id, m.payload_json, count(s.step_id) FROM cassette_messages AS m
LEFT JOIN cassette_jobs AS j ON j.message_id = m.message_id LEFT JOIN cassette_steps AS s ON s.job_id = j.job_id
GROUP BY m.message_id
"""


def reopen(folder: Path) -> None:
    """Start again, and look at everything; only a lease that nobody kept alive may be amiss."""
    with MessageCassette(db_path=folder / FILE) as ledger:
        issues = [issue for issue in ledger.find_issues() if not issue.startswith("lease expired")]
        if issues:
            raise MessageCassetteError("; ".join(issues))
        ledger.post_message({"the next start": "works"}, "another run", "SYSTEM")


def verify(connection: apsw.Connection, marks: Marks) -> list[str]:
    version = law.read_version(connection)
    if version is None:  # a cut while the ledger was made: then nobody was answered anything
        return [f"answered and lost: {mark.payload}" for mark in marks if mark.kind == "posted"]
    wrong = law.differences(connection) or audit.audit_rows(connection, version)
    if version == law.NEWEST:
        wrong += chain.audit(connection)
    if marks.of("upgraded") and version != law.NEWEST:
        wrong.append("answered and lost: the upgrade")
    return wrong + _messages(connection, marks) + _steps(connection, marks) + _records(connection, version, marks)


def _messages(connection: apsw.Connection, marks: Marks) -> list[str]:
    rows = [row for row in connection.execute(_MESSAGES) if row[0] is not None]
    found = {f"{key} {message_id}" for key, message_id, *_ in rows}
    wrong = [f"answered and lost: {each}" for each in _texts(marks, "posted") - found]
    wrong += [f"posted by nobody: {key}" for key, *_ in rows if key not in marks.of("post")]
    wrong += [f"half a message: {key}" for key, _, _, steps in rows if steps != steps_of(key)]
    return wrong + [f"posted twice: {key}" for key, n in Counter(row[0] for row in rows).items() if n > 1]


def _steps(connection: apsw.Connection, marks: Marks) -> list[str]:
    """Hold what workers were told about their leases against the steps; a requeue has a record, seen elsewhere."""
    rows = connection.execute("SELECT step_id, fencing_token, status, lease_owner FROM cassette_steps")
    steps = {step_id: (token, status, owner) for step_id, token, status, owner in rows}
    wrong = []
    for step_id, told, worker in (each.split() for each in _texts(marks, "claimed")):
        token, status, owner = steps.get(step_id, (0, "gone", None))
        if token < int(told):
            wrong.append(f"answered and lost: the claim of {step_id} under {told}")
        elif token == int(told) and status != "PENDING" and owner != worker:
            wrong.append(f"two hold {step_id} under {token}: {worker} and {owner}")
    committed = {step_id for step_id, (_, status, _) in steps.items() if status == "COMMITTED"}
    return wrong + [f"completed by nobody: {step_id}" for step_id in committed - marks.of("completing")]


def _records(connection: apsw.Connection, version: int, marks: Marks) -> list[str]:
    tables = {"completed": "SELECT step_id, fencing_token, receipt_id FROM cassette_receipts"}
    if version == law.NEWEST:
        tables["renewed"] = "SELECT step_id, fencing_token, lease_expires_at FROM cassette_renewals"
        tables["requeued"] = "SELECT step_id, requeue_id FROM cassette_requeues"
    return [
        f"answered and lost: {kind} {each}"
        for kind, sql in tables.items()
        for each in _texts(marks, kind) - {" ".join(map(str, row)) for row in connection.execute(sql)}
    ]


def _texts(marks: Marks, kind: str) -> set[str]:
    return {str(payload) for payload in marks.of(kind)}


LEDGER: Final = Subject(two_lives, reopen, verify, FILE, shares_commits=False)
