"""What a send may hold beside its body."""

import pytest

from claudemesh.kernel.canonical import Json
from claudemesh.kernel.contents import META_BYTES_MAX, check_contents
from claudemesh.kernel.errors import InvalidRequest, PayloadTooLarge


def test_what_is_usual_passes_and_mentions_are_told_once() -> None:
    assert check_contents(None, "") == check_contents({}, "01B") == check_contents({"k": [1, 2.5, None]}, "") == ()
    assert check_contents({"mentions": ["bob", "ann", "bob"]}, "") == ("bob", "ann")


@pytest.mark.parametrize("mentions", [5, "bob", [1], ["bob", None], {"bob": 1}])
def test_mentions_are_a_list_of_texts(mentions: Json) -> None:
    with pytest.raises(InvalidRequest):
        check_contents({"mentions": mentions}, "")


def test_there_are_not_too_many_of_them() -> None:
    assert len(check_contents({"mentions": [str(n) for n in range(256)]}, "")) == 256
    with pytest.raises(InvalidRequest):
        check_contents({"mentions": [str(n) for n in range(257)]}, "")
    assert check_contents({"mentions": ["x" * 128]}, "") == ("x" * 128,)
    with pytest.raises(InvalidRequest):
        check_contents({"mentions": ["x" * 129]}, "")


def test_meta_and_reply_to_have_a_limit() -> None:
    fits = "x" * (META_BYTES_MAX - len('{"k":""}'))
    assert check_contents({"k": fits}, "r" * 128) == ()
    with pytest.raises(PayloadTooLarge):
        check_contents({"k": fits + "x"}, "")
    with pytest.raises(InvalidRequest):
        check_contents(None, "r" * 129)


@pytest.mark.parametrize("value", [2**64, "\ud800"])
def test_what_has_no_stored_form_is_refused(value: Json) -> None:
    with pytest.raises(InvalidRequest):
        check_contents({"k": value}, "")
