"""A ledger in which every kind of row stands in every state, and what its rows are called.

The steps, in the order they were posted: `done` is committed, `held` leased for a long time, `late` leased by a
lease that is over, `free` and `last` are pending. In version 2 `late` was requeued and claimed again before that,
and `held` was renewed.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from claudemesh.ledger import MessageCassette
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from tests.contract.ledger.clocks import LedgerClock
from tests.contract.ledger.shells import newest_shell

RUN, OTHER_RUN = "nightly", "weekly"
DAY_S = 86_400


def make_ledger(path: Path, version: int = 2) -> MessageCassette:
    """Begin a ledger of a version, or open the one that is there."""
    LedgerFile.open(path, version=version).close()
    return MessageCassette(db_path=path)


@dataclass(frozen=True)
class Scene:
    path: Path
    version: int
    names: dict[str, str]  # what stands in braces in an attack -> its id

    @contextmanager
    def ledger(self) -> Iterator[MessageCassette]:
        with MessageCassette(db_path=self.path) as opened:
            yield opened

    def issues(self) -> list[str]:
        with self.ledger() as opened:
            return opened.find_issues()

    def expected(self) -> list[str]:
        """Return what is wrong from the beginning: one lease is over."""
        return [f"lease expired: step {self.names['late']} of run {RUN}, held by cat until {self.names['ended']}"]

    def fill(self, sql: str) -> str:
        for name, value in self.names.items():
            sql = sql.replace(f"{{{name}}}", value)
        return sql


@cache
def _template(version: int) -> "tuple[TemporaryDirectory[str], dict[str, str]]":
    folder = TemporaryDirectory(prefix="cm-ledger-")
    path = Path(folder.name, "ledger.db")
    clock = LedgerClock(int(time() * 1000) - 10_000_000)
    with clock.rule(make_ledger(path, version)) as ledger:
        names = _play(ledger, clock, version)
    return folder, names


def _play(ledger: MessageCassette, clock: LedgerClock, version: int) -> dict[str, str]:
    two_jobs = {
        "jobs": [{"intent": "build", "steps": [{"n": 1}, {"n": 2}]}, {"intent": "test", "steps": [{"n": 3}]}]
    }
    first, job = ledger.post_message(two_jobs, RUN, "USER", "key-1")
    second, free_job = ledger.post_message({"intent": "ship"}, RUN, "PLANNER")
    other, other_job = ledger.post_message({"intent": "sweep"}, OTHER_RUN, "SYSTEM", "key-1")
    names = {"message": first, "job": job, "job_2": f"{first}.2", "second": second, "other": other}
    names |= {"free_job": free_job, "other_job": other_job}
    done = ledger.claim_step(RUN, "ann")
    names["receipt"] = ledger.complete_step(RUN, done["step_id"], "ann", 1, {"ok": True}, "SUCCESS")
    held = ledger.claim_step(RUN, "ben", ttl_seconds=30 * DAY_S)
    late = ledger.claim_step(RUN, "cat", ttl_seconds=1)
    if version > 1:
        clock.advance(2)
        names["requeue"] = ledger.requeue_step(RUN, late["step_id"])
        late = ledger.claim_step(RUN, "cat", ttl_seconds=1)
        held["lease_expires_at"] = ledger.renew_lease(RUN, held["step_id"], "ben", 1, 31 * DAY_S)
    names |= {"done": done["step_id"], "held": held["step_id"], "late": late["step_id"]}
    names |= {"held_until": held["lease_expires_at"], "ended": late["lease_expires_at"]}
    names |= {"free": f"{free_job}.1", "last": f"{other_job}.1", "late_token": str(late["fencing_token"])}
    return names


def set_scene(folder: Path, version: int) -> Scene:
    """Give a copy that a test may break."""
    template, names = _template(version)
    path = Path(shutil.copy(Path(template.name, "ledger.db"), folder / "ledger.db"))
    future, past, now_ish = "2037-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z", names["ended"]
    with newest_shell(path) as shell:
        end = shell("SELECT max(seq), hash FROM cassette_chain")[0] if version > 1 else (0, "")
    moments = {"future": future, "past": past, "then": now_ish, "hash": "ab" * 32}
    chain = {"seq": str(end[0]), "next": str(end[0] + 1), "end": end[1]}
    return Scene(path, version, names | moments | chain)
