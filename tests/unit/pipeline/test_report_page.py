"""The page of a report: whole in itself, with every text inert."""

import re
from html.parser import HTMLParser

import pytest

from claudemesh.pipeline.report import plots
from claudemesh.pipeline.report.markup import TEXT_MAX, el, printable, render
from claudemesh.pipeline.report.page import build_page
from tests.unit.pipeline.report_sample import DAY_MS, HOUR_MS, START_MS, sample


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


@pytest.mark.req("S4")
def test_a_page_asks_for_nothing_and_runs_nothing() -> None:
    page = Reader(build_page(sample()))
    assert not {"script", "img", "link", "iframe", "object", "image", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in {"src", "href", "style"}]
    policy = next(value for _, value in page.attributes if value.startswith("default-src"))
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[\w+/=]+'", policy)


@pytest.mark.req("S4")
def test_what_others_wrote_stays_text_without_controls() -> None:
    page = build_page(sample())
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;\\u202e\\u0000" in page
    assert "\u202e" not in page
    assert "\x00" not in page


def test_an_attribute_cannot_be_left_by_what_it_holds() -> None:
    assert Reader(render(el("p", "x", title='"><b onclick="1'))).tags == ["p"]


@pytest.mark.parametrize(
    ("text", "shown"), [("a\nb", "a\\u000ab"), ("✓ é", "✓ é"), ("x" * 999, "x" * TEXT_MAX + "…")]
)
def test_a_text_is_shown_by_its_printable_characters(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.req("S4")
def test_a_verdict_is_said_in_words_with_its_first_evidence() -> None:
    broken = build_page(sample(violations=2))
    assert "2 found" in broken
    assert "client_message_id" in broken
    assert "found" not in build_page(sample(violations=0))


@pytest.mark.req("S4")
def test_a_cut_that_is_without_open_transactions_says_so() -> None:
    assert "open transactions: 2, the oldest for 12 s" in build_page(sample())
    settled = sample()
    settled["sources"][0]["lag"] = {"open_transactions": 0.0, "oldest_s": 0.0}
    assert "transactions" not in build_page(settled)


def test_how_long_a_transaction_is_open_is_left_out_where_nobody_was_told() -> None:
    untold = sample()
    untold["sources"][0]["lag"] = {"open_transactions": 2.0}
    page = build_page(untold)
    assert "open transactions: 2<" in page
    assert "the oldest" not in page


def test_a_page_draws_what_a_store_has_whatever_its_kind() -> None:
    all_ = {name: value for source in sample()["sources"] for name, value in source.items()} | {"kind": "later"}
    page = build_page({**sample(), "sources": [all_]})
    titles = ["Totals", "Traffic", "Delivery latency: demo", "Dead letters", "Members seen", "Presence"]
    titles += ["Who was there: demo", "Time in grace: demo", "How sessions ended"]
    titles += ["Runs", "Lead times", "Lease expiries", "Outages", "Writes that waited", "Writes"]
    assert [title for title in titles if f"<h3>{title}</h3>" not in page] == []


def test_latency_beside_totals_says_that_it_is_of_more_than_these_count() -> None:
    assert "Also of messages that retention has deleted since." in build_page(sample())


def test_a_cut_without_anything_has_a_page_all_the_same() -> None:
    empty = sample(days=0)
    empty["sources"][0] |= {"traffic": [], "latency": [], "dead_letters": [], "members": [], "totals": {}}
    empty["sources"][0] |= {"presence": [], "endings": []}
    empty["sources"][2] |= {"runs": [], "lead_times": [], "requeued": [], "totals": {}}
    empty["sources"][3] |= {"outages": [], "envelopes": [], "totals": {}}
    assert build_page(empty).count("Nothing in this cut") == 13


def test_a_ledger_shows_all_runs_first_and_how_long_its_steps_took() -> None:
    page = build_page(sample())
    runs, times = (page.split(f"<h3>{title}</h3>")[1].split("</table>")[0] for title in ("Runs", "Lead times"))
    assert runs.index("<td>all</td>") < runs.index("&lt;img")
    assert all(f"<td>{said}</td>" in times for said in ("posted to claimed", "20 ms", "900 ms", "4 s", "1.5 min"))


@pytest.mark.req("S4")
def test_presence_is_drawn_by_day_and_added_up_over_all_days() -> None:
    page = build_page(sample())
    there, grace, ended = (
        page.split(f"<h3>{title}</h3>")[1].split("</figure>")[0]
        for title in ("Who was there: demo", "Time in grace: demo", "How sessions ended")
    )
    assert (
        "12 sessions began; a flap is a connection that was replaced: 15, 0.1 for each hour of a session." in there
    )
    assert there.count("<circle") == 3 * 3
    assert "2026-01-03  at once: 7" in there
    assert "21 of 24 ended in a return (88%)." in grace
    assert grace.count("<circle") == 3 * 2, "on the first day no grace was over"
    assert "not said: 3 sessions" in ended


def test_days_on_which_nothing_happened_divide_by_nothing() -> None:
    quiet = sample(days=1)
    quiet["sources"][0]["presence"][0] |= {"hours": 0.0}
    there = build_page(quiet).split("<h3>Who was there: demo</h3>")[1]
    assert "replaced: 5." in there.split("</figure>")[0]
    assert "None so far." in there


@pytest.mark.req("S4")
def test_an_outage_is_shown_with_what_waited_in_it_and_one_that_goes_on_with_what_is_known() -> None:
    page = build_page(sample())
    outages, waited = (
        page.split(f"<h3>{title}</h3>")[1].split("</table>")[0] for title in ("Outages", "Writes that waited")
    )
    head, over, goes_on = outages.split("<tr>")[1:]
    assert "<td>2026-01-01 01:00:00Z</td><td>2 h</td><td>15 s</td><td>3 h</td>" in over
    assert [int(part.split("<")[0]) for part in over.split('<td class="n">')[1:]] == [40, 1, 30, 2, 3, 1, 3, 7]
    assert "<td>1 h</td><td></td><td></td>" in goes_on
    assert head.count("<th") == over.count("<td") == goes_on.count("<td")
    assert [
        int(part.split("<")[0]) for part in waited.split("<td>append</td>")[1].split('<td class="n">')[1:7]
    ] == [
        10,
        0,
        0,
        0,
        10,
        10,
    ]


def test_of_many_outages_the_latest_are_shown_and_of_many_kinds_the_most_frequent() -> None:
    many = sample()
    many["sources"][3]["outages"] *= 11
    page = build_page(many)
    assert "The latest 20 of 22." in page
    writes = page.split("<h3>Writes</h3>")[1].split("</figure>")[0]
    assert "others: 3 writes" in writes
    assert "tasks: 5 writes" in writes
    assert 'class="c4"' in writes
    assert 'class="c5"' not in writes


def test_of_many_runs_the_largest_are_shown_and_how_many_there_are() -> None:
    many = sample()
    total, one = many["sources"][2]["runs"]
    many["sources"][2]["runs"] = [total, *({**one, "run_id": f"run {i:03}"} for i in range(30))]
    page = build_page(many)
    assert "The 20 largest of 30." in page
    assert "run 019" in page
    assert "run 020" not in page


# --- plots -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "step_hours"), [(1, 1), (120, 1), (121, 2), (720, 6), (24 * 120, 24), (24 * 365 * 30, 24 * 92)]
)
def test_a_bar_is_as_many_hours_as_keep_the_bars_few(hours: int, step_hours: int) -> None:
    assert plots.choose_step(START_MS, START_MS + (hours - 1) * HOUR_MS) == step_hours * HOUR_MS


def test_bars_show_every_message_once_however_long_a_bar_is() -> None:
    points = {START_MS + hour * HOUR_MS: 1 for hour in range(500)}
    drawn = plots.bars({"dm": points}, "messages")
    titles = [title.text or "" for title in drawn.iter("title")]
    assert sum(int(title.split(": ")[1].split()[0]) for title in titles) == 500
    assert len(titles) <= plots.BARS_MAX + 1


def test_shapes_stay_inside_their_plot() -> None:
    series = {
        "a": {START_MS + day * DAY_MS: 10.0**day for day in range(6)},
        "b": {START_MS + day * DAY_MS: 0.5 for day in range(6)},
    }
    for drawn in (plots.lines(series, plots.say_ms), plots.bars(series, "x")):
        shapes = [shape.attrib for shape in drawn.iter() if shape.tag in {"rect", "circle"}]
        assert shapes
        for shape in shapes:
            y = float(shape.get("cy") or shape["y"])
            assert plots.TOP - 0.1 <= y <= plots.HEIGHT - plots.BOTTOM + 0.1
            assert plots.LEFT <= float(shape.get("cx") or shape["x"]) <= plots.WIDTH


def test_values_that_differ_much_stand_at_equal_factors() -> None:
    drawn = plots.lines(
        {"a": {START_MS: 10.0, START_MS + DAY_MS: 100.0, START_MS + 2 * DAY_MS: 1000.0}}, plots.say_ms
    )
    low, middle, high = (float(dot.attrib["cy"]) for dot in drawn.iter("circle"))
    assert low - middle == pytest.approx(middle - high, abs=0.2)


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0 ms"), (250, "250 ms"), (1500, "1.5 s"), (90_000, "1.5 min"), (DAY_MS, "1 d")]
)
def test_a_duration_is_said_in_the_unit_that_suits_it(value: int, said: str) -> None:
    assert plots.say_ms(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (999, "999"), (4604, "4604"), (31_000, "31k"), (2.5e6, "2.5M")]
)
def test_a_number_is_said_short(value: float, said: str) -> None:
    assert plots.say_number(value) == said
