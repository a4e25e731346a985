"""The ledger as plain dicts: what it would do if nothing could ever go wrong with it.

What a lease allows is left to the kernel's rule, which the law says once more in SQL: both are held against each
other wherever the model runs.
"""

from dataclasses import dataclass, field
from typing import Any

from claudemesh.kernel import lease as rule
from claudemesh.kernel.lease import Acquire, Fence, Granted, Lease, Lost, LostBecause, Renew
from tests.contract.ledger.clocks import instant

SAID = {
    LostBecause.STALE_TOKEN: "Fencing token mismatch",
    LostBecause.NOT_OWNER: "Wrong worker",
    LostBecause.EXPIRED: "lease expired",
}
NEEDS_VERSION_2 = "needs version 2"


class Refused(Exception):
    """Carries the words that the ledger must refuse with."""


@dataclass
class Step:
    place: int
    run: str
    message: int
    payload: Any
    status: str = "PENDING"
    lease: Lease = rule.NEVER_HELD
    outcome: str | None = None
    requeues: int = 0

    def row(self, now_ms: int) -> dict[str, Any]:
        held = self.status != "PENDING"
        return {
            "place": self.place,
            "run_id": self.run,
            "status": self.status,
            "lease_owner": self.lease.owner if held else None,
            "lease_expires_at": instant(self.lease.expires_at_ms) if held else None,
            "fencing_token": self.lease.token,
            "outcome": self.outcome,
            "is_expired": self.status == "LEASED" and not self.lease.is_live(now_ms),
        }


@dataclass
class OracleLedger:
    version: int
    messages: list[tuple[str, str | None, Any]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def post(self, run: str, key: str | None, jobs: list[list[Any]]) -> int:
        """Return which message it is, from 1."""
        for number, (its_run, its_key, its_jobs) in enumerate(self.messages, start=1):
            if key is not None and (run, key) == (its_run, its_key):
                if jobs != its_jobs:
                    raise Refused("with another payload")
                return number
        self.messages.append((run, key, jobs))
        for payload in (payload for job in jobs for payload in job):
            self.steps.append(Step(len(self.steps) + 1, run, len(self.messages), payload))
        return len(self.messages)

    def claim(self, run: str, worker: str, ttl_ms: int, now_ms: int) -> Step:
        """Take the first that is pending: they stand in the order they were posted, which is that of claims."""
        for step in self.steps:
            if step.status == "PENDING" and step.run == run:
                verdict = rule.judge(step.lease, Acquire(worker, ttl_ms), now_ms)
                assert isinstance(verdict, Granted), "what is pending is free"
                step.status, step.lease = "LEASED", verdict.lease
                return step
        raise Refused("No pending steps")

    def complete(self, run: str, place: int, shown: Fence, outcome: str, now_ms: int) -> None:
        step = self._find(run, place)
        self._judge(step, shown, now_ms)
        step.status, step.outcome = "COMMITTED", outcome

    def renew(self, run: str, place: int, asked: Renew, now_ms: int) -> str:
        if self.version == 1:
            raise Refused(NEEDS_VERSION_2)
        step = self._find(run, place)
        ends_ms = step.lease.expires_at_ms
        renewed = self._judge(step, asked, now_ms)
        # A record always says a later end than the one before, if only by a moment.
        step.lease = Lease(renewed.owner, renewed.token, max(renewed.expires_at_ms, ends_ms + 1))
        return instant(step.lease.expires_at_ms)

    def requeue(self, run: str, place: int, now_ms: int) -> None:
        if self.version == 1:
            raise Refused(NEEDS_VERSION_2)
        step = self._find(run, place)
        if step.status != "LEASED":
            raise Refused("Step is not leased")
        if step.lease.is_live(now_ms):
            raise Refused("lease is live")
        step.status, step.lease = "PENDING", Lease(None, step.lease.token, 0)
        step.requeues += 1

    def requeue_expired(self, run: str, now_ms: int) -> list[int]:
        if self.version == 1:
            raise Refused(NEEDS_VERSION_2)
        expired = [step for step in self.steps if step.run == run and step.row(now_ms)["is_expired"]]
        for step in expired:
            self.requeue(run, step.place, now_ms)
        return [step.place for step in expired]

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        return [step.row(now_ms) for step in self.steps]

    def _find(self, run: str, place: int) -> Step:
        step = self.steps[place - 1]
        if step.run != run:
            raise Refused("Wrong run_id")
        return step

    @staticmethod
    def _judge(step: Step, request: Fence | Renew, now_ms: int) -> Lease:
        if step.status != "LEASED":
            raise Refused("Step is not leased")
        verdict = rule.judge(step.lease, request, now_ms)
        if isinstance(verdict, Lost):
            raise Refused(SAID[verdict.because])
        assert isinstance(verdict, Granted)
        return verdict.lease
