"""The ledger of work: what was asked, who claimed it, and how it ended, provable for ever.

    from claudemesh.ledger import MessageCassette

    with MessageCassette(db_path="work.db") as ledger:
        ledger.post_message({"intent": "build"}, run_id="nightly", source="USER", idempotency_key="build-42")
        step = ledger.claim_step("nightly", worker_id="w1")
        ledger.complete_step(
            "nightly", step["step_id"], "w1", step["fencing_token"], {"ok": True}, outcome="SUCCESS"
        )

The rules are the database's own: `stores/sqlite/law/`. What is here asks it, and repeats what it says.
"""

from claudemesh.kernel.errors import (
    CassetteAltered,
    CassetteConflict,
    CassetteInvalid,
    CassetteUnavailable,
    MessageCassetteError,
    NoPendingSteps,
)
from claudemesh.ledger.api import MessageCassette

__all__ = [
    "CassetteAltered",
    "CassetteConflict",
    "CassetteInvalid",
    "CassetteUnavailable",
    "MessageCassette",
    "MessageCassetteError",
    "NoPendingSteps",
]
