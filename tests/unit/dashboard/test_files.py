"""The page: what is served of it, and under which rules."""

from unittest.mock import MagicMock

import pytest

from claudemesh.asgi.messages import Request
from claudemesh.dashboard.files import INDEX, file_routes, load_files, public_paths
from claudemesh.kernel.errors import NotFound


def asked(name: str) -> Request:
    return Request(scope={}, last_headers={}, params={"name": name}, query=None, raw=b"", body=None)


@pytest.mark.req("C4")
async def test_only_what_was_read_at_the_start_is_served() -> None:
    pages = load_files()
    serve = file_routes(pages)[1].handler
    for name in pages:
        assert (await serve(asked(name))).status == 200
    for name in ("..", "../logins.py", "%2e%2e", "__init__.py", "", "INDEX.HTML", "index.html\0"):
        with pytest.raises(NotFound):
            await serve(asked(name))


@pytest.mark.req("C4")
def test_every_file_forbids_whatever_the_page_does_not_need() -> None:
    pages = load_files()
    assert INDEX in pages
    for name, answer in pages.items():
        headers = dict(answer.headers)
        policy = dict(
            part.strip().partition(" ")[::2] for part in headers[b"content-security-policy"].decode().split(";")
        )
        assert policy["default-src"] == "'none'", name
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert {policy[kind] for kind in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
        assert policy["require-trusted-types-for"] == "'script'"
        assert (headers[b"x-content-type-options"], headers[b"referrer-policy"]) == (b"nosniff", b"no-referrer")
        assert headers[b"cache-control"] == b"no-store"
        assert b"set-cookie" not in headers


@pytest.mark.req("C4")
def test_no_file_names_another_host_or_holds_code_inline() -> None:
    for name, answer in load_files().items():
        text = answer.body.decode()
        for harmless in ("http://www.w3.org/", "http://127.0.0.1:"):  # a name of markup, and what a link looks like
            text = text.replace(harmless, "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        if name.endswith(".html"):
            assert "<script>" not in text
            assert "<style" not in text
            assert " style=" not in text


def test_a_path_is_public_only_if_it_is_a_file() -> None:
    paths = public_paths(MagicMock(__iter__=lambda _: iter(["index.html", "app.js"])))
    assert paths == {"/ui/", "/ui/{name}", "/ui/index.html", "/ui/app.js"}
