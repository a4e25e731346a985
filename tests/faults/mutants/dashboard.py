"""In the pages of the dashboard: how they are kept true, whatever happens at the daemon."""

from tests.requirements import Fault

_LOGIN = "tests/browser/test_dashboard_login.py"
_PAGES = "tests/browser/test_dashboard_pages.py"
_STREAM = "tests/browser/test_dashboard_stream.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="An event that nobody can take is asked for again, for ever.",
        file="dashboard/static/stream.js",
        old="    } finally {\n      this.#lastId = reader.lastId;",
        new="    } finally {\n      void 0;",
        test=f"{_STREAM}::test_an_event_that_cannot_be_taken_is_not_asked_for_again_and_its_stream_is_left",
    ),
    Fault(
        what="A stream that nobody reads any more keeps its connection.",
        file="dashboard/static/stream.js",
        old="      cut.abort(); //",
        new="      void 0; //",
        test=f"{_STREAM}::test_an_event_that_cannot_be_taken_is_not_asked_for_again_and_its_stream_is_left",
    ),
    Fault(
        what="A stream that breaks after each greeting is tried as often as one that was well.",
        file="dashboard/static/stream.js",
        old="if (events || !isGreeting) this",
        new="this",
        test=f"{_STREAM}::test_a_stream_that_breaks_after_its_greeting_is_tried_ever_more_seldom",
    ),
    Fault(
        what="A stream on which nothing happened was never well.",
        file="dashboard/static/stream.js",
        old="if (events || !isGreeting) this",
        new="if (events) this",
        test=f"{_STREAM}::test_a_stream_that_was_well_is_tried_again_at_once",
    ),
    Fault(
        what="What happened while a page was renewed is not looked at.",
        file="dashboard/static/view.js",
        old="    if (this.#isOld) this.soon();\n",
        new="",
        test=f"{_PAGES}::test_what_happens_while_a_page_is_renewed_does_not_keep_it_from_being_renewed",
    ),
    Fault(
        what="A page is renewed as often as something happens.",
        file="dashboard/static/view.js",
        old="Math.max(SOON_MS, this.#looked + APART_MS - performance.now())",
        new="SOON_MS",
        test=f"{_PAGES}::test_however_much_happens_a_page_is_renewed_once_a_second",
    ),
    Fault(
        what="A renewal closes what its reader opened.",
        file="dashboard/static/renew.js",
        old='DETAILS: ["open"]',
        new="DETAILS: []",
        test=f"{_PAGES}::test_focus_and_what_was_opened_outlive_a_renewal",
    ),
    Fault(
        what="A tab that was just hidden asks once more.",
        file="dashboard/static/view.js",
        old="    clearTimeout(this.#soon);\n",
        new="",
        test=f"{_LOGIN}::test_what_happened_just_before_nobody_looked_is_not_looked_at_either",
    ),
    Fault(
        what="Who comes back to a hidden tab is logged out.",
        file="dashboard/static/main.js",
        old="document.hidden && api.get",
        new="document.hidden || api.get",
        test=f"{_LOGIN}::test_a_tab_that_nobody_looks_at_asks_for_nothing_but_to_stay_logged_in",
    ),
)
