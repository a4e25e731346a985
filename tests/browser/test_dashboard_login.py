"""How one gets into the dashboard and out of it, and what a tab says when the daemon is gone."""

import signal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.scene import Scene
from tests.browser.visitor import Visitor, visiting

A_WHILE_MS = 10_000
STAYING_MS = 300_000  # a third of what a login outlives that is not used
COMMAND = "claudemesh dashboard"
LOOK_AWAY = """where => {
  Object.defineProperty(document, "hidden", { value: where === "away", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""  # no browser without a screen hides a tab


@pytest.mark.req("C4")
def test_the_link_of_the_command_logs_in_and_its_code_leaves_the_address_at_once(
    browser: Browser, mesh: Scene
) -> None:
    link = mesh.ada.link()
    code = link.partition("#")[2]
    with visiting(browser, mesh.ada) as visitor:
        asked: list[str] = []
        visitor.page.on("request", lambda request: asked.append(request.url))
        visitor.page.goto(link)
        expect(visitor.main.locator(".verdict-words")).to_be_visible()
        assert visitor.page.url == f"{mesh.ada.url}#/"
        assert visitor.page.evaluate("history.length") == 2
        assert not [url for url in asked if code in url]
        assert visitor.page.context.cookies() == []
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}])"
        assert visitor.page.evaluate(kept) == "[{},{}]"


@pytest.mark.req("C4")
def test_a_link_works_once(browser: Browser, mesh: Scene) -> None:
    code = mesh.ada.code()
    with visiting(browser, mesh.ada) as visitor:
        visitor.page.goto(f"{mesh.ada.url}#{code}")
        expect(visitor.main.locator(".verdict-words")).to_be_visible()
    with visiting(browser, mesh.ada) as second:
        second.page.goto(f"{mesh.ada.url}#{code}")
        expect(second.page.get_by_role("heading", name="This link does not work any more")).to_be_visible()
        expect(second.main).to_contain_text(COMMAND)


def test_a_reload_is_explained_and_a_pasted_link_goes_on_where_one_was(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "peers")
        visitor.page.reload()
        expect(visitor.page.get_by_role("heading", name="Not logged in")).to_be_visible()
        expect(visitor.main).to_contain_text("a reload ends it")
        expect(visitor.main).to_contain_text(COMMAND)
        visitor.page.get_by_label("Or paste the link here").fill(f"{mesh.ada.url}#{mesh.ada.code()}")
        visitor.page.keyboard.press("Enter")
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Peers")


def test_a_fresh_link_in_the_same_tab_logs_in_anew(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "peers")
        code = mesh.ada.code()
        with visitor.page.expect_response("**/v1/dashboard/login") as answered:
            visitor.page.evaluate("code => { location.hash = code }", code)
        assert answered.value.ok
        expect(visitor.main.locator(".verdict-words")).to_be_visible()
        assert code not in visitor.page.url


@pytest.mark.req("C4")
def test_logging_out_ends_the_login_at_the_daemon_too(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        bearers: set[str] = set()
        visitor.page.on("request", lambda one: bearers.add(one.headers.get("authorization", "")))
        visitor.enter(mesh.ada)
        visitor.page.get_by_role("button", name="Log out").click()
        expect(visitor.page.get_by_role("heading", name="Logged out")).to_be_visible()
        (bearer,) = bearers - {""}
        answer = visitor.page.request.get(
            f"{visitor.home}/v1/dashboard/overview", headers={"authorization": bearer}
        )
        assert answer.status == 401
        visitor.page.go_back()
        expect(visitor.page.locator(".verdict-words")).to_have_count(0)


@pytest.mark.req("C4")
def test_a_dropped_connection_is_told_with_since_when_and_mends_itself(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "peers")
        visitor.page.context.set_offline(True)
        visitor.page.keyboard.press("r")
        banner = visitor.page.locator(".banner")
        expect(banner).to_contain_text("Disconnected.")
        expect(banner).to_contain_text("What you see is from")
        expect(banner).to_contain_text(COMMAND)
        expect(visitor.row("bob")).to_be_visible()  # what was known stays to be read
        visitor.page.context.set_offline(False)
        expect(banner).to_be_hidden()
        expect(visitor.page.get_by_text("Connected again.")).to_be_attached()


def test_after_a_daemon_was_killed_and_started_again_a_fresh_link_is_asked_for(
    browser: Browser, mesh: Scene
) -> None:
    with visiting(browser, mesh.bob) as visitor:
        clock = visitor.page.clock
        clock.install()
        visitor.enter(mesh.bob, "peers")
        mesh.bob.stop(signal.SIGKILL)
        expect(visitor.page.locator(".banner")).to_contain_text("Disconnected.")
        mesh.bob.start()
        mesh.bob.ready()
        ended = visitor.page.get_by_role("heading", name="The login has ended")

        def has_tried_again() -> bool:
            clock.run_for(A_WHILE_MS)  # the longer it was away, the later the page would try by itself
            return ended.is_visible()

        visitor.until(has_tried_again)
        expect(visitor.main).to_contain_text(COMMAND)


def test_a_broker_that_is_away_is_told_and_what_the_daemon_knows_stays(browser: Browser, mesh: Scene) -> None:
    stage = mesh.stage
    with visiting(browser, mesh.eve) as visitor:
        visitor.enter(mesh.eve)
        stage.stop_broker()
        try:
            expect(visitor.main.locator(".needs")).to_contain_text("The broker is away")
            visitor.go("peers")
            expect(visitor.main).to_contain_text("nobody can say who is there")
            expect(visitor.row("bob")).to_contain_text("Unknown")
        finally:
            stage.start_broker()
            for member in (mesh.ada, mesh.bob, mesh.eve):
                member.ready()
        expect(visitor.row("bob")).to_contain_text("Now")


def look_away(visitor: Visitor) -> list[str]:
    """Have nobody look at it any more, and return what it asks for from then on."""
    with visitor.page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/events")):
        visitor.page.evaluate(LOOK_AWAY, "away")
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url.removeprefix(visitor.home)))
    return asked


def test_a_tab_that_nobody_looks_at_asks_for_nothing_but_to_stay_logged_in(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.page.clock.install()
        visitor.enter(mesh.ada)
        asked = look_away(visitor)
        visitor.page.clock.run_for(2 * STAYING_MS)
        visitor.until(lambda: len(asked) >= 2)
        assert asked == ["/v1/dashboard/overview"] * 2
        with visitor.page.expect_request("**/v1/events"), visitor.page.expect_request("**/v1/dashboard/overview"):
            visitor.page.evaluate(LOOK_AWAY, "back")


def test_what_happened_just_before_nobody_looked_is_not_looked_at_either(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.page.clock.install()
        visitor.never_poll()
        visitor.overhear()
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada)
        expect(visitor.main.locator(".health")).to_be_visible()
        visitor.pause()
        with visitor.told("just before"):
            mesh.bob.send("ada", "just before")
        asked = look_away(visitor)
        visitor.page.clock.run_for(A_WHILE_MS)
        with visitor.page.expect_request("**/v1/events"):
            visitor.page.evaluate(LOOK_AWAY, "back")
        assert asked.count("/v1/dashboard/overview") == 1  # since somebody looks again
