"""What is taken for a credential, and what is not; the figures are in docs/explanation/secrets.md."""

import sys

import pytest

from claudemesh.kernel.canonical import Json
from claudemesh.kernel.secret_texts import _lower
from claudemesh.kernel.secrets import Finding, find_secret, find_secret_text

RANDOM = "q9Xv2LmT7rWb4KzNc8YdQ1sHg6JfP3eA"
DIGEST = "c7849e4aab0123456789abcdef0123456789abcd"

WRITTEN = [
    ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE"),
    ("private_key", "-----BEGIN PGP PRIVATE KEY BLOCK-----"),
    ("private_key", "PuTTY-User-Key-File-3: ssh-ed25519"),
    ("url_password", "postgresql://ana:s3cr3t@db.example:5432/x"),
    ("url_password", "redis://:s3cr3t@cache/0"),
    ("authorization", "curl -H 'Authorization: Bearer abcDEFghiJKL'"),
    ("authorization", "Authorization: token 0123456789abcdef"),
    ("authorization", "sent with Basic dXNlcjpwYXNz"),
    ("cookie", "Cookie: sid=8fe1cecab91b"),
    ("cookie", '"Set-Cookie": "session=abcdefgh; HttpOnly"'),
    ("assignment", "password=hunter2"),
    ("assignment", "set PASSWORD = 'correct horse'"),
    ("assignment", "API_KEY: abcd1234efgh"),
    ("assignment", "DB_PASSWORD=hunter"),
    ("assignment", "the password is hunter22"),
    ("assignment", '{"clientSecret": "abc-def-ghi-jkl-mno"}'),
    ("assignment", 'if (input == "x") or "hunter" == my_password:'),
    ("assignment", "?access_token=ab12cd34&page=1"),
    ("assignment", "password: 12345678"),
    ("assignment", "cloudant_apikey = abcdefghijklmnopqrstuvwx"),
    ("assignment", "passwd: p@ssw!rd"),
    ("assignment", "İ password=hunter2"),  # its small letter is two characters
    ("assignment", "ibmcloudiamapikey = 'abcd1234'"),
    ("assignment", f"client_key={RANDOM}"),
    ("assignment", 'secret.assign("abcd1234", 8) != ""'),
]
SHAPED = [
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dQ"),
    ("aws_access_key", "AKIAQ3EGRIOTX7ZBWX5M"),
    ("github_token", "ghp_" + "a1B2" * 9),
    ("slack_webhook", "https://hooks.slack.com/services/T0000000/B0000000/abcdefgh"),
    ("openai_key", "sk-" + "a1B2" * 6),
    ("high_entropy", f"it was {RANDOM} all along"),
]
HARMLESS = [
    "",
    "short",
    "token_count: 123, input_tokens=45, output_tokens=99",
    "the password is wrong, and the secret was rotated",
    "password: must be at least 8 characters",
    "login(password=password, token=self.token, secret=cfg.v2.secret)",
    "api_key=os.environ['API_KEY']",
    "Idempotency-Key: 01HZX3K2M4N5P6Q7R8S9T0V1W2",
    "secretary: annabell7",
    f"commit {DIGEST} of main",
    "https://example.com/a/b?page_token=abc123def",
    "https://ana:<password>@example.com/ and https://ana:***@example.com/",
    "https://example.com:8080/path@2x.png",
    "rotate the API key: done",
    "Basic authentication is required, a bearer token will do",
    "Cookie: consent=true",
    'the secret "sauce" and get_secret("db-main") and "token": "refresh"',
    'label = "x" == other',
    "token = 'two words of 2 kinds'",
    'password = "a sentence of many words is not a password at all"',
    "PRIVATE KEY",
    "Ed25519PublicKeyV2SerializerFactoryBean",
    "docs/STATE-WP-0068-offline-write-buffer-and-edge-relay.md",
    "toolu_01A09q90qw90lq917835lq9Ab",
    f"data:image/png;base64,{RANDOM}",
    "aB1" * 12,
    "-" * 60,
    "1234-5678-" * 6,
    "pass the key: 7 to Bob, pass: 3",
    "ACCESS_KEY_ID in the environment",
]


@pytest.mark.req("R6")
@pytest.mark.parametrize(("kind", "text"), WRITTEN + SHAPED)
def test_a_credential_in_a_text_is_found(kind: str, text: str) -> None:
    assert find_secret_text(text) == Finding("value", kind)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_speaks_of_secrets_is_none(text: str) -> None:
    assert find_secret_text(text) is None


@pytest.mark.req("R6")
@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"password": "hunter"}, "body.password"),
        ({"details": [{"apiKey": "abcd"}]}, "body.details[0].apiKey"),
        ({"X-Auth-Token": "abcd"}, "body.X-Auth-Token"),
        ({"token": "abcd"}, "body.token"),
        ({"tokenValue": "abcd"}, "body.tokenValue"),
        ({"passwords": ["abcd"]}, "body.passwords[0]"),
        ({"db_pass": "abcd"}, "body.db_pass"),
        ({"pass": "abcd"}, "body.pass"),
        ({"password": 12345678}, "body.password"),
        ({"credentials": {"user": "ana", "value": "abcd1234"}}, "body.credentials.value"),
    ],
)
def test_a_field_that_promises_a_secret_and_has_one_is_found(value: Json, where: str) -> None:
    assert find_secret(value) == Finding(where, "secret_field")


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "prose",
        [],
        {},
        {"password": None, "secret": "", "token": True, "api_key": "***", "cookie": "${COOKIE}", "pwd": 12},
        {"token_count": "abcd1234", "input_tokens": 7, "idempotency_key": "abcd1234", "secretary": "abcd1234"},
        {"password_policy": "12 characters", "page_token": "abcd1234", "is_secret": "maybe", "bypass": "abcd"},
        {"token": 123456, "password": 1.5, "pass_rate": "0.98 of them", "hotkey": "ctrl"},
        {"credentials": {"user": "ana", "kind": "a word"}},
        {"summary": "the password:", "next": "hunter2"},  # each alone is harmless
    ],
)
def test_a_value_without_a_secret_passes(value: Json) -> None:
    assert find_secret(value) is None


@pytest.mark.req("R6")
def test_a_secret_is_found_wherever_it_is_in_a_value() -> None:
    token = "ghp_" + "a1B2" * 9
    assert find_secret(token) == Finding("body", "github_token")
    assert find_secret({"a": [1, {"b": f"use {token}"}]}) == Finding("body.a[1].b", "github_token")


@pytest.mark.req("R6")
def test_a_finding_never_shows_the_secret_even_where_it_is_a_name() -> None:
    token = "ghp_" + "a1B2" * 9
    assert find_secret({"a": {token: 1}}) == Finding("body.a.*", "github_token")
    assert find_secret({token: {"password": "hunter"}}) == Finding("body.*.password", "secret_field")
    assert find_secret({"two words": {"password": "hunter"}}) == Finding("body.*.password", "secret_field")
    assert find_secret({"two words": token}) == Finding("body.*", "github_token")


def test_small_letters_stand_where_their_capitals_stood() -> None:
    assert [chr(code) for code in range(sys.maxunicode + 1) if len(_lower(chr(code))) != 1] == []


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "AKIA",
        "sk-",
        "pass",
        "password ",
        "token: ",
        'passpass="',
        "key='",
        "://a:",
        "bearer ",
        "cookie: ",
        "BEGIN A ",
        "'x' == ",
        "M.",
        "1:",
        "Aa1",
        "a" * 27 + " ",
        "<",
        "{",
        "authorization:",
        "İ",
    ],
)
def test_no_text_makes_it_look_again_and_again(piece: str) -> None:
    # Were the time to grow with the square of the length, the test's own limit would end it.
    find_secret_text(piece * (400_000 // len(piece)))
    find_secret({"a": [piece * 100] * 1_000})


def test_a_value_nested_a_hundred_thousand_deep_is_walked() -> None:
    value: Json = {"password": "hunter"}
    for _ in range(100_000):
        value = [value]
    found = find_secret(value)
    assert found
    assert found.kind == "secret_field"


@pytest.mark.req("R6")
@pytest.mark.parametrize(
    "text",
    [
        "see /tasks/01M7PC0VA7PY98V64TKMTPDERC for more",
        "http://127.0.0.1:18000/tasks/01M7PC0VABQC6TDQYC8YGF7Y2M",
        "recovery-01M7PC0VA3EV57GC4YYM7S8VPJ",
        "handed over as work-item/550e8400-e29b-41d4-a716-446655440000/Step-Two",
    ],
)
def test_a_path_or_a_prefix_before_an_id_makes_no_credential_of_it(text: str) -> None:
    assert find_secret_text(text) is None
    assert find_secret({"summary": text}) is None


@pytest.mark.req("R6")
def test_an_id_beside_it_hides_no_credential() -> None:
    assert find_secret_text("/tasks/01M7PC0VA7PY98V64TKMTPDERC/q9Zr7Tx2Lm5Vb8Nc4Kd1Jf6Hg3Ws0Pa") is not None
