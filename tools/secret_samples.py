"""Made-up credentials of every kind, and harmless texts that look a little like them: the same ones for one seed.

`secret_recall.py` measures with them. A credential is never shown alone only: it stands in a sentence, in JSON, in
code, in a file of settings or in a command, as it does where somebody lets it slip.
"""

import base64
import json
import string
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

Maker = Callable[[Random], str]

DIGITS: Final = string.digits
LOWER: Final = string.ascii_lowercase
UPPER: Final = string.ascii_uppercase
ALNUM: Final = string.ascii_letters + DIGITS
URLSAFE: Final = ALNUM + "_-"
BASE64: Final = ALNUM + "+/"
HEX: Final = DIGITS + "abcdef"


class Kind(NamedTuple):
    name: str
    plugin: str  # the plugin of detect-secrets that is for it, or ""
    make: Maker


def chars(random: Random, alphabet: str, length: int) -> str:
    return "".join(random.choices(alphabet, k=length))


def alone(token: Maker) -> Maker:
    """Return a maker that puts a token of its own shape somewhere in a text."""
    contexts = (
        "{}",
        "the build used {} and failed",
        "rotated: {}",
        '{{"note": "{}"}}',
        'x = "{}"',
        "curl -d '{}' http://127.0.0.1:18080/progress/",
        "- see `{}` in the log of yesterday",
        "2026-06-23T10:04:11Z INFO started with {} on host-7",
    )
    return lambda random: random.choice(contexts).format(token(random))


def named(names: tuple[str, ...], value: Maker) -> Maker:
    """Return a maker that assigns a value to a name, in quotes as code and JSON do, or bare as settings do."""
    contexts = (
        '{} = "{}"',
        '"{}": "{}"',
        "{}: '{}'",
        "{}={}",
        "export {}={}",
        "{}: {}",
        '{} => "{}"',
        '{} := "{}"',
    )
    return lambda random: random.choice(contexts).format(random.choice(names), value(random))


def quoted(names: tuple[str, ...], value: Maker) -> Maker:
    contexts = ('{} = "{}"', '"{}": "{}"', "{}: '{}'", '{} == "{}"', '{} => "{}"')
    return lambda random: random.choice(contexts).format(random.choice(names), value(random))


def of(alphabet: str, length: int, before: str = "", after: str = "") -> Maker:
    return lambda random: before + chars(random, alphabet, length) + after


def one_of(*makers: Maker) -> Maker:
    return lambda random: random.choice(makers)(random)


def password(random: Random) -> str:
    words = (
        "hunter",
        "dragon",
        "Sommer",
        "letmein",
        "qwerty",
        "Tr0ub4dor",
        "correct",
        "Berlin",
        "monkey",
        "s3cret",
    )
    shapes: tuple[Maker, ...] = (
        lambda r: r.choice(words) + chars(r, DIGITS, r.randint(1, 4)),
        lambda r: r.choice(words) + r.choice("!@#$%^*+") + chars(r, DIGITS, 2),
        of(ALNUM, 12),
        of(ALNUM + "!@#%^*+-_", 16),
    )
    return random.choice(shapes)(random)


def jwt(random: Random) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = part({"alg": random.choice(("HS256", "RS256", "EdDSA")), "typ": "JWT"})
    body = part({"sub": chars(random, DIGITS, 10), "iat": random.randrange(1_700_000_000, 1_800_000_000)})
    return f"{head}.{body}.{chars(random, URLSAFE, 43)}"


def pem(random: Random) -> str:
    what = random.choice(("RSA ", "EC ", "DSA ", "OPENSSH ", "", "ENCRYPTED "))
    lines = "\n".join(chars(random, BASE64, 64) for _ in range(3))
    return f"-----BEGIN {what}PRIVATE KEY-----\n{lines}\n-----END {what}PRIVATE KEY-----"


def basic_url(random: Random) -> str:
    scheme = random.choice(("https", "http", "ftp"))
    return f"{scheme}://{chars(random, LOWER, 5)}:{chars(random, ALNUM, 10)}@{chars(random, LOWER, 6)}.example/x"


def database_url(random: Random) -> str:
    scheme = random.choice(("postgresql", "mysql", "mongodb+srv", "redis", "amqps", "postgresql+asyncpg"))
    return f"{scheme}://app:{chars(random, ALNUM + '!*$', 14)}@db-{random.randrange(9)}.internal:5432/main"


def authorization(random: Random) -> str:
    login = base64.b64encode(f"ana:{chars(random, ALNUM, 9)}".encode()).decode()
    value = random.choice(
        (f"Bearer {chars(random, URLSAFE, 24)}", f"Basic {login}", f"token {chars(random, HEX, 40)}")
    )
    shape = random.choice(("Authorization: {}", "curl -H 'Authorization: {}' x", '"Authorization": "{}"', "{}"))
    return shape.format(value if shape != "{}" or not value.startswith("token") else f"Authorization: {value}")


def cookie(random: Random) -> str:
    name = random.choice(("sid", "session", "csrftoken", "_ga_session", "JSESSIONID"))
    head = random.choice(("Cookie", "Set-Cookie", "cookie"))
    return f"{head}: {name}={chars(random, ALNUM, 26)}; Path=/"


def slack_webhook(random: Random) -> str:
    team, channel = chars(random, ALNUM, 8), chars(random, ALNUM, 8)
    return f"https://hooks.slack.com/services/T{team}/B{channel}/{chars(random, ALNUM, 24)}"


def connection_string(random: Random) -> str:
    name = random.choice(("Password", "Pwd"))
    return f"Server=tcp:db.example,1433;User ID=app;{name}={password(random)};Encrypt=yes"


def field(random: Random) -> str:
    name = random.choice(
        ("password", "apiKey", "access_token", "client-secret", "Authorization", "dbPassword", "cookie")
    )
    return json.dumps({"agent": "builder", "details": {name: chars(random, LOWER, 9)}})


KEYWORDS: Final = (
    "api_key",
    "apikey",
    "auth_key",
    "service_key",
    "account_key",
    "db_key",
    "database_key",
    "priv_key",
    "private_key",
    "client_key",
    "db_pass",
    "database_pass",
    "key_pass",
    "password",
    "passwd",
    "pwd",
    "secret",
    "my_password",
    "DB_PASSWORD",
    "clientSecret",
    "contraseña",
)
SECRET_NAMES: Final = ("signing_key", "SECRET_KEY", "api_token", "client_secret", "encryptionKey", "auth_token")

SECRETS: Final = (
    Kind("artifactory", "ArtifactoryDetector", alone(one_of(of(ALNUM, 69, "AKCp"), of(ALNUM, 33, "AP6")))),
    Kind(
        "aws access key",
        "AWSKeyDetector",
        alone(one_of(of(UPPER + DIGITS, 16, "AKIA"), of(UPPER + DIGITS, 16, "ASIA"))),
    ),
    Kind("aws secret key", "AWSKeyDetector", named(("aws_secret_access_key", "AWS_SECRET_KEY"), of(BASE64, 40))),
    Kind("azure storage key", "AzureStorageKeyDetector", alone(of(BASE64, 86, "AccountName=x;AccountKey=", "=="))),
    Kind("basic auth url", "BasicAuthDetector", alone(basic_url)),
    Kind(
        "cloudant",
        "CloudantDetector",
        named(("cloudant_apikey", "cl_pw", "cloudant_password"), one_of(of(HEX, 64), of(LOWER, 24))),
    ),
    Kind("cloudant url", "CloudantDetector", alone(of(HEX, 64, "https://ana:", "@acme.cloudant.com"))),
    Kind(
        "discord bot",
        "DiscordBotTokenDetector",
        alone(lambda r: f"M{chars(r, ALNUM, 23)}.{chars(r, URLSAFE, 6)}.{chars(r, URLSAFE, 27)}"),
    ),
    Kind("github", "GitHubTokenDetector", alone(lambda r: f"gh{r.choice('pousr')}_{chars(r, ALNUM, 36)}")),
    Kind(
        "gitlab",
        "GitLabTokenDetector",
        alone(lambda r: f"{r.choice(('glpat', 'gldt', 'glft', 'glrt', 'glcbt'))}-{chars(r, URLSAFE, 20)}"),
    ),
    Kind(
        "ibm cloud iam",
        "IbmCloudIamDetector",
        quoted(("ibm_cloud_iam_key", "iam_api_key", "ibm_api_key"), of(URLSAFE, 44)),
    ),
    Kind(
        "ibm cos hmac",
        "IbmCosHmacDetector",
        quoted(("cos_hmac_secret_access_key", "secret_access_key"), of(HEX, 48)),
    ),
    Kind("jwt", "JwtTokenDetector", alone(jwt)),
    Kind("keyword, quoted", "KeywordDetector", quoted(KEYWORDS, password)),
    Kind(
        "keyword, bare",
        "KeywordDetector",
        lambda r: f"{r.choice(KEYWORDS)}{r.choice(('=', ': ', ' = '))}{password(r)}",
    ),
    Kind("mailchimp", "MailchimpDetector", alone(lambda r: f"{chars(r, HEX, 32)}-us{r.randint(1, 21)}")),
    Kind(
        "npm",
        "NpmDetector",
        one_of(of(ALNUM, 36, "//registry.example/:_authToken=npm_"), alone(of(ALNUM, 36, "npm_"))),
    ),
    Kind("openai", "OpenAIDetector", alone(lambda r: f"sk-{chars(r, ALNUM, 20)}T3BlbkFJ{chars(r, ALNUM, 20)}")),
    Kind("private key", "PrivateKeyDetector", one_of(pem, lambda r: json.dumps({"details": pem(r)}))),
    Kind("pypi", "PypiTokenDetector", alone(of(URLSAFE, 80, "pypi-AgEIcHlwaS5vcmc"))),
    Kind("sendgrid", "SendGridDetector", alone(lambda r: f"SG.{chars(r, URLSAFE, 22)}.{chars(r, URLSAFE, 43)}")),
    Kind(
        "slack token",
        "SlackDetector",
        alone(lambda r: f"xox{r.choice('bpars')}-{chars(r, DIGITS, 12)}-{chars(r, ALNUM, 24)}"),
    ),
    Kind(
        "slack webhook",
        "SlackDetector",
        alone(slack_webhook),
    ),
    Kind(
        "softlayer",
        "SoftlayerDetector",
        quoted(("softlayer_api_key", "sl_key", "softlayer_password"), of(LOWER + DIGITS, 64)),
    ),
    Kind("square", "SquareOAuthDetector", alone(of(URLSAFE, 43, "sq0csp-"))),
    Kind("stripe", "StripeDetector", alone(lambda r: f"{r.choice('rs')}k_live_{chars(r, ALNUM, 24)}")),
    Kind(
        "telegram bot",
        "TelegramBotTokenDetector",
        alone(lambda r: f"{chars(r, '123456789', 9)}:AA{chars(r, URLSAFE, 33)}"),
    ),
    Kind("twilio", "TwilioKeyDetector", alone(lambda r: f"{r.choice(('AC', 'SK'))}{chars(r, HEX, 32)}")),
    Kind(
        "base64, random, in quotes",
        "Base64HighEntropyString",
        lambda r: f'x = "{chars(r, BASE64, r.choice((32, 40, 44, 64)))}"',
    ),
    Kind("hexadecimal under a secret's name", "HexHighEntropyString", quoted(SECRET_NAMES, of(HEX, 40))),
    Kind(
        "hexadecimal, nameless, in quotes",
        "HexHighEntropyString",
        lambda r: f'x = "{chars(r, HEX, r.choice((32, 40, 64)))}"',
    ),
    Kind("anthropic", "", alone(of(URLSAFE, 90, "sk-ant-api03-"))),
    Kind("openai project", "", alone(of(URLSAFE, 48, "sk-proj-"))),
    Kind("google api key", "", alone(of(URLSAFE, 35, "AIza"))),
    Kind("google oauth", "", alone(one_of(of(URLSAFE, 28, "GOCSPX-"), of(URLSAFE, 60, "ya29.")))),
    Kind("github fine-grained", "", alone(lambda r: f"github_pat_{chars(r, ALNUM, 22)}_{chars(r, ALNUM, 59)}")),
    Kind(
        "azure shared access",
        "",
        alone(lambda r: f"https://x.blob.example/c?sv=2024-01-01&sig={chars(r, ALNUM, 43)}%3D"),
    ),
    Kind("hugging face", "", alone(of(ALNUM, 34, "hf_"))),
    Kind("digitalocean", "", alone(of(HEX, 64, "dop_v1_"))),
    Kind("vault", "", alone(of(URLSAFE, 90, "hvs."))),
    Kind("database url", "", alone(database_url)),
    Kind("connection string", "", connection_string),
    Kind("authorization header", "", authorization),
    Kind("cookie header", "", cookie),
    Kind(
        "password in prose",
        "",
        lambda r: f"log in as ana, the password is {chars(r, LOWER, 6)}{chars(r, DIGITS, 3)}",
    ),
    Kind(
        "token in a query",
        "",
        lambda r: f"GET https://x.example/v1/rows?limit=5&access_token={chars(r, ALNUM, 24)}",
    ),
    Kind("field of a body", "", field),
)
