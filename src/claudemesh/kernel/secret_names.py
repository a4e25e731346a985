"""Which names promise that a credential stands beside them, and which values keep that promise.

A name is read as words: `apiKey`, `API_KEY`, `api-key` and `x.api.key` are all `api key`. `token_count`,
`page_token`, `idempotency_key` and `secretary` are other words, and are no secrets.
"""

import re
from typing import Final

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zñ]+")


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


# A secret wherever it stands in a name, unless what follows makes it a name of something else.
_PASSWORDS: Final = _words(
    "pass pw password passwords passwd pwd passphrase passcode userpass dbpass dbpassword keypass contraseña",
    "contrasena passwort",
)
_ALWAYS: Final = (_PASSWORDS - {"pass", "pw"}) | _words(
    "secret secrets credential credentials creds authorization cookie cookies setcookie bearer jwt apikey",
    "apikeys accesskey secretkey privatekey privkey authkey accountkey servicekey clientkey authtoken",
    "accesstoken refreshtoken apitoken bearertoken mnemonic otp totp",
)
_GLUED: Final = ("password", "passwd", "apikey", "secretkey", "accesskey", "privatekey", "authtoken", "accesstoken")
# Every name of a secret has one of these in it: most names have none, and are done with at once.
_HINTS: Final = _words("pass pw secret cred auth cookie bearer jwt key token mnemonic otp contrase")
# A key is a secret if one of these goes before it.
_OF_KEYS: Final = _words(
    "api access secret private priv auth encryption decryption signing master service account db database",
    "client shared ssh deploy session storage webhook hmac cloudant cl clou softlayer sl ibm iam cloud cos",
    "cosmos azure aws gcp google stripe openai anthropic license",
)
_OF_PASSES: Final = _words("db database key user ssh sudo root cl clou cloudant smtp ftp")
_NOT_ONE: Final = _words("no without is has")
# A token is none if one of these goes before it.
_OTHER_TOKENS: Final = _words(
    "page next previous prev continuation sync pagination cursor cancellation cancel stop eos bos pad mask",
    "unk special fencing fence lease max min first last per design syntax lexer input output non",
)
_AFTER_TOKEN: Final = _words("value secret key string text header hex base raw")
# `password_policy` and `secret_name` are about one.
_ABOUT: Final = _words(
    "count counts name names policy policies id ids at age length len min max type types kind status state",
    "reset changed change rotation rotated rotate expires expiry expired expiration updated created enabled",
    "disabled required needed missing url uri path file files filename field fields label title manager store",
    "strength ref version present exists found scan scanner detection detector leak leaks banner consent ttl",
    "days seconds ms s minutes hours usage limit budget event events endpoint provider algorithm rule rules",
    "prompt attempts failed valid invalid error errors test tests docs doc page screen form input flow",
    "handling management redacted free less santa santas agent agents service method scheme realm bytes bits",
    "size index column env var jar jars",
)

_PLACEHOLDERS: Final = _words(
    "none null nil undefined true false yes no on off redacted removed hidden masked filtered secret password",
    "passwd pass pwd token key placeholder example changeme todo tbd unknown required optional missing",
    "invalid expired valid string str bytes int any empty unset default value test foo bar baz user username",
    "your here see via from and the",
)
_MASKED = re.compile(
    r"[*xX.•_#?-]+|<[^<>]*>|\$\{?[A-Za-z_][\w.:-]*\}?|\$\(.*|\{\{?.*|%\w+%|%\(\w+\)s|%s|\[.*|\(.*|&\w+;?|n/a|"
    r"(?i:your|my|the|some|insert|enter|put|use|see|replace|change|example|dummy|fake|redacted)[_ -].*"
)
_SHORTEST = 4
_DIGIT = re.compile("[0-9]")
_LETTER = re.compile("[A-Za-z]")


def split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def may_name_secret(names: str) -> bool:
    """Tell whether a look at the words is worth it, for one name or for many at once."""
    low = names.lower()
    return any(hint in low for hint in _HINTS)


def names_secret(name: str) -> bool:
    """Tell whether a field or a variable of this name holds a credential."""
    if not may_name_secret(name):
        return False
    words = ["", *split_words(name), ""]
    return any(map(_is_secret, words, words[1:], words[2:]))


def _is_secret(before: str, word: str, after: str) -> bool:
    if word in _ALWAYS or word.endswith(_GLUED):
        return after not in _ABOUT and before not in _NOT_ONE
    if word == "token":
        return before not in _OTHER_TOKENS and (not after or after in _AFTER_TOKEN)
    if word in {"key", "keys"}:
        return before in _OF_KEYS and after not in _ABOUT
    if word in {"pass", "pw"}:  # which are words of other trades too
        return before in _OF_PASSES or not (before or after)
    return False


def names_password(name: str) -> bool:
    """Tell whether the name is one of a password, which may well be a number or a word."""
    return not _PASSWORDS.isdisjoint(split_words(name))


def is_placeholder(value: str) -> bool:
    """Tell whether a value stands for a secret, or for none, and is not one itself."""
    bare = value.strip().strip("\"'`")
    return len(bare) < _SHORTEST or bare.lower() in _PLACEHOLDERS or _MASKED.fullmatch(bare) is not None


def is_opaque(value: str) -> bool:
    """Tell whether a value is no word of a language and no name in a program."""
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None
