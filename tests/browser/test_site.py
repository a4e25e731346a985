"""The documentation site in a real browser that reaches nothing but the folder it is served from."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).parents[2]
WITHIN_S = 100


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    subprocess.run(command, cwd=ROOT, timeout=WITHIN_S, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(WITHIN_S)


@pytest.fixture(params=[1200, 400])
def page(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type in {"warning", "error"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(address) else None)
    yield page
    context.close()
    assert wrong == []


def test_each_reader_is_one_step_from_home(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.get_by_role("main").get_by_role("link", name="your first message").first.click()
    expect(page).to_have_title("Your first message - claudemesh")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_what_is_searched_is_found_without_a_network(page: Page, address: str) -> None:
    page.goto(f"{address}/search.html?q=fencing")
    results = page.locator("#mkdocs-search-results article")
    expect(results.first).to_be_visible()
    results.get_by_role("link", name="Leases", exact=False).first.click()
    expect(page.get_by_role("main")).to_contain_text("That is fencing")
