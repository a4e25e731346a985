"""Each link is made of the one before and of one row."""

from hashlib import sha256

import pytest

from claudemesh.kernel.chain import GENESIS, derive_link
from claudemesh.kernel.errors import InvalidRequest

ROW = {"place": 1, "message_id": "m", "idempotency_key": None, "steps": [{"ordinal": 1}]}


@pytest.mark.req("L10")
def test_a_link_is_the_hash_of_the_link_before_and_the_canonical_row() -> None:
    canonical = (
        b'{"kind":"message","row":{"idempotency_key":null,"message_id":"m","place":1,"steps":[{"ordinal":1}]}}'
    )
    assert derive_link(GENESIS, "message", ROW) == sha256(bytes(32) + canonical).hexdigest()
    assert derive_link("ab" * 32, "message", ROW) == sha256(b"\xab" * 32 + canonical).hexdigest()


@pytest.mark.req("L10")
def test_the_order_of_columns_does_not_count() -> None:
    assert derive_link(GENESIS, "message", dict(reversed(ROW.items()))) == derive_link(GENESIS, "message", ROW)


@pytest.mark.req("L10")
@pytest.mark.parametrize(
    ("previous", "kind", "row"),
    [
        ("ab" * 32, "message", ROW),
        (GENESIS, "receipt", ROW),
        (GENESIS, "message", ROW | {"place": 2}),
        (GENESIS, "message", ROW | {"idempotency_key": ""}),
        (GENESIS, "message", ROW | {"steps": []}),
        (GENESIS, "message", ROW | {"more": None}),
    ],
)
def test_whatever_changes_changes_the_link(previous: str, kind: str, row: dict[str, object]) -> None:
    assert derive_link(previous, kind, row) != derive_link(GENESIS, "message", ROW)  # type: ignore[arg-type]


@pytest.mark.parametrize("previous", ["", "zz", "ab" * 31 + "g0"])
def test_a_link_before_that_is_no_hash_is_refused_or_makes_another_link(previous: str) -> None:
    try:
        assert derive_link(previous, "message", ROW) != derive_link(GENESIS, "message", ROW)
    except ValueError:
        assert previous


def test_a_row_that_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        derive_link(GENESIS, "message", {"n": 2**53})
