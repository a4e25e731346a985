"""A head is taken as it was signed, and not otherwise."""

import json

import pytest

from claudemesh.kernel.errors import CassetteInvalid
from claudemesh.ledger import heads
from claudemesh.runtime.keys import KeyPair

KEYS, OTHERS = KeyPair(b"\1" * 32), KeyPair(b"\2" * 32)
HEAD = heads.sign(KEYS, "0123456789abcdef", 7, "ab" * 32, "2026-01-01T00:00:00.000Z")

pytestmark = pytest.mark.req("L10")


def test_a_head_is_read_as_it_was_printed() -> None:
    assert heads.parse(json.dumps(HEAD)) == heads.parse(json.dumps(HEAD, indent=2).encode()) == HEAD
    assert HEAD["pubkey"] == KEYS.pubkey


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "claudemesh-ledger-head-2"},
        {"ledger_id": "fedcba9876543210"},
        {"seq": 8},
        {"seq": "7"},
        {"seq": 7.5},
        {"hash": "cd" * 32},
        {"at": "2026-01-02T00:00:00.000Z"},
        {"pubkey": OTHERS.pubkey},
        {"pubkey": "no key"},
        {"signature": OTHERS.sign(b"x")},
        {"signature": ""},
        {"signature": None},
    ],
)
def test_a_head_that_was_changed_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(CassetteInvalid, match="signature"):
        heads.parse(json.dumps(HEAD | change))


@pytest.mark.parametrize("missing", sorted(HEAD))
def test_a_head_that_lacks_something_is_refused(missing: str) -> None:
    with pytest.raises(CassetteInvalid, match="no head of a ledger"):
        heads.parse(json.dumps({name: value for name, value in HEAD.items() if name != missing}))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", b"\xff", '{"kind": NaN}', "[" * 100_000])
def test_what_is_no_head_is_refused(text: str | bytes) -> None:
    with pytest.raises(CassetteInvalid, match="no head of a ledger"):
        heads.parse(text)


def test_a_kind_that_was_signed_but_is_another_is_refused() -> None:
    body = {name: HEAD[name] for name in heads._SIGNED} | {"kind": "something-else"}
    signed = body | {"signature": KEYS.sign(heads.canonicalize(body))}
    with pytest.raises(CassetteInvalid, match="signature"):
        heads.parse(json.dumps(signed))


@pytest.mark.parametrize("seq", [-1, True])
def test_a_place_that_no_link_has_is_refused_whoever_signed_it(seq: int) -> None:
    with pytest.raises(CassetteInvalid, match="signature"):
        heads.parse(json.dumps(heads.sign(KEYS, "0123456789abcdef", seq, "ab" * 32, "2026-01-01T00:00:00.000Z")))


def test_a_head_of_another_key_than_the_one_expected_is_refused() -> None:
    assert heads.parse(json.dumps(HEAD), KEYS.pubkey) == HEAD
    with pytest.raises(CassetteInvalid, match="is signed by"):
        heads.parse(json.dumps(HEAD), OTHERS.pubkey)
