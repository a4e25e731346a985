"""Contract 6: the ledger."""

from tests.requirements.model import Requirement

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("L1", "Tables, triggers and error words are those callers rely on.", "contract 6", "planned"),
    Requirement("L2", "No raw SQL breaks the ledger; a lost trigger stops writes.", "contract 6", "planned"),
    Requirement("L3", "Claims follow one order, never overlap, and raise the token.", "contract 6", "planned"),
    Requirement("L4", "A wrong completion is refused by name; a right one is atomic.", "contract 6", "planned"),
    Requirement("L5", "A post is idempotent per key; another payload conflicts.", "contract 6", "planned"),
    Requirement("L6", "Verify passes or counts the issues, and exits 0 or 1.", "contract 6", "planned"),
    Requirement("L7", "Version 2 adds requeue and renewal; upgrading is explicit.", "contract 6", "planned"),
    Requirement("L8", "The ledger only records: jobs posted, nothing executed.", "contract 6", "planned"),
    Requirement("L9", "A queue message is posted once and its receipt is the reply.", "contract 6", "planned"),
    Requirement("L10", "A hash chain and a signed head betray any rewrite.", "contract 6", "planned"),
)
