"""The family of errors, as those who handle it rely on it."""

from claudemesh.kernel.errors import IdempotencyConflict, MeshError, RequestError


def test_the_family_has_each_class_once_and_parents_before_their_children() -> None:
    family = list(MeshError.family())
    assert len(set(family)) == len(family)
    assert family[0] is MeshError
    for place, error in enumerate(family[1:], start=1):
        assert set(error.__bases__) <= {*family[:place]}


def test_a_conflict_tells_its_word_and_the_prefix_to_code_and_to_the_wire() -> None:
    conflict = IdempotencyConflict("reused", conflict="in_flight", fingerprint_prefix="ab12", id="m1")
    assert isinstance(conflict, RequestError)
    assert (conflict.conflict, conflict.fingerprint_prefix) == ("in_flight", "ab12")
    assert conflict.extras == {"conflict": "in_flight", "fingerprint_prefix": "ab12", "id": "m1"}


def test_an_error_without_a_detail_reads_as_its_title() -> None:
    assert str(MeshError()) == MeshError.title
