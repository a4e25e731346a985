"""JSON in its one canonical form (RFC 8785), so that equal values are equal bytes in every language.

Most values that pass here are small objects with plain keys and no fractions, and for those orjson's sorted
output is already canonical. `_is_plain` says when that holds; everything else takes the road written out below.
"""

from collections.abc import Iterable
from typing import Final

import orjson

from claudemesh.kernel.errors import InvalidRequest

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

INTEGER_MAX: Final = 2**53 - 1  # beyond it a double cannot hold every integer, so RFC 8785 has no form for them
NESTING_MAX: Final = 128  # an own limit: deeper input is an attack, and orjson stops at 254

# Up to here code points sort alike by UTF-16 unit, which the RFC asks for, and by UTF-8 byte, which orjson does.
_FIRST_SURROGATE: Final = "\ud800"

_PLAIN_SCALARS: Final = frozenset({str, bool, type(None)})

# ECMAScript writes a number plainly while its decimal point lies within these places, else with an exponent.
_PLAIN_POINT_MIN: Final = -5
_PLAIN_POINT_MAX: Final = 21


def canonicalize(value: Json) -> bytes:
    """Return the RFC 8785 form of `value`, or raise InvalidRequest if it has none."""
    try:
        if _is_plain(value, NESTING_MAX):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a name that is no text, or a lone surrogate: below finds out which
        pass
    parts: list[bytes] = []
    _write(value, parts, NESTING_MAX)
    return b"".join(parts)


def _is_plain(value: object, depth: int) -> bool:
    if type(value) in _PLAIN_SCALARS:
        return True
    if type(value) is int:
        return -INTEGER_MAX <= value <= INTEGER_MAX
    if depth == 0:
        return False
    members: Iterable[object]
    if type(value) is dict:
        names = "".join(value)
        if not names.isascii() and max(names) >= _FIRST_SURROGATE:
            return False
        members = value.values()
    elif type(value) is list:
        members = value
    else:
        return False
    return all(type(member) is str or _is_plain(member, depth - 1) for member in members)


def _write(value: Json, parts: list[bytes], depth: int) -> None:
    if value is None or isinstance(value, bool):
        parts.append({None: b"null", True: b"true", False: b"false"}[value])
    elif isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, int):
        parts.append(_integer(value))
    elif isinstance(value, float):
        parts.append(_fraction(value))
    elif not isinstance(value, list | dict):
        raise InvalidRequest(f"a {type(value).__name__} has no JSON form")
    elif depth == 0:
        raise InvalidRequest(f"nested deeper than {NESTING_MAX} levels")
    elif isinstance(value, list):
        _write_array(value, parts, depth - 1)
    else:
        _write_object(value, parts, depth - 1)


def _write_array(array: list[Json], parts: list[bytes], depth: int) -> None:
    parts.append(b"[")
    for position, element in enumerate(array):
        if position:
            parts.append(b",")
        _write(element, parts, depth)
    parts.append(b"]")


def _write_object(members: dict[str, Json], parts: list[bytes], depth: int) -> None:
    if not all(isinstance(name, str) for name in members):
        raise InvalidRequest("an object's names must be texts")
    parts.append(b"{")
    for position, name in enumerate(sorted(members, key=_utf16_units)):
        if position:
            parts.append(b",")
        parts.append(_text(name))
        parts.append(b":")
        _write(members[name], parts, depth)
    parts.append(b"}")


def _utf16_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    try:
        return orjson.dumps(str(text))  # escapes just what the RFC asks to be escaped, in its spelling
    except orjson.JSONEncodeError as error:
        raise InvalidRequest("a text holds a lone surrogate") from error


def _integer(number: int) -> bytes:
    if not -INTEGER_MAX <= number <= INTEGER_MAX:
        raise InvalidRequest("an integer lies beyond 2^53-1 and has no exact form")
    return b"%d" % number


def _fraction(number: float) -> bytes:
    """Write a double as ECMAScript does: the shortest digits that read back as the same double."""
    if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124  NaN is what differs from itself
        raise InvalidRequest("NaN and infinities have no JSON form")
    if number == 0:
        return b"0"  # also for -0
    sign = "-" if number < 0 else ""
    digits, point = _shortest_digits(abs(number))
    return (sign + _place_point(digits, point)).encode()


def _shortest_digits(number: float) -> tuple[str, int]:
    """Return digits d and a point p with number == 0.d * 10**p; Python's repr already finds the shortest d."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or "0")
    leading = len(digits) - len(digits.lstrip("0"))
    return digits.strip("0"), point - leading


def _place_point(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= _PLAIN_POINT_MAX:
        return digits + "0" * (point - count)
    if 0 < point <= _PLAIN_POINT_MAX:
        return f"{digits[:point]}.{digits[point:]}"
    if _PLAIN_POINT_MIN <= point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"
