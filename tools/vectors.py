"""The cases behind `docs/vectors/*.json`: every branch of the canonical form and every field of every profile.

The inputs are written here, the expected bytes are computed by claudemesh and confirmed in the tests by the
`rfc8785` package and by `docs/vectors/check.py`, which share no code with it.
"""

import json
from collections.abc import Callable, Iterator

from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.fingerprint import Kind, Priority, SendRequest, fingerprint_http_request, fingerprint_send

# name -> JSON text
CANONICAL = {
    "null": "null",
    "true": "true",
    "false": "false",
    "empty text": '""',
    "empty array": "[ ]",
    "empty object": "{ }",
    "white space goes": ' { "a" : [ 1 , 2 ] } ',
    "names are sorted": '{"b":1,"a":2,"B":3,"":4}',
    "names that look like integers are sorted as texts": '{"2":0,"10":0,"1":0,"-1":0}',
    "names are sorted at every depth": '[{"b":{"d":1,"c":2},"a":[{"z":0,"y":0}]}]',
    "names sort by UTF-16 unit, not by code point": '{"\\ufb01":1,"\\ud83d\\ude00":2,"z":3}',
    "names sort by UTF-16 unit, private use": '{"\\ue000":1,"\\ud800\\udc00":2,"\\ud7ff":3}',
    "a name and its prefix": '{"aa":1,"a":2,"a\\u0000":3}',
    "short escapes": '"\\b\\t\\n\\f\\r\\"\\\\"',
    "other controls in lower-case hex": '"\\u0000\\u0001\\u000b\\u001F"',
    "no other escapes": '"\\u002f\\u007f\\u00e9\\u20ac\\u2028\\ud83d\\ude00"',
    "escaped and plain are one": '"\\u0041A"',
    "integer": "[0,-0,1,-1,42]",
    "largest integers": "[9007199254740991,-9007199254740991]",
    "fraction of nothing": "[1.0,-0.0,1e0,10e-1]",
    "fractions": "[0.1,-0.5,1.5,3.14159,123456789.123]",
    "exponents that vanish": "[1e2,1.5e3,1e20,123e18]",
    "the last plain large number": "[999999999999999900000.0,100000000000000000000.0]",
    "the first large number with an exponent": "[1e21,1.5e22,1e300]",
    "the last plain small number": "[0.000001,0.0000015]",
    "the first small number with an exponent": "[1e-7,1.5e-7,9.999999999999997e-7]",
    "shortest digits": "[333333333.33333329,4.50,2e-3,0.000000000000000000000000001]",
    "a double beyond 2^53 written with an exponent": "[9007199254740992.0,1e23,295147905179352825856.0]",
    "extremes": "[5e-324,1.7976931348623157e308,-2.2250738585072014e-308]",
    "128 arrays deep": "[" * 128 + "]" * 128,
    "128 deep, with an object and a fraction": "[" * 127 + '{"a":0.5}' + "]" * 127,
}
CANONICAL_REFUSED = {
    "integer beyond 2^53-1": "9007199254740992",
    "negative integer beyond 2^53-1": "[-9007199254740992]",
    "a number beyond every double": "1e400",
    "lone high surrogate": '"\\ud800"',
    "lone low surrogate in a name": '{"\\udc00":1}',
    "surrogates in the wrong order": '"\\udc00\\ud800"',
    "129 arrays deep": "[" * 129 + "]" * 129,
    "129 deep, with an object and a fraction": "[" * 128 + '{"a":0.5}' + "]" * 128,
}

KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"

# name -> what the caller asked for
SEND: dict[str, dict[str, object]] = {
    "a direct message": {"kind": "dm", "ref": KEY, "body": "hello"},
    "a topic": {"kind": "topic", "ref": "deploys", "body": "hello"},
    "a queue": {"kind": "queue", "ref": "builds", "body": "hello"},
    "an empty body": {"kind": "topic", "ref": "deploys", "body": ""},
    "a body beyond ASCII": {"kind": "topic", "ref": "deploys", "body": "gr\u00fcn \U0001f600"},
    "a reply": {"kind": "dm", "ref": KEY, "body": "hello", "reply_to": "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
    "priority now": {"kind": "dm", "ref": KEY, "body": "hello", "priority": "now"},
    "priority low": {"kind": "dm", "ref": KEY, "body": "hello", "priority": "low"},
    "priority next, said": {"kind": "dm", "ref": KEY, "body": "hello", "priority": "next"},
    "meta null": {"kind": "dm", "ref": KEY, "body": "hello", "meta": None},
    "meta empty": {"kind": "dm", "ref": KEY, "body": "hello", "meta": {}},
    "meta": {"kind": "dm", "ref": KEY, "body": "hello", "meta": {"b": [1, 2.5, None], "a": {"\ufb01": "x"}}},
    "a text that spells an escaped NUL": {"kind": "dm", "ref": KEY, "body": "\\u0000", "meta": {"a": "\\u0000"}},
    "mentions are sorted": {"kind": "topic", "ref": "deploys", "body": "hello", "mentions": ["zoe", "ana"]},
    "mentions are sorted by code point, not by UTF-16 unit": {
        "kind": "topic",
        "ref": "deploys",
        "body": "hello",
        "mentions": ["\U0001f600", "\ufb01"],
    },
    "a mention": {"kind": "topic", "ref": "deploys", "body": "hello", "mentions": ["ana"]},
    "a mention that stands twice is kept twice": {
        "kind": "topic",
        "ref": "deploys",
        "body": "hello",
        "mentions": ["ana", "ana"],
    },
    "mentions beside meta": {
        "kind": "topic",
        "ref": "deploys",
        "body": "hello",
        "mentions": ["ana"],
        "meta": {"n": 1, "z": 0},
    },
    "mentions empty": {"kind": "topic", "ref": "deploys", "body": "hello", "mentions": []},
}
SEND_REFUSED: dict[str, dict[str, object]] = {
    "NUL in the body": {"kind": "dm", "ref": KEY, "body": "a\0b"},
    "NUL in the ref": {"kind": "topic", "ref": "a\0b", "body": ""},
    "NUL in a meta name": {"kind": "dm", "ref": KEY, "body": "", "meta": {"a\0": 1}},
    "NUL in a meta text": {"kind": "dm", "ref": KEY, "body": "", "meta": {"a": ["\\\\\0"]}},
    "NUL in a mention": {"kind": "topic", "ref": "t", "body": "", "mentions": ["a\0"]},
    "lone surrogate in the body": {"kind": "dm", "ref": KEY, "body": "\ud800"},
    "lone surrogate in meta": {"kind": "dm", "ref": KEY, "body": "", "meta": {"a": "\udfff"}},
    "integer beyond 2^53-1 in meta": {"kind": "dm", "ref": KEY, "body": "", "meta": {"a": 2**53}},
    "mentions in two places": {
        "kind": "dm",
        "ref": KEY,
        "body": "",
        "meta": {"mentions": ["a"]},
        "mentions": ["b"],
    },
}

# name -> method, path, query, body
HTTP_REQUEST = {
    "no body": ("POST", "/progress/", "", b""),
    "a JSON body": ("PATCH", "/tasks/7", "", b'{"status":"done"}'),
    "the body is bytes: white space counts": ("PATCH", "/tasks/7", "", b'{"status": "done"}'),
    "another method": ("PUT", "/tasks/7", "", b'{"status":"done"}'),
    "a query": ("PATCH", "/tasks/7", "full=1&a=%00", b'{"status":"done"}'),
    "bytes that are no text": ("POST", "/messages/", "", b"\x00\xff\xfe"),
}
HTTP_REQUEST_REFUSED = {"NUL in the path": ("POST", "/a\0b", "", b"")}

REFUSED = {"refused": True}


def render_all() -> dict[str, str]:
    """Return the text of each file by profile."""
    return {
        "canonical": _render("RFC 8785 forms: parse `json`, expect `canonical`.", _canonical()),
        "send": _render("Fingerprints of sends: parse `json`, expect `fingerprint`.", _send()),
        "http_request": _render("Fingerprints of HTTP writes; the body is `body_hex`.", _http_request()),
    }


def _render(about: str, vectors: Iterator[dict[str, object]]) -> str:
    return json.dumps({"about": about, "vectors": list(vectors)}, indent=1) + "\n"


def _canonical() -> Iterator[dict[str, object]]:
    for name, text in CANONICAL.items():
        yield {"name": name, "json": text, "canonical": canonicalize(json.loads(text)).decode()}
    for name, text in CANONICAL_REFUSED.items():
        _expect_refusal(canonicalize, json.loads(text))
        yield {"name": name, "json": text, **REFUSED}


def parse_send(text: str) -> SendRequest:
    asked = json.loads(text)
    return SendRequest(
        **{**asked, "kind": Kind(asked["kind"]), "priority": Priority(asked.get("priority", "next"))}
    )


def _send() -> Iterator[dict[str, object]]:
    for name, request in SEND.items():
        text = json.dumps(request)
        yield {"name": name, "json": text, "fingerprint": fingerprint_send(parse_send(text)).hex()}
    for name, request in SEND_REFUSED.items():
        text = json.dumps(request)
        _expect_refusal(fingerprint_send, parse_send(text))
        yield {"name": name, "json": text, **REFUSED}


def _http_request() -> Iterator[dict[str, object]]:
    for name, request in HTTP_REQUEST.items():
        yield {"name": name, **_asked(*request), "fingerprint": fingerprint_http_request(*request).hex()}
    for name, request in HTTP_REQUEST_REFUSED.items():
        _expect_refusal(fingerprint_http_request, *request)
        yield {"name": name, **_asked(*request), **REFUSED}


def _asked(method: str, path: str, query: str, body: bytes) -> dict[str, str]:
    return {"method": method, "path": path, "query": query, "body_hex": body.hex()}


def _expect_refusal(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except InvalidRequest:
        return
    raise AssertionError("this was to be refused")
