"""Equal requests have equal fingerprints, and no two different ones do."""

from hashlib import sha256

import pytest

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.fingerprint import (
    Kind,
    Priority,
    SendRequest,
    fingerprint_http_request,
    fingerprint_send,
    prefix,
)

REQUEST = SendRequest(kind=Kind.DM, ref="ab" * 32, body="hello")


@pytest.mark.req("F2")
def test_a_send_is_the_hash_of_its_fields_between_zero_bytes() -> None:
    request = SendRequest(
        kind=Kind.TOPIC,
        ref="deploys",
        body="grün",
        reply_to="01J",
        priority=Priority.NOW,
        meta={"b": 1, "a": "x"},
    )
    body_hash = sha256("grün".encode()).hexdigest().encode()
    frame = b'1\0topic\0deploys\x0001J\0now\0{"a":"x","b":1}\0' + body_hash
    assert fingerprint_send(request) == sha256(frame).digest()


@pytest.mark.req("F2")
def test_the_defaults_are_an_empty_reply_the_priority_next_and_no_meta() -> None:
    frame = b"1\0dm\0" + b"ab" * 32 + b"\0\0next\0\0" + sha256(b"hello").hexdigest().encode()
    assert fingerprint_send(REQUEST) == sha256(frame).digest()


@pytest.mark.req("F2")
def test_absent_null_and_empty_meta_are_the_same_request() -> None:
    assert fingerprint_send(REQUEST._replace(meta=None)) == fingerprint_send(REQUEST._replace(meta={}))


@pytest.mark.req("F2", "F8")
@pytest.mark.parametrize(
    "change",
    [
        {"kind": Kind.QUEUE},
        {"ref": "cd" * 32},
        {"reply_to": "x"},
        {"priority": Priority.LOW},
        {"priority": Priority.NOW},
        {"meta": {"a": 1}},
        {"meta": {"a": "1"}},
        {"mentions": ["ana"]},
        {"body": "hello "},
        {"body": ""},
    ],
    ids=str,
)
def test_changing_any_field_changes_the_fingerprint(change: dict[str, object]) -> None:
    assert fingerprint_send(REQUEST._replace(**change)) != fingerprint_send(REQUEST)


@pytest.mark.req("F2")
def test_mentions_count_but_their_order_does_not() -> None:
    one = fingerprint_send(REQUEST._replace(mentions=["b", "a"], meta={"k": 1}))
    assert one == fingerprint_send(REQUEST._replace(mentions=["a", "b"], meta={"k": 1}))
    assert one == fingerprint_send(REQUEST._replace(meta={"k": 1, "mentions": ["a", "b"]}))


def test_a_mention_that_stands_twice_counts_twice() -> None:
    once, twice = (fingerprint_send(REQUEST._replace(mentions=["ana"] * count)) for count in (1, 2))
    assert once != twice


def test_a_mention_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        fingerprint_send(REQUEST._replace(mentions=[1, "ana"]))


def test_mentions_cannot_be_named_in_two_places() -> None:
    with pytest.raises(InvalidRequest):
        fingerprint_send(REQUEST._replace(mentions=["a"], meta={"mentions": ["b"]}))


@pytest.mark.req("F2")
@pytest.mark.parametrize("text", ["a\0b", "\0", "a\ud800", "\udfff"], ids=ascii)
@pytest.mark.parametrize("place", ["ref", "body", "reply_to", "mention", "meta name", "meta value", "deep"])
def test_a_nul_or_a_lone_surrogate_is_refused_in_every_text(text: str, place: str) -> None:
    changes: dict[str, dict[str, object]] = {
        "ref": {"ref": text},
        "body": {"body": text},
        "reply_to": {"reply_to": text},
        "mention": {"mentions": [text]},
        "meta name": {"meta": {text: 1}},
        "meta value": {"meta": {"a": text, "b": 0.5}},
        "deep": {"meta": {"a": [{"b": [text]}]}},
    }
    with pytest.raises(InvalidRequest) as refused:
        fingerprint_send(REQUEST._replace(**changes[place]))
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\\\\\u0000", "u0000"])
def test_a_text_that_only_spells_an_escaped_nul_is_fine(text: str) -> None:
    assert fingerprint_send(REQUEST._replace(meta={"a": text}))


def test_an_escaped_nul_behind_backslashes_is_still_a_nul() -> None:
    with pytest.raises(InvalidRequest):
        fingerprint_send(REQUEST._replace(meta={"a": "\\\\\0"}))


def test_the_prefix_is_the_first_eight_bytes_in_hex() -> None:
    fingerprint = fingerprint_send(REQUEST)
    assert len(fingerprint) == 32
    assert prefix(fingerprint) == fingerprint.hex()[:16]


def test_an_http_request_is_its_method_path_query_and_body_bytes() -> None:
    frame = b"1\0PATCH\0/tasks/7\0full=1\0" + sha256(b"\0\xff").hexdigest().encode()
    assert fingerprint_http_request("PATCH", "/tasks/7", "full=1", b"\0\xff") == sha256(frame).digest()


def test_an_http_request_cannot_move_text_from_one_field_to_the_next() -> None:
    with pytest.raises(InvalidRequest):
        fingerprint_http_request("POST", "/a\0b", "", b"")
    assert fingerprint_http_request("POST", "/a", "b", b"") != fingerprint_http_request("POST", "/ab", "", b"")
