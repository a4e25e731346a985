"""Planted faults that belong to no requirement: they show that the tests of the inside can fail.

They run as those of `tests/requirements` do; see there for the fields. Most are of the classes of bugs that others
were bitten by: a lookup before an insert, a key scoped too widely, a receipt that lies, a retry that burns its
budget, a row that blocks its queue for good, a lease without its fence.
"""

from tests.faults.mutants import (
    archive,
    broker,
    broker_stores,
    checks,
    daemon,
    dashboard,
    edge,
    engine,
    ledger,
    ledger_law,
    pipeline,
    postgres,
    presence,
    session,
    surfaces,
)
from tests.requirements import Fault

MUTANTS: tuple[Fault, ...] = (
    *engine.MUTANTS,
    *archive.MUTANTS,
    *checks.MUTANTS,
    *daemon.MUTANTS,
    *dashboard.MUTANTS,
    *edge.MUTANTS,
    *ledger.MUTANTS,
    *ledger_law.MUTANTS,
    *pipeline.MUTANTS,
    *broker.MUTANTS,
    *broker_stores.MUTANTS,
    *postgres.MUTANTS,
    *presence.MUTANTS,
    *session.MUTANTS,
    *surfaces.MUTANTS,
)
