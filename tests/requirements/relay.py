"""Contract 7: the edge relay and the hub."""

from tests.requirements.model import Requirement

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("R1", "The middleware runs a keyed write once and replays its answer.", "contract 7", "planned"),
    Requirement("R2", "The hub serves its resources with revisions and cursors.", "contract 7", "planned"),
    Requirement("R3", "A policy file sorts routes: append, replace or online-only.", "contract 7", "planned"),
    Requirement("R4", "The relay forwards, or queues durably and says it is queued.", "contract 7", "planned"),
    Requirement("R5", "Envelopes keep their states; a corrupt file stops queueing only.", "contract 7", "planned"),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "planned"),
    Requirement("R7", "Replay keeps entity order; a bad envelope blocks its own only.", "contract 7", "planned"),
    Requirement("R8", "A replacing write needs an expectation; a stale one conflicts.", "contract 7", "planned"),
    Requirement("R9", "Operators see, settle and rehearse an outage by command.", "contract 7", "planned"),
    Requirement("R10", "The relay is measured, and a queued write has no side effect.", "contract 7", "planned"),
)
