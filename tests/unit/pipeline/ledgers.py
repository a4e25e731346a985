"""Made-up rows of a ledger, all of it as promised: posts, claims, renewals, leases that ran out, and receipts.

The same seed makes the same ledger. One of version 1 has no requeues, no renewals and no chain.
"""

import random
from datetime import UTC, datetime
from typing import Any

from claudemesh.pipeline.catalogue import LEDGER
from claudemesh.pipeline.shapes import Growth

Row = dict[str, Any]
WORKERS = ("ann", "ben", "cat")
LEASE_MS = 1_000
START_MS = 1_767_225_600_000


def instant(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Ledger:
    def __init__(self, seed: int, run: str, *, version: int = 2) -> None:
        self.dice = random.Random(seed)  # noqa: S311
        self.run = run
        self.version = version
        self.now_ms = START_MS
        self.tables: dict[str, list[Row]] = {table.name: [] for table in LEDGER.wanted(Growth.APPEND, bodies=False)}

    def __getitem__(self, name: str) -> list[Row]:
        return self.tables[f"cassette_{name}"]

    # --- what is written ---

    def post(self, steps: int = 1) -> list[Row]:
        message_id = f"{self.run}-m{len(self['messages']) + 1}"
        job_id = f"{message_id}.1"
        self._append("messages", message_id=message_id, run_id=self.run, source="USER", idempotency_key=None)
        self._append("jobs", job_id=job_id, message_id=message_id, intent="build", ordinal=1)
        free = {"status": "PENDING", "lease_owner": None, "lease_expires_at": None, "claimed_at": None}
        rows = [
            self._append(
                "steps", step_id=f"{job_id}.{number}", job_id=job_id, ordinal=number, fencing_token=0, **free
            )
            for number in range(1, steps + 1)
        ]
        self.chain("message", message_id)
        return rows

    def claim(self, step: Row, worker: str) -> None:
        step |= {"status": "LEASED", "lease_owner": worker, "fencing_token": step["fencing_token"] + 1}
        step |= {"lease_expires_at": instant(self.now_ms + LEASE_MS)}
        step |= {"claimed_at": instant(self.now_ms) if self.version > 1 else None}

    def renew(self, step: Row) -> Row:
        step["lease_expires_at"] = instant(self.now_ms + LEASE_MS)
        return self._note("renewal", step)

    def requeue(self, step: Row) -> Row:
        row = self._note("requeue", step)
        step |= {"status": "PENDING", "lease_owner": None, "lease_expires_at": None}
        return row

    def complete(self, step: Row, outcome: str = "SUCCESS") -> Row:
        step["status"] = "COMMITTED"
        return self.receipt(step, step["lease_owner"], step["fencing_token"], outcome)

    def receipt(self, step: Row, worker: str, token: int, outcome: str = "SUCCESS") -> Row:
        receipt_id = f"{self.run}-receipt-{len(self['receipts']) + 1}"
        whose = {"step_id": step["step_id"], "job_id": step["job_id"], "worker_id": worker}
        row = self._append("receipts", receipt_id=receipt_id, **whose, fencing_token=token, outcome=outcome)
        self.chain("receipt", receipt_id)
        return row

    def chain(self, kind: str, row_id: str) -> None:
        if self.version > 1:
            seq = len(self["chain"]) + 1
            self["chain"].append({"seq": seq, "kind": kind, "row_id": row_id, "hash": f"{seq:064x}"})

    def _note(self, kind: str, step: Row) -> Row:
        rows = f"{kind}s"
        row_id = f"{self.run}-{kind}-{len(self[rows]) + 1}"
        lease = {name: step[name] for name in ("step_id", "fencing_token", "lease_expires_at")}
        row = self._append(rows, **{f"{kind}_id": row_id}, worker_id=step["lease_owner"], **lease)
        self.chain(kind, row_id)
        return row

    def _append(self, rows: str, /, **values: object) -> Row:
        row = {"rowid": len(self[rows]) + 1, **values, "created_at": instant(self.now_ms)}
        self[rows].append(row)
        return row

    # --- what happens ---

    def act(self) -> None:
        """Let some time pass, and somebody do something."""
        self.now_ms += self.dice.randint(1, LEASE_MS // 2)
        self.post(self.dice.randint(1, 3))
        for step in self["steps"]:
            dice = self.dice.random()
            is_over = step["status"] == "LEASED" and step["lease_expires_at"] <= instant(self.now_ms)
            if is_over:
                if self.version > 1 and dice < 0.7:
                    self.requeue(step)
            elif step["status"] == "PENDING" and dice < 0.3:
                self.claim(step, self.dice.choice(WORKERS))
            elif step["status"] == "LEASED" and dice < 0.2 and self.version > 1:
                self.renew(step)
            elif step["status"] == "LEASED" and dice < 0.6:
                self.complete(step, self.dice.choice(["SUCCESS", "SUCCESS", "FAILURE", "ABORTED"]))


def clean_ledger(seed: int, run: str, *, acts: int = 20, version: int = 2) -> Ledger:
    ledger = Ledger(seed, run, version=version)
    for _ in range(acts):
        ledger.act()
    return ledger
