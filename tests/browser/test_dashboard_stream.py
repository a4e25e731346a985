"""What the page makes of the daemon's event stream: its own module in a real browser, and streams of the test's."""

from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.scene import HOSTILE, Scene
from tests.browser.visitor import visiting

FIRST_MS = 500  # before the second try at most
TRIES = 4
# Streams as a daemon gives them: each begins with a greeting, then come the pieces that are wanted. Times between
# two of them are noted, and not waited for; one that is not to `end` stays open, as it does while nothing happens.
FOLLOW = """async ({ streams, poison, end }) => {
  const { Stream } = await import("/ui/stream.js");
  const found = { asked: [], waits: [], told: [], left: 0 };
  const later = window.setTimeout;
  // What is as long as this is for a stream that says nothing any more.
  window.setTimeout = (call, ms) => (ms < 40_000 ? (found.waits.push(ms), later(call, 0)) : null);
  const bytes = new TextEncoder();
  await new Promise((enough) => {
    const open = (lastId, signal) => {
      found.asked.push(lastId);
      const pieces = streams[found.asked.length - 1];
      if (pieces === undefined) return (enough(), new Promise(() => {}));
      signal.addEventListener("abort", () => { found.left += 1; });
      const start = (body) => {
        for (const piece of ["id: e.0\\n: here you are\\n\\n", ...pieces]) body.enqueue(bytes.encode(piece));
        if (end) body.close();
      };
      return new Response(new ReadableStream({ start }));
    };
    const event = ({ data }) => {
      found.told.push(data);
      if (data === poison) throw new Error("nobody can take this");
    };
    new Stream(open, { event, state() {}, anew() {} }).run();
  });
  return found;
}"""


def follow(browser: Browser, mesh: Scene, streams: list[list[str]], poison: str = "", *, end: bool = False) -> Any:  # noqa: ANN401  what was found
    with visiting(browser, mesh.ada) as visitor:
        visitor.page.goto(mesh.ada.url)
        return visitor.page.evaluate(FOLLOW, {"streams": streams, "poison": poison, "end": end})


def event(number: int, data: str) -> str:
    return f"id: e.{number}\nevent: message\ndata: {data}\n\n"


def test_whatever_stands_in_an_event_is_read_as_it_was_sent(browser: Browser, mesh: Scene) -> None:
    texts = [*HOSTILE, "a\rb", ": : x", "\u0085\u000b\u000c"]
    found = follow(browser, mesh, [[event(number, text) for number, text in enumerate(texts)]], end=True)
    assert found["told"] == texts
    assert found["asked"] == [None, f"e.{len(texts) - 1}"]


def test_an_event_that_cannot_be_taken_is_not_asked_for_again_and_its_stream_is_left(
    browser: Browser, mesh: Scene
) -> None:
    found = follow(browser, mesh, [[event(1, "poison"), event(2, "never seen")]], "poison")
    assert found["told"] == ["poison"]
    assert found["asked"] == [None, "e.1"]
    assert found["left"] == 1


def test_a_stream_that_breaks_after_its_greeting_is_tried_ever_more_seldom(browser: Browser, mesh: Scene) -> None:
    waits = follow(browser, mesh, [[]] * TRIES, end=True)["waits"]
    assert len(waits) == TRIES
    assert waits[-1] >= FIRST_MS * 2 ** (TRIES - 2)


@pytest.mark.parametrize("piece", [": still here\n\n", event(1, "{}")])
def test_a_stream_that_was_well_is_tried_again_at_once(browser: Browser, mesh: Scene, piece: str) -> None:
    waits = follow(browser, mesh, [[], [], [], [piece]], end=True)["waits"]
    assert waits[-1] <= FIRST_MS
