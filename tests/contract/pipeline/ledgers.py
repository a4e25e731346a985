"""Ledgers to be copied, written by the ledger itself."""

from pathlib import Path

from claudemesh.ledger import MessageCassette, MessageCassetteError
from claudemesh.ledger.stores.sqlite.file import LedgerFile

RUN = "nightly"
TRIES = 100_000  # of a requeue whose lease ends within a millisecond


def open_ledger(path: Path, version: int = 2) -> MessageCassette:
    """Open a ledger, or begin one. It is closed before it is copied: a file that is open twice loses its locks."""
    LedgerFile.open(path, version=version).close()
    return MessageCassette(db_path=path)


def post(ledger: MessageCassette, count: int = 1, run: str = RUN) -> None:
    for number in range(count):
        ledger.post_message({"secret words": number}, run, "USER")


def commit(ledger: MessageCassette, run: str = RUN, outcome: str = "SUCCESS") -> str:
    """Do the next step; return its id."""
    step = ledger.claim_step(run, "ann")
    ledger.complete_step(run, step["step_id"], "ann", step["fencing_token"], {"secret answer": 1}, outcome)
    return str(step["step_id"])


def run_out(ledger: MessageCassette, run: str = RUN) -> str:
    """Let a lease on the next step run out, and requeue it; return its id."""
    step = ledger.claim_step(run, "ben", ttl_seconds=0.001)
    for _ in range(TRIES):
        try:
            ledger.requeue_step(run, step["step_id"])
        except MessageCassetteError as error:
            if "lease is live" not in str(error):
                raise
        else:
            return str(step["step_id"])
    raise AssertionError("a lease of a millisecond does not end")
