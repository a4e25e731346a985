"""Ids of traces and spans, as every daemon derives them."""

from hypothesis import given
from hypothesis import strategies as st

from claudemesh.kernel.spans import derive_span_id, derive_trace_id


def test_the_ids_of_a_message_stay_the_same_between_versions() -> None:
    trace_id = derive_trace_id("ab" * 32, "m1")
    assert f"{trace_id:032x}" == "ed7e585119c054640dcb27a371a5c419"
    assert f"{derive_span_id(trace_id, 'send'):016x}" == "4f4096ed86629e35"


def test_two_senders_two_ids_and_two_steps_are_told_apart() -> None:
    traces = {derive_trace_id(sender, id_) for sender in ("a", "b") for id_ in ("1", "2")}
    assert len(traces) == 4
    assert derive_span_id(1, "send") != derive_span_id(1, "deliver")
    assert derive_span_id(1, "send") != derive_span_id(2, "send")


@given(st.text(), st.text())
def test_ids_fit_where_they_go_and_are_never_none(sender: str, id_: str) -> None:
    trace_id = derive_trace_id(sender, id_)
    assert 0 < trace_id < 1 << 128
    assert 0 < derive_span_id(trace_id, id_) < 1 << 64
