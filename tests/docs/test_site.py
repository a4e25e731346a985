"""The site is built strictly, has every page in its menu, is searched offline, fetches nothing from elsewhere."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WITHIN_S = 100
FETCHED = {"src", "srcset", "data", "poster", "action", "background"}  # attributes that make a browser ask
FOREIGN_IN_CSS = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//")
FOREIGN_IN_JS = re.compile(r"(?:fetch|importScripts|import|open)\(\s*['\"`](?:https?:)?//")
SITE = "http://site/"


class Page(HTMLParser):
    """What a page links to, what it has its browser fetch, and which places in it have a name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.places.add(value)
            elif name == "href" and tag == "a" and value:
                self.links.append(value)
            elif value and (name in FETCHED or name == "href"):
                self.fetched.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {
        str(path.relative_to(site)): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))
    }


def made_of(source: Path) -> str:
    """Return the name of the page that is made of a source."""
    name = str(source.relative_to(DOCS).with_suffix(".html"))
    return re.sub(r"(^|/)README\.html$", r"\1index.html", name)


SOURCES = sorted(DOCS.rglob("*.md"))
RECORDS = {made_of(path) for path in SOURCES if path.match("decisions/0*.md")}  # their index is in the menu


def test_every_page_is_in_the_menu(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    menu = Page(home.partition('<nav data-toggle="wy-nav-shift"')[2].partition("</nav>")[0])
    assert set(menu.links) - {"."} >= {made_of(path) for path in SOURCES} - RECORDS - {"index.html"}


def test_every_page_but_those_that_look_things_up_is_one_step_from_home(pages: dict[str, Page]) -> None:
    home = {urlsplit(link).path for link in pages["index.html"].links}
    assert {made_of(path) for path in SOURCES} - RECORDS - {"index.html"} <= home


def test_the_menu_has_the_four_kinds_and_what_operators_and_agents_need() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    kinds = re.findall(r"^  - ([\w-]+):", menu, re.MULTILINE)
    assert kinds == ["Home", "Tutorials", "How-to", "Reference", "Explanation", "Decisions", "Glossary"]
    assert {"For agents", "Operate it"} <= set(re.findall(r"^      - ([\w\s]+):$", menu, re.MULTILINE))


def test_every_link_leads_to_a_place_that_is_there(pages: dict[str, Page], site: Path) -> None:
    dead = []
    for name, page in pages.items():
        for link in page.links:
            there = urlsplit(urljoin(SITE + name, link))
            if there.netloc != "site" or name == "404.html":
                continue
            path, place = unquote(there.path).lstrip("/"), unquote(there.fragment)
            path = path if path and not path.endswith("/") else f"{path}index.html"
            is_there = (site / path).is_file() and (not place or place in pages[path].places)
            dead += [] if is_there else [(name, link)]
    assert dead == []


def test_nothing_is_fetched_from_another_host(pages: dict[str, Page], site: Path) -> None:
    foreign = [(name, url) for name, page in pages.items() for url in page.fetched if urlsplit(url).netloc]
    assert foreign == []
    for path in [*site.rglob("*.css"), *site.rglob("*.js")]:
        pattern = FOREIGN_IN_CSS if path.suffix == ".css" else FOREIGN_IN_JS
        assert not pattern.search(path.read_text(encoding="utf-8")), path.name


def test_the_index_that_is_searched_is_there_and_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    known = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {made_of(path) for path in SOURCES} <= known
    assert any("outcome is unknown" in entry["text"] for entry in index["docs"])
    assert {"lunr.js", "main.js", "worker.js"} <= {path.name for path in (site / "search").iterdir()}


@pytest.mark.parametrize(
    ("text", "fetched"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/css">', ["//fonts.example/css"]),
        ('<a href="https://example.org/">a link is not fetched</a>', []),
    ],
)
def test_what_a_browser_would_fetch_is_seen(text: str, fetched: list[str]) -> None:
    assert [url for url in Page(text).fetched if urlsplit(url).netloc] == fetched
