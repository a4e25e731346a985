"""What an operator decides in the dashboard: each confirmed, each once, and each with its outcome told."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.browser.scene import Relayed, Scene
from tests.browser.visitor import Visitor, refuse, visiting

REQUEUE = "**/v1/dashboard/outbox/requeue"
DROP = "**/v1/dashboard/outbox/drop"


def letter(visitor: Visitor, sent: str) -> Locator:
    return visitor.main.locator("tbody tr").filter(has=visitor.page.locator(f"code[title='{sent}']"))


def successors(mesh: Scene, sent: str) -> list[str]:
    """Return the rows that took the place of a message, by its id."""
    rows = mesh.ada.client.request("GET", "/v1/outbox", query={"limit": 1000})[1]["rows"]
    (row,) = [one for one in rows if one["client_message_id"] == sent]
    return [one["id"] for one in rows if one["id"] == row["superseded_by"]]


@pytest.mark.req("C4")
def test_a_dead_letter_is_requeued_once_however_often_it_is_pressed(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    asked: list[dict[str, object]] = []
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        visitor.page.on("request", lambda one: asked.append(one.post_data_json) if "requeue" in one.url else None)
        letter(visitor, sent).get_by_role("button", name="Requeue").click()
        expect(visitor.dialog).to_contain_text("The message goes out again, as it is, under a fresh id.")
        expect(visitor.dialog).to_contain_text("#nowhere")
        visitor.dialog.get_by_role("button", name="Requeue", exact=True).dblclick()
        expect(visitor.dialog).to_contain_text("Done. It is queued again under")
        visitor.dialog.get_by_role("button", name="Close").click()
        expect(letter(visitor, sent)).to_have_count(0)
    assert len(asked) == 1
    assert len(successors(mesh, sent)) == 1
    assert mesh.ada.client.outbox_inspect(str(asked[0]["key"]))["ancestors"]  # the key is the fresh message's id


@pytest.mark.req("C4")
def test_an_answer_that_was_lost_is_asked_for_again_under_the_same_key(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    keys: list[str] = []

    def lose(route: Route) -> None:
        keys.append(route.request.post_data_json["key"])
        if len(keys) == 1:
            route.fetch()  # it happens, and nobody hears of it
            route.abort()
        else:
            route.continue_()

    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        visitor.page.route(REQUEUE, lose)
        letter(visitor, sent).get_by_role("button", name="Requeue").click()
        visitor.dialog.get_by_role("button", name="Requeue", exact=True).click()
        expect(visitor.dialog).to_contain_text("nobody knows whether it happened")
        visitor.dialog.get_by_role("button", name="Try again").click()
        expect(visitor.dialog).to_contain_text("This was done before, under the same key; it was not done again.")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert len(successors(mesh, sent)) == 1


def test_the_key_of_an_unknown_outcome_outlives_its_dialog(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    keys: list[str] = []

    def lose(route: Route) -> None:
        keys.append(route.request.post_data_json["key"])
        route.abort()

    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        visitor.page.route(DROP, lose)
        for _ in range(2):
            letter(visitor, sent).get_by_role("button", name="Drop").click()
            visitor.dialog.get_by_role("button", name="Drop", exact=True).click()
            expect(visitor.dialog).to_contain_text("nobody knows")
            visitor.dialog.get_by_role("button", name="Cancel").click()
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_dead_letter_is_dropped_for_good(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        letter(visitor, sent).get_by_role("button", name="Drop").click()
        expect(visitor.dialog).to_contain_text("This cannot be undone.")
        visitor.dialog.get_by_role("button", name="Drop", exact=True).click()
        expect(visitor.dialog).to_contain_text("Done. The row is given up.")
        visitor.dialog.get_by_role("button", name="Close").click()
        expect(letter(visitor, sent)).to_have_count(0)
    assert mesh.ada.client.outbox_inspect(sent)["row"]["status"] == "aborted"
    assert successors(mesh, sent) == []


def test_nothing_is_done_before_it_is_confirmed(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        for way in ("Cancel", "Escape"):
            letter(visitor, sent).get_by_role("button", name="Drop").click()
            if way == "Cancel":
                visitor.dialog.get_by_role("button", name=way).click()
            else:
                visitor.page.keyboard.press(way)
            expect(visitor.dialog).to_have_count(0)
        expect(letter(visitor, sent)).to_be_visible()
    assert mesh.ada.client.outbox_inspect(sent)["row"]["status"] == "dead"


def test_what_somebody_else_decided_meanwhile_is_told_with_its_code(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        letter(visitor, sent).get_by_role("button", name="Requeue").click()
        mesh.ada.client.outbox_drop(mesh.ada.client.outbox_inspect(sent)["row"]["id"])
        visitor.dialog.get_by_role("button", name="Requeue", exact=True).click()
        expect(visitor.dialog).to_contain_text("Refused: transition_refused.")
        expect(visitor.dialog).to_contain_text("Close, and look at what it is now.")
    assert successors(mesh, sent) == []


def test_force_is_offered_only_when_nobody_can_say_and_says_what_it_risks(browser: Browser, mesh: Scene) -> None:
    sent = mesh.ada.dead_letter()
    bodies: list[dict[str, object]] = []
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "dead")
        visitor.page.on("request", lambda one: bodies.append(one.post_data_json) if "requeue" in one.url else None)
        visitor.page.route(REQUEUE, refuse(503, "broker_unreachable", "only the broker knows whether it arrived"))
        letter(visitor, sent).get_by_role("button", name="Requeue").click()
        expect(visitor.dialog.get_by_role("button", name="Requeue by force")).to_have_count(0)
        visitor.dialog.get_by_role("button", name="Requeue", exact=True).click()
        expect(visitor.dialog).to_contain_text("its reader may get it twice")
        visitor.page.unroute(REQUEUE)
        visitor.dialog.get_by_role("button", name="Requeue by force").click()
        expect(visitor.dialog).to_contain_text("Done.")
    assert [body["force"] for body in bodies] == [False, True]
    assert bodies[0]["key"] != bodies[1]["key"]  # another intent


# --- conflicts -------------------------------------------------------------------------------------------


@pytest.mark.req("C4")
def test_a_conflict_shows_both_values_and_marks_where_they_differ(
    browser: Browser, mesh: Scene, relayed: Relayed
) -> None:
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "relay")
        visitor.row(relayed.tasks["shown"]).get_by_role("link").click()
        sides = visitor.main.locator("table.sides")
        differing = sides.locator("tr.differs")
        expect(differing.locator("th")).to_have_text("status differs")
        expect(differing.locator("td pre")).to_have_text(["done", "blocked"])
        expect(sides.locator("tr.untouched").filter(has_text="title")).to_contain_text("shown")


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("title", "choice", "warning", "state", "status"),
    [
        ("for mine", "Keep mine", "nothing newer is overwritten", "acked", "done"),
        ("for theirs", "Keep theirs", "This cannot be undone", "cancelled", "blocked"),
    ],
)
def test_a_conflict_is_decided_either_way(  # noqa: PLR0913, PLR0917  a case
    browser: Browser, mesh: Scene, relayed: Relayed, title: str, choice: str, warning: str, state: str, status: str
) -> None:
    task = relayed.tasks[title]
    with visiting(browser, mesh.ada) as visitor:
        visitor.enter(mesh.ada, "relay")
        visitor.row(task).get_by_role("link").click()
        visitor.main.get_by_role("button", name=choice).click()
        expect(visitor.dialog).to_contain_text(warning)
        expect(visitor.dialog).to_contain_text(f"PATCH /tasks/{task}")
        visitor.dialog.get_by_role("button", name=choice).click()
        expect(visitor.dialog).to_contain_text("Done.")
        visitor.dialog.get_by_role("button", name="Close").click()
        detail = visitor.main.get_by_role("region", name="One write")
        expect(detail.locator(".head .state")).to_have_text(re.compile(state))
        expect(visitor.row(task)).to_have_count(0)  # of what is in conflict
    assert relayed.relay.ask("GET", f"/tasks/{task}").json["status"] == status
