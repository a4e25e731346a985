"""What the relay lets in: how a request may name its target, which headers go on, and which JSON may be kept.

Nothing here does IO, and nothing takes more time than the length of what it judges. A request names a path and no
host: the relay has one upstream. Headers go on by a list of those that do no harm, so that a credential, a
hop-by-hop header or a forged `X-Forwarded-For` is dropped without having been thought of. JSON has to be such that
every store keeps it and every reader reads the same out of it: no name twice, nothing beyond what a number holds,
no NUL.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import unquote_to_bytes

from claudemesh.asgi.messages import TARGET
from claudemesh.kernel.canonical import Json
from claudemesh.kernel.errors import InvalidRequest, JsonOnly, PayloadTooLarge
from claudemesh.kernel.write_errors import BadHeader, TargetNotAllowed, TooDeep, Unstorable

Pairs: TypeAlias = list[tuple[bytes, bytes]]

BODY_BYTES_MAX: Final = 10 << 20
TARGET_BYTES_MAX: Final = 8 << 10
DEPTH_MAX: Final = 100
NAMES_MAX: Final = 20_000  # of fields, in all objects together
VALUES_MAX: Final = 100_000  # commas, lists and objects, all together
TEXTS_MAX: Final = NAMES_MAX + VALUES_MAX + 1  # JSON within these bounds has no more
DIGITS_MAX: Final = 100  # of one number
INTEGER_MAX: Final = 2**63 - 1

# --- the target ------------------------------------------------------------------------------------

_PLAIN_PATH = re.compile(rb"/(?:[A-Za-z0-9_~-]++/?)*+")
_VISIBLE = re.compile(rb"[!-~]*")
_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f\\]")
_DECODINGS_MAX: Final = 3  # somebody behind the upstream may decode once more than it should


def check_target(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return path and query as they were sent, or refuse what asks for another host or hides what it asks for."""
    if scope["method"] == "CONNECT":
        raise TargetNotAllowed("the relay opens no tunnels")
    if (target := scope.get(TARGET)) is not None:
        _refuse_target(target)
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    if len(path) + len(query) > TARGET_BYTES_MAX:
        raise InvalidRequest(f"path and query are longer than {TARGET_BYTES_MAX} bytes")
    if not _PLAIN_PATH.fullmatch(path):
        check_path(path)
    if query and not _VISIBLE.fullmatch(query):
        raise BadHeader("the query holds what has to be percent-encoded")
    return path.decode("ascii"), query.decode("ascii")


def _refuse_target(target: bytes) -> NoReturn:
    scheme = _SCHEME.match(target)
    if scheme and scheme[1].lower() in {b"http", b"https"}:
        raise TargetNotAllowed
    raise InvalidRequest("the target of a request is a path")


def check_path(path: bytes) -> None:
    """Refuse a path that asks for another host, or that goes up once somebody has decoded it."""
    if path.startswith(b"//"):
        raise TargetNotAllowed
    if not path.startswith(b"/"):
        raise InvalidRequest("the target of a request is a path")
    if not _VISIBLE.fullmatch(path) or _BAD_ESCAPE.search(path):
        raise BadHeader("the path holds what has to be percent-encoded")
    for _ in range(_DECODINGS_MAX):
        if _CONTROL.search(path):
            raise BadHeader("the path holds a control character or a backslash")
        if any(segment.partition(b";")[0] in {b".", b".."} for segment in path.split(b"/")):
            raise BadHeader("the path goes up")
        path = unquote_to_bytes(path)


# --- headers ---------------------------------------------------------------------------------------

_FORWARDED: Final = frozenset({
    b"accept",
    b"accept-language",
    b"content-type",
    b"idempotency-key",
    b"if-match",
    b"if-none-match",
    b"user-agent",
})  # fmt: skip
_FORWARDED_PREFIX: Final = b"x-source-"
_MANY: Final = frozenset({b"accept", b"accept-language"})  # which may come in several lines
_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def forward_headers(headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return those that go on, their names in small letters; refuse all if one holds a line's end or a NUL."""
    kept: Pairs = []
    hop_by_hop: set[bytes] = set()
    for sent, value in headers:
        name = sent.lower()
        if _UNSENDABLE.search(value) or not _NAME.fullmatch(name):
            raise BadHeader("a header holds a control character")
        if name == b"connection":
            hop_by_hop.update(token.strip() for token in value.lower().split(b","))
        elif name in _FORWARDED or name.startswith(_FORWARDED_PREFIX):
            if name not in _MANY and any(name == other for other, _ in kept):
                raise BadHeader(f"the header {name.decode()} was sent twice")
            kept.append((name, value))
    return [header for header in kept if header[0] not in hop_by_hop] if hop_by_hop else kept


# --- the body --------------------------------------------------------------------------------------


def check_length(headers: Iterable[tuple[bytes, bytes]], bytes_max: int = BODY_BYTES_MAX) -> None:
    """Refuse a body before it is read, by the length that is said of it."""
    for name, value in headers:
        if name.lower() == b"content-length":
            if not value.isdigit():
                raise BadHeader("the length of the body is no number")
            if len(value.lstrip(b"0")) > len(str(bytes_max)) or int(value) > bytes_max:
                raise PayloadTooLarge(bytes_max=bytes_max)


def decode_body(raw: bytes, content_encoding: bytes | None, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the body as it was before it was compressed; no more of it is made than is allowed."""
    if content_encoding is None or content_encoding.lower() == b"identity":
        return raw
    if content_encoding.lower() != b"gzip":
        raise JsonOnly("a body is sent as it is, or as gzip")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(raw, bytes_max + 1)
    except zlib.error as error:
        raise InvalidRequest("the body is no gzip") from error
    if len(plain) > bytes_max:
        raise PayloadTooLarge(bytes_max=bytes_max)
    if not unpacking.eof or unpacking.unused_data:
        raise InvalidRequest("the body is no gzip, or more than one")
    return plain


def parse_body(raw: bytes) -> Json:
    """Return the JSON value that is in the body, None for an empty one; refuse what could not be kept as it is."""
    if not raw:
        return None
    _check_shape(raw)
    try:
        value: Json = _decoder.decode(raw.decode())
    except RecursionError as error:
        raise TooDeep from error
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is no UTF-8") from error
    except json.JSONDecodeError as error:
        raise InvalidRequest("the body is no JSON") from error
    if b"\\u" in raw:  # without such an escape there is neither a NUL nor half a character
        _check_texts(value)
    return value


_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}:,]', re.DOTALL)


def _check_shape(raw: bytes) -> None:
    """Refuse what is nested too deeply or has too many parts, before anything is built of it."""
    opened, names = raw.count(b"[") + raw.count(b"{"), raw.count(b":")
    if opened <= DEPTH_MAX and names <= NAMES_MAX and raw.count(b",") <= VALUES_MAX:
        return  # even if all of these were outside of texts
    depth = names = values = texts = 0
    for token in _TOKEN.finditer(raw):
        sign = raw[token.start()]
        if sign in b"[{":
            depth += 1
            values += 1
            if depth > DEPTH_MAX:
                raise TooDeep(depth_max=DEPTH_MAX)
        elif sign in b"]}":
            depth -= 1
        elif sign in b":":
            names += 1
        elif sign in b",":
            values += 1
        else:
            texts += 1
        if depth < 0 or texts > TEXTS_MAX:
            raise InvalidRequest("the body is no JSON")
        if names > NAMES_MAX or values > VALUES_MAX:
            raise InvalidRequest(f"more than {NAMES_MAX} names or {VALUES_MAX} values")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidRequest("a name stands twice in one object")
    return members


def _integer(digits: str) -> int:
    _check_digits(digits)
    number = int(digits)
    if abs(number) > INTEGER_MAX:
        raise Unstorable("an integer has more than 64 bits")
    return number


def _fraction(digits: str) -> float:
    _check_digits(digits)
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise Unstorable("a number is larger than any that is kept")
    return number


def _check_digits(digits: str) -> None:
    if len(digits) > DIGITS_MAX:
        raise InvalidRequest(f"a number has more than {DIGITS_MAX} digits")


def _constant(_word: str) -> NoReturn:
    raise Unstorable("NaN and Infinity are no numbers of JSON")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)


def _check_texts(value: Json) -> None:
    stack = [value]
    while stack:
        at = stack.pop()
        if isinstance(at, str):
            if "\0" in at:
                raise Unstorable("a text holds a NUL")
            try:
                at.encode()
            except UnicodeEncodeError as error:
                raise Unstorable("a text holds half a character") from error
        elif isinstance(at, dict):
            stack += at
            stack += at.values()
        elif isinstance(at, list):
            stack += at
