"""The page, from the files in `static/`: read once, and only what was read then is ever served.

The headers let it load nothing from elsewhere, run nothing inline, be framed by nobody, and keep its address to
itself. It is the same for everybody, so it needs no token; what it shows does.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from claudemesh.asgi.messages import NO_SNIFF, Headers, Request, Response
from claudemesh.asgi.routes import Route
from claudemesh.kernel.errors import NotFound

ROOT: Final = "/ui/"
ANY: Final = f"{ROOT}{{name}}"
INDEX: Final = "index.html"

_NAME: Final = re.compile(r"[a-z0-9_-]+\.(html|js|css|svg|txt)")
_KINDS: Final = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final[Headers] = (
    NO_SNIFF,
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)


def load_files() -> dict[str, Response]:
    """Return the answers by the names of the files."""
    found = {entry.name: entry for entry in files("claudemesh.dashboard").joinpath("static").iterdir()}
    kinds = {name: match[1] for name in found if (match := _NAME.fullmatch(name))}
    return {
        name: Response(200, found[name].read_bytes(), ((b"content-type", _KINDS[kind]), *_HEADERS))
        for name, kind in kinds.items()
    }


def public_paths(pages: Mapping[str, Response]) -> frozenset[str]:
    return frozenset({ROOT, ANY, *(f"{ROOT}{name}" for name in pages)})


def file_routes(pages: Mapping[str, Response]) -> list[Route]:
    async def index(_: Request) -> Response:
        return pages[INDEX]

    async def file(request: Request) -> Response:
        page = pages.get(request.params["name"])
        if page is None:
            raise NotFound("there is nothing at this address")
        return page

    return [
        Route(
            method="GET",
            path=ROOT,
            handler=index,
            summary="The dashboard's page, for a browser; `claudemesh dashboard` prints the link.",
            content_type="text/html",
        ),
        Route(
            method="GET",
            path=ANY,
            handler=file,
            summary="What the page is made of.",
            content_type="*/*",
            errors=(NotFound,),
        ),
    ]
