"""Whatever others wrote is a text in the dashboard: nothing runs, nothing is asked for, nothing is reordered."""

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.scene import ALL_OF_IT, HOSTILE, MEGABYTE, Relayed, Scene
from tests.browser.visitor import Visitor, visiting

if TYPE_CHECKING:
    from tests.browser.conftest import WayOut

HOSTILE_ID = "<img/src=x/onerror=alert(7)>"  # an id may be any visible ASCII
MARKS = "\u202e\u2066\u200b\u0007\U000e0157\u2028\u2029"


def check_inert(visitor: Visitor) -> None:
    page = visitor.page
    assert page.locator("img, script:not([src^='/ui/']), iframe, object, embed, b, svg a").count() == 0
    assert page.locator("a:not([href^='#'])").count() == 0
    assert page.locator("[onerror], [onload], [onclick], [style]").count() == 0
    text = page.evaluate("document.body.textContent")
    assert not set(MARKS) & set(text)


@pytest.mark.req("C4")
def test_what_others_wrote_is_shown_as_it_is_and_does_nothing(
    browser: Browser, mesh: Scene, way_out: "WayOut"
) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada)
        for place, text in {
            "peers": HOSTILE[0],
            "work": HOSTILE[1],
            "pipeline": HOSTILE[0],
            "trace?id=%3Cimg%20src%3Dx%20onerror%3Dalert(8)%3E": "<img src=x onerror=alert(8)>",
            "trace?id=%3Cimg%2Fsrc%3Dx%3E": "<img/src=x>",
        }.items():
            visitor.go(place)
            expect(visitor.main).to_contain_text(text)
            check_inert(visitor)
    assert [one for one in way_out.requests if "elsewhere" in one] == []


@pytest.mark.req("C4")
def test_a_hostile_message_that_comes_while_one_looks_leaves_the_page_alive(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.never_poll()
        streams: list[str] = []
        visitor.page.on("request", lambda one: streams.append(one.url) if one.url.endswith("/v1/events") else None)
        with visitor.page.expect_response("**/v1/events"):
            visitor.enter(mesh.ada)
        health = visitor.main.locator(".health")
        expect(health).to_contain_text(" unread ")
        for message in (*HOSTILE, ALL_OF_IT, "and one that is not"):
            unread = mesh.ada.receive(mesh.bob, message)
            expect(health).to_contain_text(f" {unread} unread ")
        check_inert(visitor)
        assert len(streams) == 1


def test_an_id_that_would_like_to_be_markup_is_one_to_copy(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.send("bob", ALL_OF_IT, client_message_id=HOSTILE_ID)
    assert sent["client_message_id"] == HOSTILE_ID
    with visiting(browser, mesh.ada, permissions=["clipboard-read", "clipboard-write"]) as visitor:
        visitor.enter(mesh.ada, "outbox")
        row = visitor.row("<img/s…rt(7)>")
        row.get_by_role("button", name="Copy").click()
        expect(row.locator("[data-outcome=copied]")).to_be_visible()
        assert visitor.page.evaluate("navigator.clipboard.readText()") == HOSTILE_ID
        check_inert(visitor)


@pytest.mark.req("C4")
def test_both_values_of_a_conflict_are_texts(browser: Browser, mesh: Scene, relayed: Relayed) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "relay")
        visitor.row(relayed.tasks[ALL_OF_IT]).get_by_role("link").click()
        sides = visitor.main.locator("table.sides")
        for one in HOSTILE[:-1]:
            expect(sides).to_contain_text(one)
        expect(sides).to_contain_text("\\u202eevil\\u2066\\u200b\\u0007\\ue0157\\u2028\\u2029")  # made visible
        check_inert(visitor)


def test_a_megabyte_is_shown_in_part_and_whole_on_request(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "work")
        visitor.row("step 2").filter(has_text=HOSTILE[0]).get_by_role("link").click()
        shown = visitor.main.locator(".value pre")
        expect(shown).to_be_visible()
        assert len(str(shown.text_content())) < 20_000
        visitor.main.get_by_role("button", name="Show all of it").click()
        expect(visitor.main.get_by_role("button", name="Show all of it")).to_have_count(0)
        assert len(str(shown.text_content())) >= len(MEGABYTE)
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1280
        check_inert(visitor)


def test_a_link_from_elsewhere_decides_nothing_and_shows_nothing(browser: Browser, mesh: Scene) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.page.goto(f"{mesh.ada.url}#<img src=x onerror=alert(1)>")
        expect(visitor.page.get_by_role("heading", name="This link does not work any more")).to_be_visible()
        check_inert(visitor)
        visitor.page.goto("about:blank")
        visitor.page.goto(f"{mesh.ada.url}#/dead?before=<svg/onload=alert(1)>")
        expect(visitor.page.get_by_role("heading", name="Not logged in")).to_be_visible()


def test_no_page_of_another_origin_can_frame_or_read_it(browser: Browser, mesh: Scene) -> None:
    answer = visiting_headers(browser, mesh)
    policy = answer["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert rule in policy
    assert "unsafe" not in policy


def visiting_headers(browser: Browser, mesh: Scene) -> dict[str, str]:
    context = browser.new_context()
    try:
        return context.request.get(mesh.ada.url).headers
    finally:
        context.close()
