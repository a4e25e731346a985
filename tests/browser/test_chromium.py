"""The browser that the dashboard's tests stand on shows a page, and reaches nothing but this machine."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Error

if TYPE_CHECKING:
    from tests.browser.conftest import WayOut

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>a page</title>
<p id="greeting">…</p>
<script>document.getElementById("greeting").textContent = "mesh of " + (40 + 2) + " agents ✓"</script>
"""


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing: the test looks at the page, not at the log."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "index.html").write_text(PAGE)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_page_on_loopback_is_shown_with_its_script_run(browser: Browser, site: str, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 200})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site)
    assert page.title() == "a page"
    assert page.locator("#greeting").text_content() == "mesh of 42 agents ✓"
    picture = page.screenshot(path=tmp_path / "page.png")
    assert picture.startswith(b"\x89PNG")
    page.close()
    assert asked
    assert all(url.startswith(site) for url in asked)


def test_a_page_elsewhere_is_out_of_reach(browser: Browser, way_out: "WayOut") -> None:
    page = browser.new_page()
    with pytest.raises(Error, match="ERR_"):
        page.goto("http://elsewhere.invalid/")
    page.close()
    assert "GET http://elsewhere.invalid/ HTTP/1.1" in way_out.requests  # and so not on the network
