"""Texts without a credential, of the kinds that agents write down all day: the same ones for one seed."""

import json
from collections.abc import Callable
from random import Random
from typing import Final

from tools.secret_samples import ALNUM, BASE64, DIGITS, HEX, LOWER, UPPER, Kind, chars

CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SUBJECTS: Final = ("the relay", "our parser", "the outbox", "Ana", "the replay worker", "the hub", "CI", "a reader")
VERBS: Final = ("keeps", "drops", "retries", "renames", "measures", "refuses", "rewrites", "merges", "waits for")
THINGS: Final = (
    "every envelope in order",
    "3 of 17 tests",
    "the token budget of the session",
    "the password form",
    "a cache key per tenant",
    "the secret scanner's false alarms",
    "an access key rotation policy",
    "the primary key of tasks",
    "two authorization checks",
    "the cookie banner",
    "its lease token",
    "the API keys page",
)
FILES: Final = (
    "outbox",
    "Relay",
    "secrets",
    "test_routing",
    "HttpServer",
    "token_counter",
    "PasswordForm",
    "index",
)
FOLDERS: Final = ("src", "claudemesh", "kernel", "tests", "unit", "Documents", "node_modules", "Project42", "v2")
ENDINGS: Final = (".py", ".ts", ".md", "_test.go", ".sql", ".tsx", ".yaml")

ABOUT: Final = (
    "the password is wrong for the second time",
    "password: must be at least 12 characters and one symbol",
    "reset the password in Settings > Security",
    "rotate the API key: done",
    "the token was refused, see token_expired in the log",
    "input_tokens=1834 output_tokens=221 cached_tokens=90",
    "max_tokens: 4096, stop_token: none",
    "API_KEY is read from the environment (see API_KEY in .env.example)",
    "export API_KEY=$(pass show api)",
    'password = os.environ["DB_PASSWORD"]',
    "def login(user: str, password: str, token: str | None = None) -> Session:",
    "client = Client(token=token, api_key=settings.api_key)",
    'parser.add_argument("--password", help="asked for if it is left out")',
    "raise ValueError('secret must be bytes')",
    "Authorization: Bearer $TOKEN",
    "curl -H 'Authorization: Bearer <token>' https://api.example/v1",
    "Basic authentication was replaced by bearer tokens",
    "postgresql://localhost:5432/main and redis://cache:6379/0",
    "https://user:***@db.example/main",
    "secret: true",
    '{"password": null, "token": "", "api_key": "<redacted>"}',
    "cookie: HttpOnly, SameSite=Strict",
    "the secretary asked for the keynote, a turkey and a monkey",
    "primary_key=True, foreign_key: tasks.id, sort_key = created_at",
    "auth: none; auth_method: oidc; authorization_status: pending",
    "key: value, token: string, password: string",
    "the pass rate is 98%, pass: 412, fail: 3",
    "fencing token 41 < 42: refused",
    "grep -rn 'api_key' src/ | wc -l",
    "TODO: document passphrase handling; see docs/how-to/passwords.md",
    "idempotency key: close-session-2026-06-23-a",
    "Public key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk3yTg0vN2rXq1b7sZbWm5pQe8uJf4cKd9LhXyVtR2o ana@host",
)


def sentence(random: Random) -> str:
    return f"{random.choice(SUBJECTS)} {random.choice(VERBS)} {random.choice(THINGS)}"


def prose(random: Random) -> str:
    return ". ".join(sentence(random).capitalize() for _ in range(random.randint(2, 6))) + "."


def summary(random: Random) -> str:
    done = f"{random.randint(2, 40)} tests pass, {random.randint(0, 3)} fail"
    return f"[{random.choice(('done', 'wip', 'blocked'))}] T{random.randint(1, 99):02}: {sentence(random)}; {done}"


def path(random: Random) -> str:
    folders = "/".join(random.choice(FOLDERS) for _ in range(random.randint(2, 6)))
    return f"/{folders}/{random.choice(FILES)}{random.choice(ENDINGS)}:{random.randint(1, 400)}"


def url(random: Random) -> str:
    query = random.choice(("", "?page=2&limit=50", "?cursor=eyJ&sort=-updated_at", "#L12-L40", "?q=reset+password"))
    return f"https://{random.choice(('docs', 'git', 'ci'))}.example{path(random)}{query}"


def code(random: Random) -> str:
    name, other = random.choice(FILES), random.choice(FOLDERS)
    shapes = (
        f"def {name.lower()}_of(rows: list[int], *, limit: int = {random.randint(1, 900)}) -> int:",
        f"assert {name}.count({other!r}) == {random.randint(1, 90)}, 'wrong number of rows'",
        f"import {{ {name}Component, use{other.capitalize()}State }} from '@/{other}/{name}';",
        f"CREATE INDEX by_{other} ON {other} (revision, updated_at) WHERE status <> 'done';",
        f"self._{name.lower()}: dict[str, {name.capitalize()}] = {{}}",
        f"const key = `${{tenant}}:${{{other}}}`; // cache key",
        f"token = next(self._{other}, None)",
        f"for key, value in {name}.items(): print(f'{{key}}={{value}}')",
    )
    return random.choice(shapes)


def row(random: Random) -> str:
    status = random.choice(("todo", "in_progress", "done"))
    return json.dumps(
        {"id": ulid(random), "title": sentence(random), "status": status, "updated_at": instant(random)}
    )


def ulid(random: Random) -> str:
    return "01" + chars(random, CROCKFORD, 24)


def uuid(random: Random) -> str:
    return "-".join(chars(random, HEX, length) for length in (8, 4, 4, 4, 12))


def instant(random: Random) -> str:
    day = f"2026-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    return f"{day}T{random.randint(0, 23):02}:04:11.{random.randrange(1000):03}Z"


def log_line(random: Random) -> str:
    where = f"pid={chars(random, DIGITS, 5)} host-{chars(random, LOWER, 4)}"
    return f"{instant(random)} INFO {where} {sentence(random)} in {random.randint(1, 900)} ms"


def image_name(random: Random) -> str:
    return f"img_{chars(random, ALNUM, 8)}_{random.choice((320, 1024))}x{random.randint(200, 900)}.png"


def picture(random: Random) -> str:
    return f"![chart](data:image/png;base64,iVBORw0KGgo{chars(random, BASE64, 120)}=)"


def digest(random: Random) -> str:
    shapes = (
        f'"integrity": "sha512-{chars(random, BASE64, 86)}=="',
        f"sha256:{chars(random, HEX, 64)}",
        f"SHA256:{chars(random, BASE64, 43)} (ED25519)",
        f'etag: W/"{chars(random, HEX, 32)}"',
    )
    return random.choice(shapes)


def ruler(random: Random) -> str:
    return random.choice(("=", "-", "+-", "_", "=-", "0123456789-", "/")) * random.randint(20, 60)


def about(random: Random) -> str:
    return random.choice(ABOUT)


def inside(make: Callable[[Random], str]) -> Callable[[Random], str]:
    shapes = ("{}", "see {} for it", 'id = "{}"', '{{"ref": "{}"}}', "- {}: merged")
    return lambda random: random.choice(shapes).format(make(random))


HARMLESS: Final = (
    Kind("prose", "", prose),
    Kind("task summary", "", summary),
    Kind("prose and code about secrets", "", about),
    Kind("code", "", code),
    Kind("row of the hub", "", row),
    Kind("file path", "", inside(path)),
    Kind("url without a login", "", inside(url)),
    Kind("ulid", "", inside(ulid)),
    Kind("uuid", "", inside(uuid)),
    Kind("git hash", "", inside(lambda r: chars(r, HEX, r.choice((7, 12, 40))))),
    Kind("instant", "", inside(instant)),
    Kind("digest", "", digest),
    Kind("picture", "", picture),
    Kind("name of an image", "", inside(image_name)),
    Kind("id of a tool call", "", inside(lambda r: f"toolu_01{chars(r, ALNUM, 22)}")),
    Kind("ruler", "", ruler),
    Kind("log line", "", log_line),
    Kind("constant", "", inside(lambda r: "_".join(chars(r, UPPER, r.randint(3, 9)) for _ in range(4)))),
)
