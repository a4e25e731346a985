#!/usr/bin/env python3
"""Check an implementation of claudemesh's canonical JSON and fingerprints against the published vectors.

    python3 docs/vectors/check.py               checks the implementation in this file
    python3 docs/vectors/check.py -- COMMAND …  checks yours

Yours reads one JSON object a line from standard input and answers each with one line on standard output, flushed:

    {"profile": "canonical", "json": TEXT}      the canonical form's UTF-8 bytes in hex
    {"profile": "send", "json": TEXT}           the fingerprint in hex
    {"profile": "http_request", "method": …, "path": …, "query": …, "body_hex": …}
                                                the fingerprint in hex

or with the word `refused` where the input has no form. TEXT is to be parsed by your own JSON parser: what it does
to numbers is part of the test. An integer (no fraction, no exponent) beyond 2^53-1 is refused, not rounded; so is
a value with more than 128 arrays and objects inside each other.

This file needs only Python and shares no code with claudemesh, so that one mistake is not made twice.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path

HERE = Path(__file__).parent
PROFILES = ("canonical", "send", "http_request")
REFUSED = "refused"
NESTING_MAX = 128


class Refused(Exception):
    pass


# --- canonical JSON, RFC 8785 ----------------------------------------------------------------------


def canonicalize(value: object) -> bytes:
    return "".join(pieces(value, NESTING_MAX)).encode()


def pieces(value: object, room: int) -> Iterator[str]:
    """Yield the form's pieces; `room` is how many arrays and objects may still be inside each other."""
    if isinstance(value, (list, dict)) and not room:
        raise Refused
    if value is None:
        yield "null"
    elif value is True:
        yield "true"
    elif value is False:
        yield "false"
    elif isinstance(value, str):
        yield quoted(value)
    elif isinstance(value, int):
        if abs(value) >= 1 << 53:
            raise Refused
        yield str(value)
    elif isinstance(value, float):
        yield number(value)
    elif isinstance(value, list):
        for place, element in enumerate(value):
            yield "," if place else "["
            yield from pieces(element, room - 1)
        yield "]" if value else "[]"
    elif isinstance(value, dict):
        for place, name in enumerate(sorted(value, key=utf16)):
            yield "," if place else "{"
            yield quoted(name)
            yield ":"
            yield from pieces(value[name], room - 1)
        yield "}" if value else "{}"
    else:
        raise Refused


def utf16(text: str) -> list[int]:
    units = []
    for character in text:
        point = ord(character)
        if point > 0xFFFF:
            point -= 0x10000
            units += [0xD800 + (point >> 10), 0xDC00 + (point & 0x3FF)]
        else:
            units.append(point)
    return units


WIDE = Context(prec=1100)  # room for every digit of the smallest double
SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def quoted(text: str) -> str:
    out = ['"']
    for character in text:
        point = ord(character)
        if 0xD800 <= point <= 0xDFFF:
            raise Refused
        out.append(SHORT.get(point) or (f"\\u{point:04x}" if point < 32 else character))
    return "".join([*out, '"'])


def number(value: float) -> str:
    """Write a double as ECMAScript's Number::toString does."""
    if value - value != 0:
        raise Refused  # NaN and the infinities
    if value == 0:
        return "0"
    if value < 0:
        return "-" + number(-value)
    digits, n = shortest(value)
    k = len(digits)
    if k <= n <= 21:
        return digits + "0" * (n - k)
    if 0 < n <= 21:
        return digits[:n] + "." + digits[n:]
    if -6 < n <= 0:
        return "0." + "0" * -n + digits
    tail = f"e{'+' if n > 0 else '-'}{abs(n - 1)}"
    return digits[0] + ("." + digits[1:] if k > 1 else "") + tail


def shortest(value: float) -> tuple[str, int]:
    """Return the fewest digits that read back as the same double (of those the nearest) and the point's place."""
    exact = Decimal(value)
    n = exact.adjusted() + 1
    for count in range(1, 18):
        place = Decimal(1).scaleb(n - count)
        near = [exact.quantize(place, rounding, WIDE) for rounding in (ROUND_FLOOR, ROUND_CEILING)]
        right = [candidate for candidate in near if float(candidate) == value]
        if right:
            best = min(
                right,
                key=lambda candidate: (abs(WIDE.subtract(candidate, exact)), candidate.as_tuple().digits[-1] % 2),
            )
            digits = "".join(map(str, best.as_tuple().digits))
            return digits.rstrip("0"), best.adjusted() + 1
    raise AssertionError("17 digits always read back")


# --- fingerprints ----------------------------------------------------------------------------------


def fingerprint(fields: list[str], body: bytes) -> str:
    for field in fields:
        check_text(field)
    frame = "\0".join([*fields, hashlib.sha256(body).hexdigest()])
    return hashlib.sha256(frame.encode()).hexdigest()


def check_text(text: str) -> None:
    if any(point == 0 or 0xD800 <= point <= 0xDFFF for point in map(ord, text)):
        raise Refused


def check_texts(value: object) -> None:
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, list):
        for element in value:
            check_texts(element)
    elif isinstance(value, dict):
        for name, member in value.items():
            check_texts(name)
            check_texts(member)


def send(request: dict[str, object]) -> str:
    check_texts(request)
    meta = dict(request.get("meta") or {})
    mentions = request.get("mentions") or []
    if mentions:
        if "mentions" in meta:
            raise Refused
        meta["mentions"] = sorted(mentions)
    fields = [
        "1",
        request["kind"],
        request["ref"],
        request.get("reply_to") or "",
        request.get("priority") or "next",
        canonicalize(meta).decode() if meta else "",
    ]
    return fingerprint(fields, request["body"].encode())


def http_request(vector: dict[str, str]) -> str:
    fields = ["1", vector["method"], vector["path"], vector["query"]]
    return fingerprint(fields, bytes.fromhex(vector["body_hex"]))


def answer(question: dict[str, str]) -> str:
    try:
        if question["profile"] == "canonical":
            return canonicalize(json.loads(question["json"])).hex()
        if question["profile"] == "send":
            return send(json.loads(question["json"]))
        return http_request(question)
    except Refused:
        return REFUSED


# --- the check -------------------------------------------------------------------------------------


def vectors() -> Iterator[tuple[dict[str, str], str, str]]:
    """Yield (question, expected answer, name)."""
    for profile in PROFILES:
        for vector in json.loads((HERE / f"{profile}.json").read_text(encoding="utf-8"))["vectors"]:
            question = {
                key: vector[key] for key in ("json", "method", "path", "query", "body_hex") if key in vector
            }
            if "refused" in vector:
                expected = REFUSED
            elif profile == "canonical":
                expected = vector["canonical"].encode().hex()
            else:
                expected = vector["fingerprint"]
            yield {"profile": profile, **question}, expected, f"{profile}: {vector['name']}"


def check(ask: Callable[[dict[str, str]], str]) -> int:
    checked = wrong = 0
    for question, expected, name in vectors():
        checked += 1
        got = ask(question)
        if got != expected:
            wrong += 1
            print(f"WRONG {name}\n  expected {expected}\n  got      {got}")
    print(f"{checked - wrong} of {checked} vectors agree")
    return 1 if wrong or not checked else 0


def main(arguments: list[str]) -> int:
    if not arguments:
        return check(answer)
    if arguments[0] != "--" or not arguments[1:]:
        print(__doc__)
        return 2
    try:
        process = subprocess.Popen(arguments[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        print(f"cannot start {arguments[1]}: {error.strerror}")
        return 2
    with process:

        def ask(question: dict[str, str]) -> str:
            try:
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                return "(the command ended)"
            return process.stdout.readline().strip() or "(no answer)"

        status = check(ask)
        process.stdin.close()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
