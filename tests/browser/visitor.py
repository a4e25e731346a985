"""Somebody who looks at a dashboard, and hears everything that must not happen there."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.browser.stage import Member

WITHIN_MS = 20_000
expect.set_options(timeout=WITHIN_MS)
WATCH = """
window.heard = [];
addEventListener("securitypolicyviolation", (one) => heard.push(`${one.violatedDirective} ${one.blockedURI}`));
"""
POLL_MS = 5_000  # of the page
NEVER_POLL = """pause => {
  const later = window.setTimeout;
  window.polls = 0;
  window.setTimeout = (call, ms, ...more) => (ms === pause ? ((window.polls += 1), 0) : later(call, ms, ...more));
}"""
# Only streams are decoded piece by piece.
OVERHEAR = """
const decode = TextDecoder.prototype.decode;
TextDecoder.prototype.decode = function (...given) {
  const text = decode.apply(this, given);
  console.debug(text);
  return text;
};
"""
SHORT_MS = 20
LEAP_S = 15  # longer than it takes to say when to pause, and shorter than a stream may be silent
ITS_OWN = "Failed to load resource"  # what the browser itself says of an answer that is an error


@dataclass
class Visitor:
    """A tab. Nothing it saw may be wrong: `faults` is to be empty, whatever was shown."""

    page: Page
    home: str  # where all that it asks for lies
    faults: list[str] = field(default_factory=list)

    def watch(self) -> None:
        page = self.page
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("popup", lambda popup: self.faults.append(f"popup: {popup.url}"))
        page.on("request", lambda request: self._asked(request.url))
        page.add_init_script(WATCH)

    def _hear(self, message: Any) -> None:  # noqa: ANN401  Playwright's
        if message.type in {"error", "warning"} and not message.text.startswith(ITS_OWN):
            self.faults.append(f"console: {message.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((f"{self.home}/ui/", f"{self.home}/v1/")):
            self.faults.append(f"asked {url}")

    def never_poll(self) -> None:
        """Have the page look only when it is told of something; before it is opened."""
        self.page.add_init_script(f"({NEVER_POLL})({POLL_MS})")

    def overhear(self) -> None:
        """Have what the page is told by its stream be heard here too; before it is opened."""
        self.page.add_init_script(OVERHEAR)

    @contextmanager
    def told(self, words: str) -> Iterator[None]:
        """Go on when the page was told of something with these words in it, which it overhears."""
        with self.page.expect_console_message(lambda said: words in said.text):
            yield

    def pause(self) -> None:
        """Have the page's clock, which is installed, go on only when it is told to."""
        self.page.clock.pause_at(self.page.evaluate("Date.now()") / 1000 + LEAP_S)

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait for what handlers of the page bring about: they are called only while one waits for the page."""
        for _ in range(WITHIN_MS // SHORT_MS):
            if is_so():
                return
            self.page.wait_for_timeout(SHORT_MS)
        raise AssertionError("it never was so")

    def enter(self, member: Member, place: str = "") -> None:
        self.page.goto(f"{member.url}#{member.code()}")
        expect(self.main.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
        if place:
            self.go(place)

    def go(self, place: str) -> None:
        """Go to a page by its address, and wait until it shows what is in it."""
        self.page.evaluate("place => { location.hash = place }", f"#/{place}")
        title = TITLES[place.partition("?")[0]]
        expect(self.main.get_by_role("heading", name=title, exact=True, level=1)).to_be_visible()
        expect(self.main.locator(".loading")).to_have_count(0)
        expect(self.main.locator(":scope > :nth-child(2)")).to_be_visible()

    @property
    def main(self) -> Locator:
        return self.page.locator("#main")

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    def row(self, text: str) -> Locator:
        return self.main.locator("tbody tr").filter(has_text=text)

    def check(self) -> None:
        self.faults += [f"policy: {one}" for one in self.page.evaluate("window.heard")]
        assert self.faults == []
        assert self.page.evaluate("window.polls !== 0"), f"a page does not look every {POLL_MS} ms any more"


TITLES = {
    "overview": "Overview",
    "peers": "Peers",
    "traffic": "Traffic",
    "outbox": "Outbox",
    "dead": "Dead letters",
    "relay": "Relay & conflicts",
    "work": "Work",
    "trace": "Trace",
    "pipeline": "Pipeline",
}


@contextmanager
def visiting(browser: Browser, member: Member, **how: Any) -> Iterator[Visitor]:  # noqa: ANN401  a context's own
    """Open a tab of its own, and hold what it heard against what it may hear at the end."""
    context: BrowserContext = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
    context.set_default_timeout(WITHIN_MS)
    visitor = Visitor(context.new_page(), member.url.removesuffix("/ui/"))
    visitor.watch()
    try:
        yield visitor
        visitor.check()
    finally:
        context.close()


def refuse(status: int, code: str, detail: str) -> Any:  # noqa: ANN401  a handler
    """Answer in the daemon's place with a problem of this kind."""
    problem = {
        "type": "about:blank",
        "title": "It cannot",
        "status": status,
        "code": code,
        "detail": detail,
        "retry": "no",
    }

    def handle(route: Route) -> None:
        route.fulfill(status=status, content_type="application/problem+json", body=json.dumps(problem))

    return handle
