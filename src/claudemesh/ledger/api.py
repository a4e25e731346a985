"""`MessageCassette`: the ledger as its callers know it. A thin layer that says what is to be; the law decides."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from claudemesh.kernel.errors import CassetteInvalid, MessageCassetteError
from claudemesh.ledger import policy
from claudemesh.ledger.heads import Head
from claudemesh.ledger.model import Claim, Link, Post, Receipt, Row
from claudemesh.ledger.stores.sqlite import chain, entries, law
from claudemesh.ledger.stores.sqlite.audit import audit
from claudemesh.ledger.stores.sqlite.file import LedgerFile
from claudemesh.ledger.stores.sqlite.upgrade import upgrade
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource

DEFAULT_PLACE: Final = Path("CORTEX", "_generated", "system3.db")
TTL_S_DEFAULT: Final = 300
PAGE_DEFAULT: Final = 100


@cache
def _ids() -> UlidSource:
    return UlidSource(SystemClock())


class MessageCassette:
    """A ledger of work in one SQLite file, for many processes and threads at once.

    Whatever goes wrong is a MessageCassetteError, and then nothing has changed; except for a CassetteUnavailable,
    after which nobody knows.
    """

    def __init__(
        self, repo_root: str | Path | None = None, db_path: str | Path | None = None, *, create: bool = True
    ) -> None:
        self.path = find_place(repo_root, db_path)
        self._file = LedgerFile.open(self.path, create=create)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what version 1 documents ----------------------------------------------------------------------

    def post_message(
        self, payload: dict[str, Any], run_id: str, source: str, idempotency_key: str | None = None
    ) -> tuple[str, str]:
        """Write a message down with its jobs and steps; return its id and that of its first job.

        `payload["jobs"] = [{"intent": …, "steps": […]}]` makes several; otherwise the payload is one job of one
        step. Under a key the same post again is answered as the first; another one is a CassetteConflict.
        """
        key = None if idempotency_key is None else policy.check_text(idempotency_key, "idempotency_key")
        post = Post(
            _ids().ulid(),
            policy.check_text(run_id, "run_id"),
            policy.check_source(source),
            key,
            policy.render_json(payload, "the payload"),
            policy.parse_jobs(payload),
        )
        return self._file.write(lambda connection, version: entries.post(connection, version, post))

    def claim_step(self, run_id: str, worker_id: str, ttl_seconds: float = TTL_S_DEFAULT) -> Row:
        """Lease the first pending step of a run: message by message as posted, then by job and step."""
        policy.check_text(run_id, "run_id")
        policy.check_text(worker_id, "worker_id")
        ttl = policy.render_ttl(ttl_seconds)
        return self._file.write(
            lambda connection, version: entries.claim(connection, version, run_id, worker_id, ttl)
        )

    def complete_step(  # noqa: PLR0913, PLR0917 - as it is documented
        self,
        run_id: str,
        step_id: str,
        worker_id: str,
        fencing_token: int,
        receipt_payload: object,
        outcome: str,
    ) -> str:
        """Write the receipt, and with it commit the step; return the receipt's id."""
        said = policy.render_json(receipt_payload, "the receipt")
        receipt = Receipt(_ids().ulid(), policy.check_outcome(outcome), said)
        claim = _claim(run_id, step_id, worker_id, fencing_token)
        return self._file.write(lambda connection, version: entries.complete(connection, version, claim, receipt))

    def verify_cassette(self, run_id: str | None = None) -> None:
        """Check schema, rows, chain and leases; say PASS or FAIL on standard error, and raise on FAIL."""
        issues = self.find_issues(run_id)
        sys.stderr.write(f"{render_verdict(issues)}\n")
        if issues:
            raise MessageCassetteError("; ".join(issues), issues=issues)

    # --- beyond it -------------------------------------------------------------------------------------

    def requeue_step(self, run_id: str, step_id: str) -> str:
        """Make a step pending again whose lease expired; return the record's id."""
        policy.check_text(run_id, "run_id")
        policy.check_text(step_id, "step_id")
        return self._file.write(
            lambda connection, version: entries.requeue(connection, version, _ids().ulid(), run_id, step_id)
        )

    def requeue_expired(self, run_id: str) -> dict[str, str]:
        """Requeue every step of a run whose lease expired; return the records' ids by step."""
        policy.check_text(run_id, "run_id")
        return self._file.write(
            lambda connection, version: entries.requeue_expired(connection, version, _ids().ulid, run_id)
        )

    def renew_lease(
        self, run_id: str, step_id: str, worker_id: str, fencing_token: int, ttl_seconds: float = TTL_S_DEFAULT
    ) -> str:
        """Hold a live lease longer, under the same token; return until when."""
        claim, ttl = _claim(run_id, step_id, worker_id, fencing_token), policy.render_ttl(ttl_seconds)
        return self._file.write(
            lambda connection, version: entries.renew(connection, version, _ids().ulid(), claim, ttl)
        )

    def list_steps(
        self,
        run_id: str | None = None,
        status: str | None = None,
        *,
        after: int = 0,
        limit: int = PAGE_DEFAULT,
        job_id: str | None = None,
    ) -> list[Row]:
        """Return steps in the order they were posted; `after` is the `place` of the last one seen."""
        if run_id is not None:
            policy.check_text(run_id, "run_id")
        if status is not None:
            policy.check_status(status)
        policy.check_number(after, "after")
        policy.check_number(limit, "limit")
        if job_id is not None:
            policy.check_text(job_id, "job_id")
        return self._file.read(
            lambda connection: entries.list_steps(connection, run_id, status, after, limit, job_id)
        )

    def find_held(self, run_id: str, worker_id: str) -> Row | None:
        """Return the step of a run that a worker holds under a live lease, as its claim did; None if there is none.

        It is for a worker that asked for work and never heard the answer: nothing is claimed a second time.
        """
        policy.check_text(run_id, "run_id")
        policy.check_text(worker_id, "worker_id")
        return self._file.read(lambda connection: entries.find_held(connection, run_id, worker_id))

    def find_receipt(self, run_id: str, step_id: str) -> Row | None:
        """Return the receipt of a step; None while it has none."""
        policy.check_text(run_id, "run_id")
        policy.check_text(step_id, "step_id")
        row = self._file.read(lambda connection: entries.find_receipt(connection, run_id, step_id))
        return None if row is None else row | {"receipt": policy.parse_json(row.pop("receipt_json"))}

    def newest_steps(
        self, status: str | None = None, *, before: int = policy.NUMBER_MAX, limit: int = PAGE_DEFAULT
    ) -> list[Row]:
        """Return steps of all runs, the newest first; `before` is the `place` of the last one seen."""
        if status is not None:
            policy.check_status(status)
        policy.check_number(before, "before")
        policy.check_number(limit, "limit")
        return self._file.read(lambda connection: entries.newest_steps(connection, status, before, limit))

    def count_steps(self) -> dict[str, int]:
        """Count the steps by status; `expired` are those LEASED whose lease ended."""
        pending, leased, expired, steps = self._file.read(entries.count_steps)
        return {"PENDING": pending, "LEASED": leased, "COMMITTED": steps - pending - leased, "expired": expired}

    def show_step(self, step_id: str) -> Row:
        """Return one step, its payload, and what its receipt says, if it has one."""
        policy.check_text(step_id, "step_id")
        return self._file.read(lambda connection: entries.show_step(connection, step_id))

    def find_step(self, run_id: str, idempotency_key: str) -> Row:
        """Return the first step of the message posted under a key."""
        policy.check_text(run_id, "run_id")
        policy.check_text(idempotency_key, "idempotency_key")
        row = self._file.read(lambda connection: entries.find_step(connection, run_id, idempotency_key))
        return row | {"payload": policy.parse_json(row.pop("payload_json"))}

    def find_receipts(self, run_id: str, idempotency_key: str) -> list[Row]:
        """Return the receipts that the message posted under a key has so far."""
        policy.check_text(run_id, "run_id")
        policy.check_text(idempotency_key, "idempotency_key")
        rows = self._file.read(lambda connection: entries.find_receipts(connection, run_id, idempotency_key))
        return [row | {"receipt": policy.parse_json(row.pop("receipt_json"))} for row in rows]

    def find_issues(self, run_id: str | None = None, head: Head | None = None) -> list[str]:
        """Return everything that is wrong, in words; with a head from earlier also whether it still fits."""
        if run_id is not None:
            policy.check_text(run_id, "run_id")
        return self._file.read(lambda connection: audit(connection, run_id, head))

    def read_id(self) -> str:
        """Return what tells this ledger from all others, wherever its file is."""
        return self._file.read(law.read_ledger_id)

    def read_end(self) -> tuple[str, Link]:
        """Return the ledger's id and the end of its chain; refused while its schema is not the law's."""
        return self._file.read(chain.read_head)

    def read_version(self) -> int | None:
        return self._file.read(law.read_version)

    def upgrade(self) -> tuple[int, int]:
        """Bring the ledger to version 2; return the version it had and the one it has."""
        return upgrade(self._file)


def find_place(repo_root: str | Path | None = None, db_path: str | Path | None = None) -> Path:
    """Return the ledger's file: as given, or its place below the repository that is given or worked in."""
    if db_path is not None:
        return Path(policy.check_text(str(db_path), "db_path"))
    if repo_root is None:
        return _git_top(Path.cwd()) / DEFAULT_PLACE
    if not Path(repo_root).is_dir():
        raise CassetteInvalid(f"repo_root is a directory, and {str(repo_root)!r} is none: a file is db_path")
    return Path(repo_root) / DEFAULT_PLACE


def _git_top(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def render_verdict(issues: Sequence[str]) -> str:
    return f"FAIL: {len(issues)} issue(s) found" if issues else "PASS: All invariants verified"


def _claim(run_id: object, step_id: object, worker_id: object, fencing_token: object) -> Claim:
    return Claim(
        policy.check_text(run_id, "run_id"),
        policy.check_text(step_id, "step_id"),
        policy.check_text(worker_id, "worker_id"),
        policy.check_token(fencing_token),
    )
