"""Which texts have a credential written into them, by the way it is written.

A key in its armour, a password in a URL, an Authorization or Cookie header, and whatever is assigned to a name that
promises a secret: `DB_PASSWORD=…`, `"apiKey": "…"`, `the password is …`. Prose speaks of passwords and tokens all
the time, and code passes them on by name: there the value has to look like one, too.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from claudemesh.kernel.secret_names import is_opaque, is_placeholder, names_password, names_secret
from claudemesh.kernel.secret_shapes import is_random

_KEY_BLOCK = re.compile(r"BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY|PuTTY-User-Key-File-[0-9]")
_URL_LOGIN = re.compile(r"://[^\s/:@?#\"'<>]{0,256}+:([^\s/@\"'<>]{1,256}+)@[A-Za-z0-9\[]")
_COOKIE = re.compile(r"cookie2?[\"']?:[ ]?[\"']?[^\s=;\"':]{1,64}+=([^\s;\"']{4,256})")
_SCHEMES: Final = ("bearer", "basic", "digest", "negotiate", "apikey", "authorization")
_SCHEME = re.compile(
    r"\b(?:bearer|basic|digest|negotiate|apikey|authorization[\"']?:[ \t]?[\"']?[A-Za-z0-9-]{0,20}+)[ \t]{1,4}+"
    r"[\"']?([A-Za-z0-9+/_.=~:-]{8,256}+)",
    re.IGNORECASE,
)

# A name up to its last word that promises something, what assigns to it, and what is assigned. Each hint has a
# pattern of its own, that a search for the hint itself may go before it.
_HINTS: Final = ("pass", "pwd", "pw", "secret", "token", "key", "cred", "auth", "contrase", "jwt", "otp", "cookie")
_ASSIGNMENTS: Final = tuple(
    (
        hint,
        re.compile(
            hint + r"(?P<rest>[\w-]{0,32}+)[\"'`\])]{0,2}+(?:\[[0-9]{0,6}\])?[ \t]{0,8}+"
            r"(?P<sign>:=|=>|!==?|={1,3}|:|\.assign\(|\(|(?<=[ \t])(?:is|was)[ \t]|(?<=[ \t])(?=[\"']))"
            r"[ \t]{0,8}+@?"
            r"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{1,512}+)(?P=quote)|(?P<bare>[^\s\"'`,;&<>{}()\[\]]{1,512}+))"
        ),
    )
    for hint in _HINTS
)
_COMPARED = re.compile(r"([\"'`])([^\"'`\n]{4,256}+)\1[ \t]{0,8}[!=]={1,2}[ \t]{0,8}([\w.-]{2,64}+)")
_BEFORE = re.compile(r"[\w.-]*[ ]?\Z")
_BEFORE_MAX: Final = 40
_ENV = re.compile(r"[A-Z][A-Z0-9_]*")
_SPACE = re.compile(r"\s")
_SYMBOL = re.compile(r"[!@#$%^*+~]")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]")
_LETTERS_LONG = re.compile(r"[a-z]{20,}|[A-Z]{20,}")
_REFERENCE = re.compile(r"(?:[A-Za-z_]\w*[./:\\-])*[A-Za-z_]\w*")
_BARE_SHORTEST: Final = 6
_QUOTED_LONG: Final = 16
_QUOTED_WORDS_MAX: Final = 6
_WEAK_SIGNS: Final = ("(", "is ", "was ", "is\t", "was\t", "")


def find_written(text: str) -> str | None:
    """Return the kind of the first credential that is written as one."""
    if ("PRIVATE KEY" in text or "PuTTY-User-Key-File-" in text) and _KEY_BLOCK.search(text):
        return "private_key"
    if "://" in text and any(not is_placeholder(login[1]) for login in _URL_LOGIN.finditer(text)):
        return "url_password"
    low = _lower(text)
    if [scheme for scheme in _SCHEMES if scheme in low] and any(map(_is_header_value, _SCHEME.findall(text))):
        return "authorization"
    if "cookie" in low and any(not is_placeholder(cookie[1]) for cookie in _COOKIE.finditer(low)):
        return "cookie"
    hinted = [pattern for hint, pattern in _ASSIGNMENTS if hint in low]
    return "assignment" if hinted and _has_assigned(text, low, hinted) else None


def _has_assigned(text: str, low: str, hinted: list[re.Pattern[str]]) -> bool:
    seen = set()  # what is written a thousand times is judged once
    for assigned in _assigned(text, low, hinted):
        if assigned not in seen and _is_secret(assigned):
            return True
        seen.add(assigned)
    return False


def _lower(text: str) -> str:
    """Return the text in small letters, each at its place: of one capital the small letter is two characters."""
    return text.replace("\u0130", "I").lower()


def _is_header_value(value: str) -> bool:
    return is_opaque(value) or _INNER_CAPITAL.search(value) is not None


class _Assigned(NamedTuple):
    name: str
    sign: str
    value: str
    is_quoted: bool
    is_tight: bool = False  # by a `=` alone, without any space, as settings of an environment are written


def _assigned(text: str, low: str, hinted: list[re.Pattern[str]]) -> Iterator[_Assigned]:
    for pattern in hinted:
        for match in pattern.finditer(low):
            start = match.start()
            before = _BEFORE.findall(text[max(0, start - _BEFORE_MAX) : start])
            name = before[0] + text[start : match.end("rest")]
            is_quoted = match["bare"] is None
            begin, end = match.span("quoted" if is_quoted else "bare")
            is_tight = low[match.end("rest") : begin] == "="
            yield _Assigned(name, match["sign"], text[begin:end], is_quoted, is_tight)
    if "==" in low or "!=" in low:
        yield from (_Assigned(found[3], "==", found[2], is_quoted=True) for found in _COMPARED.finditer(text))


def _is_secret(assigned: _Assigned) -> bool:
    name, sign, value, is_quoted, is_tight = assigned
    if not names_secret(name) or is_placeholder(value):
        return False
    if sign in _WEAK_SIGNS:
        return is_opaque(value) and len(value) >= _BARE_SHORTEST and not _SPACE.search(value)
    if not is_quoted:
        return _is_bare_secret(name, value.rstrip(".:!?"), is_env=is_tight and bool(_ENV.fullmatch(name)))
    if names_password(name):
        return len(value.split()) <= _QUOTED_WORDS_MAX
    is_like_one = is_opaque(value) or len(value) >= _QUOTED_LONG or _INNER_CAPITAL.search(value) is not None
    return is_like_one and not _SPACE.search(value)


def _is_bare_secret(name: str, value: str, *, is_env: bool) -> bool:
    if value.isdecimal():
        return names_password(name)
    if is_env or _LETTERS_LONG.fullmatch(value) or is_random(value):
        return True
    if _REFERENCE.fullmatch(value) and (names_secret(value) or not is_opaque(value)):
        return False  # code that passes it on, or prose
    return len(value) >= _BARE_SHORTEST and (is_opaque(value) or _SYMBOL.search(value) is not None)
