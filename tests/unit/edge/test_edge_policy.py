"""The relay's own rules: what follows from an answer for the writes that wait."""

import msgspec
import pytest

from claudemesh.edge.model import Envelope, Expectation
from claudemesh.edge.policy import envelope_expectation, with_expectation


@pytest.mark.req("R8")
def test_a_write_of_any_depth_can_be_given_another_expectation() -> None:
    nest = b"[" * 300 + b"]" * 300  # as an import of an older version left it
    envelope = Envelope(
        method="PATCH",
        path="/tasks/1",
        key="k1",
        body=msgspec.Raw(b'{"details":' + nest + b',"expected_status":"todo"}'),
        route_class="replace",
    )

    changed = with_expectation(envelope, Expectation(status="done"))

    assert envelope_expectation(changed) == Expectation(status="done")
    assert bytes(changed.body) == b'{"details":' + nest + b',"expected_status":"done"}'
