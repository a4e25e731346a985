"""The ledger and its oracle, given the same calls at random while the clock goes where it likes, agree in all.

Also in the words of every refusal, and across an upgrade; and what raw SQL tries in between changes nothing.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from claudemesh.kernel.lease import Fence, Renew
from claudemesh.ledger import MessageCassetteError
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.oracle import OracleLedger, Refused
from tests.contract.ledger.scenes import make_ledger
from tests.contract.ledger.shells import ERRORS, newest_shell

RUNS, WORKERS = st.sampled_from(["nightly", "weekly"]), st.sampled_from(["ann", "ben"])
PLACES = st.integers(0, 30)  # taken modulo what is there
TTLS = st.sampled_from([1, 1_000, 60_000])
JOBS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=2)
OFFS = st.sampled_from([0, 0, 0, 1, -1])  # by how much a token is another
OUTCOMES = st.sampled_from(["SUCCESS", "ABORTED"])
MOVES_MS = st.sampled_from([1, 999, 1_000, 60_000, 86_400_000, -1, -1_000, -60_000])
ATTACKS = (
    "UPDATE cassette_messages SET source = 'WORKER'",
    "UPDATE cassette_steps SET fencing_token = fencing_token + 1, lease_owner = 'eve'",
    "UPDATE cassette_steps SET status = CASE status WHEN 'PENDING' THEN 'COMMITTED' ELSE 'PENDING' END",
    "UPDATE OR REPLACE cassette_steps SET rowid = 1 + rowid % 2",
    "INSERT OR REPLACE INTO cassette_messages SELECT * FROM cassette_messages",
    "INSERT OR REPLACE INTO cassette_receipts SELECT * FROM cassette_receipts",
    "DELETE FROM cassette_steps",
)


class LedgerMachine(RuleBasedStateMachine):
    version: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = LedgerClock()
        self.ledger = self.clock.rule(make_ledger(Path(self.folder.name, "ledger.db"), self.version))
        self.oracle = OracleLedger(self.version)
        self.message_ids: list[str] = []

    def teardown(self) -> None:
        self.nothing_is_wrong_but_leases_that_ended()
        self.ledger.close()
        self.folder.cleanup()

    # --- what is asked of both ---

    def both(self, ask_oracle: Callable[[], Any], ask_ledger: Callable[[], Any]) -> tuple[Any, Any]:
        """Return both answers. If the oracle refuses, so must the ledger, in the same words: then both are None."""
        try:
            expected = ask_oracle()
        except Refused as refusal:
            with pytest.raises(MessageCassetteError, match=str(refusal)):
                ask_ledger()
            return None, None
        return expected, ask_ledger()

    def step_id(self, place: int) -> str:
        return str(self.ledger.list_steps(after=place - 1, limit=1)[0]["step_id"])

    def place(self, chosen: int) -> int:
        return 1 + chosen % len(self.oracle.steps)

    def token(self, place: int, off: int) -> int:
        return max(0, self.oracle.steps[place - 1].lease.token + off)

    @rule(run=RUNS, key=st.none() | st.sampled_from(["a", "b"]), jobs=JOBS)
    def post(self, run: str, key: str | None, jobs: list[list[int]]) -> None:
        payload = {"jobs": [{"intent": "i", "steps": steps} for steps in jobs]}
        number, posted = self.both(
            lambda: self.oracle.post(run, key, jobs),
            lambda: self.ledger.post_message(payload, run, "USER", key),
        )
        if number is not None:
            self.message_ids += [posted[0]] if number > len(self.message_ids) else []
            assert posted == (self.message_ids[number - 1], f"{self.message_ids[number - 1]}.1")

    @rule(run=RUNS, worker=WORKERS, ttl_ms=TTLS)
    def claim(self, run: str, worker: str, ttl_ms: int) -> None:
        step, claimed = self.both(
            lambda: self.oracle.claim(run, worker, ttl_ms, self.clock.now_ms),
            lambda: self.ledger.claim_step(run, worker, ttl_ms / 1000),
        )
        if step is not None:
            assert claimed["step_id"] == self.step_id(step.place)
            assert claimed["message_id"] == self.message_ids[step.message - 1]
            assert (claimed["payload"], claimed["fencing_token"]) == (step.payload, step.lease.token)

    @precondition(lambda self: self.oracle.steps)
    @rule(run=RUNS, chosen=PLACES, worker=WORKERS, off=OFFS, outcome=OUTCOMES)
    def complete(self, run: str, chosen: int, worker: str, off: int, outcome: str) -> None:
        place = self.place(chosen)
        token, step_id = self.token(place, off), self.step_id(place)
        self.both(
            lambda: self.oracle.complete(run, place, Fence(worker, token), outcome, self.clock.now_ms),
            lambda: self.ledger.complete_step(run, step_id, worker, token, {"n": chosen}, outcome),
        )

    @precondition(lambda self: self.oracle.steps)
    @rule(run=RUNS, chosen=PLACES, worker=WORKERS, off=OFFS, ttl_ms=TTLS)
    def renew(self, run: str, chosen: int, worker: str, off: int, ttl_ms: int) -> None:
        place = self.place(chosen)
        token, step_id = self.token(place, off), self.step_id(place)
        expected, until = self.both(
            lambda: self.oracle.renew(run, place, Renew(worker, token, ttl_ms), self.clock.now_ms),
            lambda: self.ledger.renew_lease(run, step_id, worker, token, ttl_ms / 1000),
        )
        assert until == expected

    @precondition(lambda self: self.oracle.steps)
    @rule(run=RUNS, chosen=PLACES)
    def requeue(self, run: str, chosen: int) -> None:
        place = self.place(chosen)
        step_id = self.step_id(place)
        self.both(
            lambda: self.oracle.requeue(run, place, self.clock.now_ms),
            lambda: self.ledger.requeue_step(run, step_id),
        )

    @rule(run=RUNS)
    def requeue_expired(self, run: str) -> None:
        places, requeued = self.both(
            lambda: self.oracle.requeue_expired(run, self.clock.now_ms),
            lambda: self.ledger.requeue_expired(run),
        )
        assert places is None or list(requeued) == [self.step_id(place) for place in places]

    @rule(by_ms=MOVES_MS)
    def move_the_clock(self, by_ms: int) -> None:
        self.clock.now_ms += by_ms

    @rule(sql=st.sampled_from(ATTACKS))
    def attack(self, sql: str) -> None:
        """Have it refused, unless there is no row that it could change."""
        with newest_shell(self.ledger.path) as shell:
            try:
                shell(sql)
            except ERRORS:
                return
            assert shell("SELECT changes()") == [(0,)]

    @precondition(lambda self: self.version == 1 and len(self.oracle.steps) > 3)
    @rule(really=st.sampled_from([False, False, True]))
    def upgrade(self, *, really: bool) -> None:
        if really:
            assert self.ledger.upgrade() == (self.oracle.version, 2)
            self.oracle.version = 2

    # --- what holds all the time ---

    @invariant()
    def every_step_stands_as_in_the_oracle(self) -> None:
        expected = self.oracle.rows(self.clock.now_ms)
        found = self.ledger.list_steps(limit=1_000)
        assert [{name: row[name] for name in expected[0]} for row in found] == expected if expected else found == []

    @rule()
    def nothing_is_wrong_but_leases_that_ended(self) -> None:
        expired = [row["place"] for row in self.oracle.rows(self.clock.now_ms) if row["is_expired"]]
        issues = self.ledger.find_issues()
        assert [issue.split(" of run ")[0] for issue in issues] == [
            f"lease expired: step {self.step_id(place)}" for place in expired
        ]


class Version1Machine(LedgerMachine):
    version = 1


class Version2Machine(LedgerMachine):
    version = 2


_SETTINGS = settings(max_examples=120, stateful_step_count=40, deadline=None, database=None)
Version1Machine.TestCase.settings = Version2Machine.TestCase.settings = _SETTINGS


@pytest.mark.req("L3", "L4", "L5")
class TestVersion1(Version1Machine.TestCase):  # type: ignore[misc, name-defined]
    pass


@pytest.mark.req("L3", "L4", "L5", "L7")
class TestVersion2(Version2Machine.TestCase):  # type: ignore[misc, name-defined]
    pass
