"""Planted faults that belong to no requirement: they show that the tests of the inside can fail.

They run as those of `tests/requirements.py` do; see there for the fields.
"""

from tests.requirements import Fault

MUTANTS: tuple[Fault, ...] = ()
