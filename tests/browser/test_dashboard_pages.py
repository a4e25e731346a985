"""What each page of the dashboard shows, to anybody: on a narrow screen, in the dark, by keyboard alone."""

import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.scene import Relayed, Scene
from tests.browser.visitor import TITLES, refuse, visiting

TABS_MAX = 400
APART_MS = 1_000  # between two looks that events give reason for
ODD = 471  # messages: so many there never are


@pytest.mark.req("C4")
@pytest.mark.usefixtures("relayed")
def test_the_overview_says_what_needs_a_human_and_leads_there(browser: Browser, mesh: Scene) -> None:
    mesh.ada.dead_letter()
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        main = visitor.main
        expect(main.locator(".verdict-words")).to_have_text("Somebody is needed")
        needs = main.locator(".needs li")
        expect(needs.filter(has_text="dead letter")).to_be_visible()
        expect(needs.filter(has_text="A verdict of the pipeline does not hold")).to_be_visible()
        expect(visitor.page.locator("header")).to_contain_text("broker connected")
        needs.filter(has_text=re.compile(r"^\d+ conflicts?")).get_by_role("link", name="Decide").click()
        expect(main.get_by_role("heading", level=1)).to_have_text("Relay & conflicts")


@pytest.mark.req("C4")
def test_an_upstream_that_refuses_the_relay_needs_a_human(browser: Browser, mesh: Scene) -> None:
    def refused(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["relay"] |= {"state": "running", "upstream_reachable": True, "concerns": ["refused"]}
        route.fulfill(response=answer, json=told)

    with visiting(browser, mesh.ada) as visitor:
        visitor.page.route("**/v1/dashboard/overview", refused)
        visitor.enter(mesh.ada)
        need = visitor.main.locator(".needs li").filter(has_text="The upstream refuses the relay")
        need.get_by_role("link", name="What waits").click()
        expect(visitor.main.locator(".head .state")).to_have_text("upstream refuses the relay")


def test_peers_are_shown_with_what_becomes_of_a_message_sent_now(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "peers")
        expect(visitor.row("bob")).to_contain_text("Now")
        expect(visitor.row("bob")).to_contain_text("left")
        expect(visitor.row("dana")).to_contain_text("It waits")
        expect(visitor.row("(you)")).to_contain_text("ada")


def test_traffic_is_drawn_read_out_and_a_table_too(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "traffic")
        chart = visitor.main.locator("figure").filter(has_text="Messages per minute")
        plot = chart.get_by_role("slider")
        expect(plot.locator("polyline").first).to_be_visible()
        plot.focus()
        plot.press("Home")
        first = plot.get_attribute("aria-valuetext")
        expect(chart.locator(".readout")).to_have_text(str(first))
        plot.press("End")
        expect(plot).to_have_attribute("aria-valuenow", "59")
        plot.press("ArrowLeft")
        expect(plot).to_have_attribute("aria-valuenow", "58")
        box = plot.bounding_box()
        assert box is not None
        visitor.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(plot).to_have_attribute("aria-valuenow", re.compile("^(28|29|30)$"))
        chart.get_by_text("As a table").click()
        expect(chart.get_by_role("columnheader")).to_have_text(["Time", "sent", "accepted", "received", "dead"])
        visitor.main.get_by_role("link", name="Last week").click()
        expect(visitor.main.get_by_role("heading", name="Messages per two hours")).to_be_visible()


def test_an_outbox_row_is_inspected_with_its_chain(browser: Browser, mesh: Scene) -> None:
    dead = mesh.ada.dead_letter()
    row = mesh.ada.client.outbox_inspect(dead)["row"]["id"]
    successor = mesh.ada.client.outbox_requeue(row)
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, f"outbox?id={successor['superseded_by']}")
        detail = visitor.main.get_by_role("region", name="One row")
        expect(detail.locator(".chain li")).to_have_count(2)
        detail.locator(".chain a").click()
        expect(detail.locator(f"code[title='{dead}']")).to_be_visible()
        expect(detail.locator(".state")).to_have_text("aborted")
        detail.get_by_role("link", name="Trace it").click()
        expect(visitor.main).to_contain_text("superseded by row")


def test_the_outbox_is_paged_and_filtered(browser: Browser, mesh: Scene) -> None:
    sends = [{"to": "bob", "message": f"page {i}", "client_message_id": f"page-{i}"} for i in range(60)]
    mesh.ada.client.request("POST", "/v1/send/batch", {"sends": sends})
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "outbox")
        rows = visitor.main.locator("tbody tr")
        expect(rows).to_have_count(50)
        visitor.main.get_by_role("link", name="Next page").click()
        expect(rows.filter(has_text="page-0")).to_be_visible()
        visitor.page.go_back()
        expect(rows).to_have_count(50)
        mesh.ada.dead_letter()
        visitor.main.get_by_role("link", name="Dead", exact=True).click()
        expect(rows.first).to_contain_text("dead")
        expect(rows.filter(has_text="done")).to_have_count(0)


def test_work_shows_queues_steps_their_holder_and_token(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "work")
        expect(visitor.row("builds").locator("td.n").first).to_have_text("1")
        held = visitor.row("worker-2")
        expect(held).to_contain_text("leased")
        expect(held).to_contain_text(re.compile(r"in \d+ (min|h)"))  # its lease ends
        expect(held.locator("td.n")).to_have_text("1")
        visitor.main.get_by_role("link", name="Committed").click()
        expect(visitor.row("release 1.4")).to_have_count(1)
        visitor.row("release 1.4").get_by_role("link").click()
        detail = visitor.main.get_by_role("region", name="One step")
        expect(detail).to_contain_text("success by worker-1")
        expect(detail).to_contain_text("claudemesh-1.4.whl")


def test_a_trace_is_a_timeline_with_evidence_and_times(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "trace")
        visitor.page.get_by_label("Id of a message").fill("question")
        visitor.page.keyboard.press("Enter")
        steps = visitor.main.locator(".timeline li")
        expect(steps.locator(".state")).to_have_text(["queued", "accepted", "delivered", "read", "acted"])
        expect(steps.nth(2)).to_contain_text("bob's inbox acknowledged it")
        expect(steps.nth(4)).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
        expect(visitor.main.locator(".stages .reached")).to_have_count(5)
        visitor.go("trace?id=nobody-sent-this")
        expect(visitor.main.get_by_text("No message with the id nobody-sent-this")).to_be_visible()


def test_the_pipeline_shows_verdicts_and_plots_of_the_latest_report(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "pipeline")
        verdicts = visitor.main.locator(".verdict")
        expect(verdicts.locator(".state")).to_have_text(["holds", "2 found"])
        expect(visitor.main.locator("figure .plot svg").first).to_be_visible()
        assert visitor.main.locator("figure").count() >= 6


@pytest.mark.req("C4")
def test_a_message_shows_by_itself_when_it_comes(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.never_poll()
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada)
        health = visitor.main.locator(".health")
        expect(health).to_contain_text(" unread ")
        unread = mesh.ada.receive(mesh.bob, "are you there?")
        expect(health).to_contain_text(f" {unread} unread ")


@pytest.mark.req("C4")
def test_what_happens_while_a_page_is_renewed_does_not_keep_it_from_being_renewed(
    browser: Browser, mesh: Scene
) -> None:
    held: list[Route] = []
    with visiting(browser, mesh.ada) as visitor:
        clock = visitor.page.clock
        clock.install()
        visitor.never_poll()
        visitor.overhear()
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada)
        health = visitor.main.locator(".health")
        expect(health).to_contain_text(" unread ")
        old = mesh.ada.client.request("GET", "/v1/dashboard/overview")[1]
        visitor.page.route("**/v1/dashboard/overview", lambda route: held.append(route))  # noqa: PLW0108  Playwright marks it
        visitor.page.keyboard.press("r")
        visitor.until(lambda: held)
        for message in ("meanwhile this", "meanwhile that"):
            with visitor.told(message):
                unread = mesh.ada.receive(mesh.bob, message)
            clock.run_for(APART_MS)
        held[0].fulfill(json={**old, "unread": ODD})
        expect(health).to_contain_text(f" {ODD} unread ")
        visitor.until(lambda: len(held) > 1)  # what happened meanwhile is looked at once more
        held[1].continue_()
        expect(health).to_contain_text(f" {unread} unread ")


def test_however_much_happens_a_page_is_renewed_once_a_second(browser: Browser, mesh: Scene) -> None:
    seconds, in_each = 3, 5
    with visiting(browser, mesh.ada) as visitor:
        clock = visitor.page.clock
        clock.install()
        visitor.never_poll()
        visitor.overhear()
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada)
        health = visitor.main.locator(".health")
        expect(health).to_contain_text(" unread ")
        visitor.pause()
        asked: list[str] = []
        visitor.page.on("request", lambda one: asked.append(one.url) if one.url.endswith("overview") else None)
        for number in range(seconds * in_each):
            with visitor.told(f"again, {number}."):
                unread = mesh.ada.receive(mesh.bob, f"again, {number}.")
            clock.run_for(APART_MS // in_each)
        visitor.page.keyboard.press("r")  # as its reader wants it, and not counted
        expect(health).to_contain_text(f" {unread} unread ")
        assert 0 < len(asked) - 1 <= seconds + 1  # also of something else that happens


# --- nothing there, not yet there, not to be had ---------------------------------------------------------


def test_a_page_with_nothing_on_it_says_what_to_do(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.eve) as visitor:
        visitor.enter(mesh.eve)
        for place, words in {
            "outbox": "claudemesh send NAME hello",
            "dead": "No dead letters.",
            "relay": "statehub-edge --upstream URL",
            "work": "claudemesh ledger post",
            "pipeline": "claudemesh pipeline report",
            "traffic": "Nothing in this span.",
        }.items():
            visitor.go(place)
            expect(visitor.main.locator(".empty").filter(has_text=words)).to_be_visible()


def test_a_page_that_is_slow_says_that_it_is_loading(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        held: list[Route] = []
        of_no_other_page = "**/v1/dashboard/outbox?**"
        visitor.page.route(of_no_other_page, lambda route: held.append(route))  # noqa: PLW0108  Playwright marks it
        visitor.page.evaluate("location.hash = '#/outbox'")
        expect(visitor.main.get_by_text("Loading…")).to_be_attached()
        assert visitor.main.get_attribute("aria-busy") == "true"
        visitor.until(lambda: held)
        (route,) = held
        route.continue_()
        visitor.page.unroute(of_no_other_page)
        expect(visitor.main.locator("tbody tr").first).to_be_visible()
        assert visitor.main.get_attribute("aria-busy") is None


def test_a_page_that_is_refused_says_what_failed_and_tries_again(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        visitor.page.route("**/v1/dashboard/traffic?**", refuse(503, "store_unavailable", "the disk is busy"))
        visitor.page.evaluate("location.hash = '#/traffic'")
        alert = visitor.main.get_by_role("alert")
        expect(alert).to_contain_text("the disk is busy (store_unavailable)")
        visitor.page.unroute("**/v1/dashboard/traffic?**")
        alert.get_by_role("button", name="Try again").click()
        expect(visitor.main.locator("figure").first).to_be_visible()


# --- for anybody -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (400, "dark"), (1280, "dark")])
def test_every_page_fits_its_screen_in_both_schemes(
    browser: Browser, mesh: Scene, relayed: Relayed, width: int, scheme: str
) -> None:
    viewport = {"width": width, "height": 800}
    with visiting(browser, mesh.ada, viewport=viewport, color_scheme=scheme) as visitor:
        visitor.enter(mesh.ada)
        envelope = relayed.relay.run("outbox", "list", "--state", "conflict", "--json").json["items"][0]["id"]
        for place in (*TITLES, "trace?id=question", "outbox?id=question", f"relay?state=all&id={envelope}"):
            visitor.go(place)
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width, place
        ground = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", ground))) / 3
        assert (lightness < 60) == (scheme == "dark")


def test_a_narrow_screen_has_its_pages_behind_a_button(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada, viewport={"width": 360, "height": 740}) as visitor:
        visitor.enter(mesh.ada)
        peers = visitor.page.get_by_role("link", name="Peers", exact=True)
        expect(peers).to_be_hidden()
        visitor.page.get_by_role("button", name="Menu").click()
        peers.click()
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Peers")
        expect(peers).to_be_hidden()


def test_everything_is_done_by_keyboard_alone(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        press = visitor.page.keyboard.press
        press("?")
        expect(visitor.dialog).to_contain_text("Trace a message by its id")
        press("Escape")
        expect(visitor.dialog).to_have_count(0)
        press("5")
        expect(visitor.main.get_by_role("heading", level=1)).to_be_focused()
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Dead letters")
        drop = visitor.main.get_by_role("button", name=re.compile(f"^Drop .*{sent}"))
        for _ in range(TABS_MAX):
            press("Tab")
            if drop.evaluate("one => one === document.activeElement"):
                break
        assert drop.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
        press("Enter")
        expect(visitor.dialog.get_by_role("button", name="Cancel")).to_be_focused()
        press("Enter")  # decides nothing: the focus is not on what does
        expect(visitor.dialog).to_have_count(0)
        press("/")
        expect(visitor.page.get_by_label("Id of a message")).to_be_focused()
        press("1")  # a digit of an id, and not the first page
        expect(visitor.page.get_by_label("Id of a message")).to_have_value("1")
        press("Escape")
        press("2")
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Peers")
        press("8")
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Trace")
        press("2")  # whoever came by a key goes on by a key
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Peers")


def test_shortcuts_can_be_switched_off(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        visitor.page.keyboard.press("?")
        visitor.dialog.get_by_label("Switch single keys off").check()
        visitor.dialog.get_by_role("button", name="Close").click()
        visitor.page.keyboard.press("2")
        visitor.page.keyboard.press("?")
        expect(visitor.dialog).to_be_visible()
        expect(visitor.main.get_by_role("heading", level=1)).to_have_text("Overview")


def test_a_page_has_landmarks_headers_and_names(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        page = visitor.page
        for place in TITLES:
            visitor.go(place)
            assert page.get_by_role("main").count() == 1
            assert page.get_by_role("banner").count() == 1
            assert page.get_by_role("navigation", name="Pages", exact=True).count() == 1
            assert page.locator("h1").count() == 1
            assert page.title() == f"{TITLES[place]} · claudemesh"
            assert page.locator("nav [aria-current=page]").count() == 1
            unnamed = "all => all.filter(one => !(one.ariaLabel || one.textContent.trim())).length"
            assert page.get_by_role("button").evaluate_all(unnamed) == 0
            assert page.get_by_role("link").evaluate_all(unnamed) == 0
            assert page.locator("table:not(:has(caption)), th:not([scope])").count() == 0


def test_focus_and_what_was_opened_outlive_a_renewal(browser: Browser, mesh: Scene) -> None:
    def received(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["buckets"][-1]["received"] = ODD  # so that it is seen when it is there: a daemon counts now and then
        route.fulfill(response=answer, json=told)

    with visiting(browser, mesh.ada) as visitor:
        visitor.never_poll()
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada, "traffic")
        table = visitor.main.locator("figure details").first
        table.locator("summary").click()
        plot = visitor.main.get_by_role("slider").first
        plot.focus()
        with visitor.page.expect_response("**/v1/dashboard/traffic?**"):
            visitor.page.keyboard.press("r")
        visitor.page.route("**/v1/dashboard/traffic?**", received)
        mesh.ada.receive(mesh.bob, "once more")
        expect(table).to_contain_text(str(ODD))
        expect(plot).to_be_focused()
        assert table.evaluate("one => one.open")
