"""In the pages of the dashboard: how they are kept true, whatever happens at the daemon."""

from tests.requirements import Fault

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
)
