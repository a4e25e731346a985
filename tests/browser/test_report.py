"""The page of a report in a real browser, from disk, with nobody to ask: its plots are there, names stay names."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from claudemesh.pipeline.report.page import build_page
from tests.unit.pipeline.report_sample import HOSTILE, sample


@pytest.mark.req("S4")
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_a_report_is_shown_whole_from_disk(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(build_page(sample()), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())

    plots = page.locator("svg.plot")
    # Traffic, latency of two meshes, dead letters, members; who was there and time in grace of both, how sessions
    # ended, what an inbox was told of peers; lease expiries; what became of the writes of outages.
    assert plots.count() == 13
    for i in range(plots.count()):
        box = plots.nth(i).bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".verdict .mark").all_text_contents() == ["holds", "2 found"]
    assert page.locator("img, script").count() == 0
    assert page.get_by_text(HOSTILE[:20]).count() > 0
    # The style is in force, or nothing would have a colour.
    assert page.locator("rect.c0").first.evaluate("one => getComputedStyle(one).fill") != "rgb(0, 0, 0)"
    context.close()
    assert said == []
    assert asked == [file.as_uri()]
