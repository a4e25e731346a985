"""Whatever raw statements a ledger accepted, it is lawful: nothing wrong is found in it afterwards.

Two things are found, and are meant to be: rows that were written without their link of the chain, and leases that
ended. The hash of a link is nothing that SQL can compute, so that one which somebody made up is found too.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.contract.ledger.scenes import Scene, set_scene
from tests.contract.ledger.shells import SHELLS, attacking
from tests.contract.ledger.statements import statements
from tests.contract.ledger.test_attacks import refusal

EXAMPLES = 120


def play(scene: Scene, script: list[str], kind: str, *, recursive: bool) -> list[str]:
    """Return the statements that were accepted."""
    with attacking(scene.path, kind, recursive=recursive) as shell:
        return [sql for sql in script if not refusal(shell, scene.fill(sql))]


def is_meant_to_be_found(issue: str, accepted: list[str]) -> bool:
    if issue.startswith("lease expired: ") or issue.endswith(" was written outside of it"):
        return True
    return issue.startswith("chain: ") and any("INTO cassette_chain" in sql for sql in accepted)


@pytest.mark.req("L2")
@pytest.mark.parametrize("version", [1, 2])
@settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), kind=st.sampled_from(sorted(SHELLS)), recursive=st.booleans())
def test_what_was_accepted_is_lawful(data: st.DataObject, kind: str, version: int, *, recursive: bool) -> None:
    script = data.draw(statements(version))
    with tempfile.TemporaryDirectory() as folder:
        scene = set_scene(Path(folder), version)
        accepted = play(scene, script, kind, recursive=recursive)
        event(f"{min(len(accepted), 5)} accepted")
        issues = [issue for issue in scene.issues() if not is_meant_to_be_found(issue, accepted)]
    assert issues == [], accepted
