"""Contract 5: presence."""

from tests.requirements.model import Requirement

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("P1", "Any sign of life keeps a lease; a watchdog's terminate is none.", "contract 5", "planned"),
    Requirement("P2", "A join is announced only when no live lease stands.", "contract 5", "planned"),
    Requirement("P3", "A closed socket is merely offline until its lease ends.", "contract 5", "planned"),
    Requirement("P4", "A resume swaps the socket, drains in order, renews the token.", "contract 5", "planned"),
    Requirement("P5", "An ended lease is one departure; the next hello is one join.", "contract 5", "planned"),
    Requirement("P6", "A resume token opens nothing when forged, stale, used or stolen.", "contract 5", "planned"),
    Requirement("P7", "Both sides ping, and end a silent connection in time.", "contract 5", "planned"),
    Requirement("P8", "Messages to an absent peer wait and arrive once on return.", "contract 5", "planned"),
    Requirement("P9", "Leases outlive a broker; no departure is announced twice.", "contract 5", "planned"),
    Requirement("P10", "Sessions register with a fresh attestation and are reaped.", "contract 5", "planned"),
    Requirement("P11", "The peer list has one entry per member with a live lease.", "contract 5", "planned"),
    Requirement("P12", "Lease times come from the environment; six scenarios hold.", "contract 5", "planned"),
    Requirement("P13", "A full peer entry tells if a send now would be seen.", "contract 5", "planned"),
)
