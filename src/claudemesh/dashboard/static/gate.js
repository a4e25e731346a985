// What does somebody see who is not logged in? Why, and the one command that helps.

import { h } from "./dom.js";
import { command } from "./parts.js";

const REASONS = {
  none: ["Not logged in", "This tab has no login. It is kept in the tab's memory only, so a reload ends it."],
  refused: ["This link does not work any more", "A link is good once, and only for two minutes."],
  expired: ["The login has ended", "It was idle for too long, has reached its end, or the daemon was started again."],
  left: ["Logged out", "The login of this tab is over, at the daemon too."],
  unheard: ["The daemon does not answer", "It may be stopped, or starting. The link may still be good: try again in a moment."],
};

// enter(code): logs in with the code; retry: with the one that was not answered, if there is one
export function gate(reason, { enter, retry = null }) {
  const [title, why] = REASONS[reason];
  const given = h("input", {
    id: "code", type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", placeholder: "http://127.0.0.1:…/ui/#…",
  });
  return h(
    "main",
    { class: "gate", id: "main", "data-key": `gate-${reason}` },
    h("p", { class: "brand" }, "claudemesh"),
    h("h1", { tabindex: "-1" }, title),
    h("p", {}, why),
    h("p", {}, "Run this where the daemon runs, and open the link that it prints:"),
    h("p", {}, command("claudemesh dashboard")),
    h("form", { on: { submit } },
      h("label", { for: "code" }, "Or paste the link here, to stay on this page"),
      h("div", { class: "together" }, given, h("button", { type: "submit", class: "button main" }, "Log in"))),
    retry && h("p", {}, h("button", { type: "button", class: "button", on: { click: retry } }, "Try again")),
  );

  function submit(event) {
    event.preventDefault();
    const code = given.value.trim().replace(/^.*#/, "");
    given.value = "";
    if (code) enter(code);
  }
}
