"""What is not as it should be with a relay, by the figures of its status. How that is said is each surface's own.

A surface that goes by `judge` takes no damaged outbox for an empty one, and no upstream that refuses the relay for
one that is well. This file loads nothing else of the relay: a host's hook runs it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class Concern(StrEnum):
    """Those that are counted are called as their figure in a status."""

    DAMAGED = "damaged"  # its outbox cannot be read: nobody knows what waits there
    PENDING = "pending"
    CONFLICTS = "conflicts"
    DEAD = "dead"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # the upstream answers, and does not take the relay's credential: nothing is replayed


COUNTED: Final = (Concern.PENDING, Concern.CONFLICTS, Concern.DEAD)
WAITING: Final = frozenset({Concern.DAMAGED, *COUNTED})  # while there is one, nobody may say that all was sent


def judge(status: Mapping[str, Any]) -> list[Concern]:
    """Return what is to be said of a status, of a relay's or of its file's, in the order of `Concern`."""
    found = []
    if not status["outbox_usable"]:
        found.append(Concern.DAMAGED)
    else:
        found += [concern for concern in COUNTED if status[concern]]
    if status["upstream_reachable"] is False:  # None: nobody has tried
        found.append(Concern.UNREACHABLE)
    elif status["upstream_state"] == "refused":
        found.append(Concern.REFUSED)
    return found
