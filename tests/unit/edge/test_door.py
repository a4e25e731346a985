"""What the relay lets in. The numbers are those of the attacks in the threat model."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator

import pytest

from claudemesh.asgi.messages import TARGET
from claudemesh.edge import door
from claudemesh.edge.door import (
    BODY_BYTES_MAX,
    DEPTH_MAX,
    NAMES_MAX,
    TARGET_BYTES_MAX,
    check_length,
    check_target,
    decode_body,
    forward_headers,
    parse_body,
)
from claudemesh.kernel.canonical import Json
from claudemesh.kernel.errors import InvalidRequest, JsonOnly, MeshError, PayloadTooLarge
from claudemesh.kernel.write_errors import BadHeader, TargetNotAllowed, TooDeep, Unstorable

TOKEN = door._TOKEN


def scope(
    path: bytes = b"/tasks/t1", query: bytes = b"", method: str = "PATCH", target: bytes | None = None
) -> dict[str, object]:
    named = {} if target is None else {TARGET: target}
    return {"method": method, "raw_path": path, "query_string": query, **named}


# --- the target ------------------------------------------------------------------------------------


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0",
        "2130706433",
        "169.254.169.254",
        "[fd00::]",
        "localhost",
        "example.com:8080",
        "user:password@example.com",
    ],
)
def test_40_a_target_with_a_host_is_not_allowed(host: str) -> None:
    for scheme in ("http", "https", "HTTP"):
        with pytest.raises(TargetNotAllowed) as refused:
            check_target(scope(b"/latest", target=f"{scheme}://{host}/latest".encode()))
        assert refused.value.status == 403
    with pytest.raises(TargetNotAllowed):
        check_target(scope(f"//{host}/latest".encode()))


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "target", [b"file:///etc/passwd", b"gopher://x/1", b"unix:/run/x", b"*", b"x", b"127.0.0.1:80", b""]
)
def test_43_other_schemes_are_no_targets(target: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_target(scope(b"/x", target=target))
    assert refused.value.status == 400


def test_no_tunnel_is_opened() -> None:
    with pytest.raises(TargetNotAllowed):
        check_target(scope(b"", method="CONNECT", target=b"example.com:443"))


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "path",
    [
        b"/tasks/a\r\nX: y",
        b"/tasks/a\0",
        b"/tasks/a b",
        b"/tasks/\xc3\xa9",
        b"/tasks/%0d%0aX:%20y",
        b"/tasks/%0A",
        b"/tasks/%00",
        b"/tasks/%250a",
        b"/tasks/%zz",
        b"/tasks/%",
        b"/tasks\\..\\admin",
        b"/tasks/%5c",
        b"/tasks/../admin",
        b"/tasks/..",
        b"/./tasks",
        b"/tasks/%2e%2e/admin",
        b"/tasks/.%2E/admin",
        b"/tasks/..%2fadmin",
        b"/tasks/%252e%252e/admin",
        b"/tasks/..;/admin",
    ],
)
def test_44_a_path_that_hides_something_is_refused(path: bytes) -> None:
    with pytest.raises(BadHeader) as refused:
        check_target(scope(path))
    assert (refused.value.status, refused.value.code) == (400, "bad_header")


@pytest.mark.req("R4")
@pytest.mark.parametrize("query", [b"a=\r\n", b"a=\0", b"a= b", b"\xff"])
def test_44_a_query_that_hides_something_is_refused(query: bytes) -> None:
    with pytest.raises(BadHeader):
        check_target(scope(query=query))


@pytest.mark.parametrize("path", [b"", b"*", b"tasks"])
def test_what_is_no_path_is_refused(path: bytes) -> None:
    with pytest.raises(InvalidRequest):
        check_target(scope(path))


def test_a_path_of_unreasonable_length_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        check_target(scope(b"/" + b"a" * TARGET_BYTES_MAX))


@pytest.mark.parametrize(
    "path", ["/", "/progress/", "/tasks/01HZX3", "/a.b/c..d", "/tasks/a%2Fb", "/tasks/%C3%A9", "/x;v=1", "/a/b@c:d"]
)
def test_a_plain_target_is_passed_on_as_it_was_sent(path: str) -> None:
    assert check_target(scope(path.encode(), b"q=%0a&x=1")) == (path, "q=%0a&x=1")


# --- headers ---------------------------------------------------------------------------------------


@pytest.mark.req("R4", "R6")
def test_45_only_what_does_no_harm_is_passed_on() -> None:
    kept = [
        (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"idempotency-key", b"k1"),
        (b"if-match", b'"7"'),
        (b"user-agent", b"x"),
        (b"x-source-agent", b"builder"),
        (b"x-source-host", b"h7"),
    ]
    dropped = [
        (b"authorization", b"Bearer abc"),
        (b"cookie", b"sid=1"),
        (b"connection", b"keep-alive"),
        (b"content-length", b"7"),
        (b"forwarded", b"for=1.2.3.4"),
        (b"host", b"evil.example"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"Basic abc"),
        (b"set-cookie", b"a=b"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"x-api-key", b"abc"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-forwarded-host", b"evil.example"),
        (b"x-http-method-override", b"DELETE"),
    ]
    assert forward_headers([*dropped, *kept]) == kept
    assert forward_headers([(b"Accept", b"a"), (b"ACCEPT", b"b")]) == [(b"accept", b"a"), (b"accept", b"b")]


@pytest.mark.req("R4")
def test_45_what_connection_names_is_dropped_too() -> None:
    headers = [(b"x-source-agent", b"a"), (b"accept", b"b"), (b"connection", b"close, X-Source-Agent")]
    assert forward_headers(headers) == [(b"accept", b"b")]


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "header",
    [
        (b"accept", b"a\r\nX-Evil: 1"),
        (b"accept", b"a\nb"),
        (b"x-other", b"a\0"),
        (b"x-source-agent", b"a\x7f"),
        (b"x-source-a\r\nb", b"c"),
        (b"x-source a", b"c"),
        (b"", b"c"),
    ],
)
def test_44_a_header_with_a_line_end_or_a_nul_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(BadHeader):
        forward_headers([header])


@pytest.mark.parametrize("name", [b"if-match", b"Idempotency-Key", b"content-type"])
def test_a_header_that_counts_once_is_not_sent_twice(name: bytes) -> None:
    with pytest.raises(BadHeader):
        forward_headers([(name, b"1"), (name.lower(), b"2")])


# --- the body --------------------------------------------------------------------------------------


@pytest.mark.req("R4")
@pytest.mark.parametrize("length", [b"10485761", b"99999999999999999999", b"9" * 5_000])
def test_49_a_body_that_is_too_large_is_refused_by_its_length(length: bytes) -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        check_length([(b"Content-Length", length)])
    assert refused.value.status == 413


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"", b"7 ", b"0x10", b"+7"])
def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    with pytest.raises(BadHeader):
        check_length([(b"content-length", length)])


def test_49_a_body_of_the_largest_size_is_read() -> None:
    check_length([(b"host", b"x"), (b"content-length", b"000010485760")])
    assert BODY_BYTES_MAX == 10_485_760


@pytest.mark.req("R4")
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'["]",'])
def test_50_what_is_nested_too_deeply_is_refused(opening: bytes) -> None:
    with pytest.raises(TooDeep) as refused:
        parse_body(opening * 100_000)
    assert (refused.value.status, refused.value.code) == (400, "too_deep")


def test_50_the_depth_is_counted_outside_of_texts() -> None:
    assert parse_body(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    with pytest.raises(TooDeep):
        parse_body(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1))
    value: Json = ["[" * 500, '"[\\' * 500, [[]] * 500, {"a": ":," * 500}]
    assert parse_body(json.dumps(value).encode()) == value


def test_50_a_decoder_out_of_stack_is_too_deep_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claudemesh.edge.door.DEPTH_MAX", 200_000)
    with pytest.raises(TooDeep):
        parse_body(b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.req("R4")
@pytest.mark.parametrize("number", ["1" * 5_000, "-" + "1" * 5_000, "1." + "1" * 5_000, "1e" + "1" * 5_000])
def test_51_a_number_of_thousands_of_digits_is_refused(number: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_body(f'{{"a": {number}}}'.encode())
    assert refused.value.status == 400


def test_51_a_text_may_be_of_digits() -> None:
    assert parse_body(b'["' + b"1" * 5_000 + b'"]') == ["1" * 5_000]


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "body", [b'{"a": 1, "a": 1}', b'{"a": 1, "\\u0061": 2}', b'[{"b": {"a": 1, "c": 2, "a": 3}}]']
)
def test_52_a_name_that_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_body(body)
    assert refused.value.status == 400


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "body",
    [
        b"NaN",
        b'{"a": [NaN]}',
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"9223372036854775808",
        b'["a\\u0000"]',
        b'{"a\\u0000": 1}',
        b'["\\ud800"]',
        b'["\\udc00\\ud800"]',
        b'{"\\uDFFF": 1}',
    ],
)
def test_53_what_not_every_store_can_keep_is_unstorable(body: bytes) -> None:
    with pytest.raises(Unstorable) as refused:
        parse_body(body)
    assert refused.value.status == 422


def test_53_a_character_in_two_halves_is_one() -> None:
    assert parse_body(b'["\\ud83d\\ude00", "\\\\u0000", 7]') == ["\U0001f600", "\\u0000", 7]


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"k%d":1' % number for number in range(1_000_000)) + b"}",
        b"[" + b"1," * 1_000_000 + b"1]",
        b"[" + b",".join([b'{"a":1}'] * (NAMES_MAX + 1)) + b"]",
    ],
    ids=["keys", "values", "objects"],
)
def test_54_a_million_parts_are_refused_before_they_are_built(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claudemesh.edge.door._decoder", None)
    with pytest.raises(InvalidRequest) as refused:
        parse_body(body)
    assert refused.value.status == 400


def test_54_commas_and_colons_in_a_text_are_no_parts() -> None:
    text = ":," * 200_000
    assert parse_body(json.dumps([text]).encode()) == [text]


@pytest.mark.req("R4")
def test_55_a_gzip_bomb_is_refused_as_soon_as_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packing.compress(b"\0" * (1 << 20)) for _ in range(64)) + packing.flush()
    made = 0
    real = zlib.decompressobj

    class Watched:
        def __init__(self, wbits: int) -> None:
            self._real = real(wbits)

        def decompress(self, data: bytes, length_max: int) -> bytes:
            nonlocal made
            plain = self._real.decompress(data, length_max)
            made += len(plain)
            return plain

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    with pytest.raises(PayloadTooLarge) as refused:
        decode_body(bomb, b"gzip")
    assert refused.value.status == 413
    assert made == BODY_BYTES_MAX + 1


def test_55_what_is_packed_honestly_is_unpacked() -> None:
    assert decode_body(gzip.compress(b'{"a":1}', mtime=0), b"GZIP") == b'{"a":1}'
    assert decode_body(b"{}", None) == b"{}"
    assert decode_body(b"{}", b"identity") == b"{}"


@pytest.mark.parametrize(
    ("raw", "encoding", "error"),
    [
        (b"{}", b"br", JsonOnly),
        (b"{}", b"gzip, gzip", JsonOnly),
        (b"{}", b"gzip", InvalidRequest),
        (gzip.compress(b"{}", mtime=0)[:-4], b"gzip", InvalidRequest),
        (gzip.compress(b"{}", mtime=0) * 2, b"gzip", InvalidRequest),
    ],
)
def test_55_what_is_packed_otherwise_is_refused(raw: bytes, encoding: bytes, error: type[MeshError]) -> None:
    with pytest.raises(error):
        decode_body(raw, encoding)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{}x",
        b"'a'",
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b'"a\0"',
        b"[1,]",
        b"01",
        b'{"a"}',
        b'"',
        b" ",
    ],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_body(body)
    assert refused.value.status == 400


def test_what_is_json_is_read() -> None:
    assert parse_body(b"") is None
    assert parse_body(b' {"a": [1, -2.5, true, null, "\xc3\xa9"]}\n') == {"a": [1, -2.5, True, None, "é"]}


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "raw",
    [
        b"[]" * (BODY_BYTES_MAX // 2),
        b"[" + b"[]" * 101 + b'""' * (BODY_BYTES_MAX // 2 - 200),
        b"]" * 1_000 + b"[" * 101 + b"]" * (BODY_BYTES_MAX - 2_000),
        b"[" + b",".join([b"[" * 90 + b"]" * 90] * 50_000) + b"]",
    ],
)
def test_54_brackets_and_texts_without_end_are_not_looked_through_to_their_end(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    class Counting:
        def finditer(self, body: bytes) -> Iterator[re.Match[bytes]]:
            nonlocal looked_at
            for token in TOKEN.finditer(body):
                looked_at += 1
                yield token

    monkeypatch.setattr(door, "_TOKEN", Counting())
    with pytest.raises(InvalidRequest):
        parse_body(raw)
    assert looked_at <= 400_000
