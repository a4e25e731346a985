"""Every requirement of the contract: its id, what it asks in one line, and how far it is.

The rule: an id is `proven` when a test through a public surface names it with `@pytest.mark.req("F4")`
*and* a planted fault, noted here beside the id, turns that very test red. `planned` is to be built or to
be proven yet (tests may name it already), `later` belongs to a later round and nothing is built for it.

A marker on a test that cannot fail for that reason is a defect, so each fault is planted for real, the first of
each requirement by `make test` (`tests/faults/test_planted_faults.py` changes a copy of `src` and runs the named
test against it), the others by `make mutants`.
`tests/docs/test_requirements.py` checks this table against the tests, both ways; `make trace` prints it.

To move an id to `proven`, set its state and give it a fault:

    Requirement(
        "F4", "ULIDs of one process only go up, ...", "contract 1", "proven",
        faults=(
            Fault(
                what="A clock that steps back takes the next ULID back with it.",
                file="kernel/ids.py",  # under src/claudemesh
                old="if wall_ms > last >> ULID_RANDOM_BITS:",  # exactly once there
                new="if wall_ms >= 0:",
                test="tests/unit/kernel/test_ids.py::test_ids_rise_when_the_clock_steps_back",
            ),
        ),
    )
"""

from tests.requirements import (
    broker_accept,
    broker_delivery,
    daemon_local,
    daemon_outbox,
    hub,
    kernel,
    ledger,
    pipeline,
    presence,
    relay,
    surfaces,
    wire,
)
from tests.requirements.model import Fault, Requirement, State

__all__ = ["REQUIREMENTS", "Fault", "Requirement", "State"]

REQUIREMENTS: tuple[Requirement, ...] = (
    *kernel.REQUIREMENTS,
    *daemon_outbox.REQUIREMENTS,
    *daemon_local.REQUIREMENTS,
    *wire.REQUIREMENTS,
    *broker_accept.REQUIREMENTS,
    *broker_delivery.REQUIREMENTS,
    *presence.REQUIREMENTS,
    *ledger.REQUIREMENTS,
    *hub.REQUIREMENTS,
    *relay.REQUIREMENTS,
    *pipeline.REQUIREMENTS,
    *surfaces.REQUIREMENTS,
)
