"""Secrets that a test plants in requests and answers, and the search for them on the disk.

None of them may be found in any file afterwards: not as it is, nor in the ways in which text is usually written.
They have the shape of credentials, and belong to nobody.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

AUTHORIZATION = "ghp_" + "Cm7AuthorizationCanary0123456789abcd"
COOKIE = "cm-cookie-canary-7f3a91d0c2"
API_KEY = "sk-ant-" + "api03-cmApiKeyCanary8842761190ZZ"
CREDENTIAL = "cm-upstream-credential-canary-51d7"  # the relay's own
SET_COOKIE = "cm-set-cookie-canary-e07b44"
PASSWORD = "correct-horse-canary-99"  # noqa: S105  it opens nothing
TOKEN = "glpat-" + "CmCanaryToken4711abcd"

PLANTED = (AUTHORIZATION, COOKIE, API_KEY, CREDENTIAL, SET_COOKIE, PASSWORD, TOKEN)

# What a careless client sends along with every request.
CALLERS_HEADERS = {
    "authorization": f"Bearer {AUTHORIZATION}",
    "proxy-authorization": f"Basic {base64.b64encode(COOKIE.encode()).decode()}",
    "cookie": f"session={COOKIE}",
    "x-api-key": API_KEY,
    "x-source-session": TOKEN,
}


def forms(secret: str) -> Iterator[bytes]:
    """Yield the ways in which a secret may be written down."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield quote(secret, safe="").encode()
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    for ahead in range(3):  # base64 of something that it stands in: what of it does not hang on its neighbours
        inner = base64.b64encode(b"\0" * ahead + raw)[4 * (ahead > 0) : -4]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")


def found_in(folder: Path, secrets: tuple[str, ...] = PLANTED) -> list[str]:
    """Return which file holds which secret: of every file below the folder, whatever it is."""
    wanted = [(secret, set(forms(secret))) for secret in secrets]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        f"{path.name} holds {secret}"
        for path in files
        for content in [path.read_bytes()]
        for secret, shapes in wanted
        if any(shape in content for shape in shapes)
    ]
