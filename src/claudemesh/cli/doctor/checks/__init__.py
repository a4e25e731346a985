"""All checks, in the order in which they are run and shown: what others rest on comes first.

A family is a module with its `CHECKS`; a new one is a line here.
"""

from typing import Final

from claudemesh.cli.doctor.checks import (
    broker,
    delivery,
    home,
    host,
    identity,
    processes,
    program,
    relay,
    settings,
    stores,
)
from claudemesh.cli.doctor.model import Check

ALL: Final[tuple[Check, ...]] = (
    *program.CHECKS,
    *home.CHECKS,
    *settings.CHECKS,
    *stores.CHECKS,
    *identity.CHECKS,
    *processes.CHECKS,
    *broker.CHECKS,
    *delivery.CHECKS,
    *relay.CHECKS,
    *host.CHECKS,
)
