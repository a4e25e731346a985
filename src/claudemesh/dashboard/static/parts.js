// What do pages share? Times, ids, states and values, each shown in one way everywhere.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { absolute, bytes, instant, relative, shortId } from "./say.js";
import { TEXT_MAX } from "./text.js";

const COPIED_MS = 1_500;

// What a state means to a person: good, waiting, in hand, wrong, or over.
const TONES = {
  done: "good", acked: "good", accepted: "good", delivered: "good", read: "good", acted: "good", online: "good",
  now: "good", committed: "good", success: "good", holds: "good", connected: "good",
  pending: "wait", queued: "wait", on_return: "wait", ready: "wait", "catching up": "wait", retrying: "wait",
  inflight: "work", sending: "work", leased: "work",
  dead: "bad", conflict: "bad", broken: "bad", failure: "bad", expired: "bad", unreachable: "bad", failed: "bad",
  "needs care": "bad",
};

export function state(word, tone = TONES[String(word).toLowerCase()] ?? "over", words = word) {
  return h("span", { class: `state ${tone}` }, words);
}

export function time(at, none = "–") {
  const ms = instant(at);
  if (ms === null) return h("span", { class: "faint" }, none);
  return h(
    "time",
    { datetime: new Date(ms).toISOString(), title: absolute(ms), "data-at": ms },
    relative(ms),
  );
}

// Relative times grow old while nothing else changes.
export function renewTimes(root) {
  for (const one of root.querySelectorAll("time[data-at]")) {
    const words = relative(Number(one.dataset.at));
    if (one.textContent !== words) one.textContent = words;
  }
}

export function bothTimes(at, none = "–") {
  const ms = instant(at);
  if (ms === null) return h("span", { class: "faint" }, none);
  return h("span", { class: "both-times" }, h("span", {}, absolute(ms)), " ", h("span", { class: "faint" }, "(", time(ms), ")"));
}

export function id(text, { href = null, what = "id" } = {}) {
  if (text === null || text === undefined || text === "") return h("span", { class: "faint" }, "–");
  const short = h("code", { title: text }, shortId(text));
  return h("span", { class: "id" }, href ? h("a", { href }, short) : short, copy(text, what));
}

export function copy(text, what) {
  return h("button", {
    type: "button", class: "copy", "aria-label": `Copy ${what} ${shortId(text)}`, title: "Copy", on: { click: put },
  }, icon("copy"));

  async function put({ currentTarget: button }) {
    let outcome = "copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      outcome = "failed"; // no permission: the whole text is in the title
    }
    button.dataset.outcome = outcome;
    setTimeout(() => delete button.dataset.outcome, COPIED_MS);
  }
}

export function command(text) {
  return h("span", { class: "command" }, h("code", {}, text), copy(text, "command"));
}

const opened = new Set(); // long values that their reader wants to see whole

// A value of somebody else: never more of it than a page can bear, the rest on request.
export function value(given) {
  const text = typeof given === "string" ? given : JSON.stringify(given, null, 2) ?? "–";
  const isWhole = opened.has(text);
  const pieces = [];
  for (let i = 0; i < (isWhole ? text.length : 1); i += TEXT_MAX) pieces.push(text.slice(i, i + TEXT_MAX));
  return h(
    "div",
    { class: "value" },
    h("pre", { tabindex: "0" }, pieces),
    text.length > TEXT_MAX && !isWhole
      ? h("button", { type: "button", class: "button", on: { click } }, `Show all of it (${bytes(new Blob([text]).size)})`)
      : null,
  );

  function click({ currentTarget: button }) {
    opened.add(text);
    button.parentNode.replaceWith(value(text));
  }
}

export function card(title, ...content) {
  return h("section", { class: "card" }, title && h("h2", {}, title), content);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, what]) => [h("dt", {}, name), h("dd", {}, what)]));
}

// The same beside each other: few, and short.
export function figures(pairs) {
  return h("dl", { class: "across" }, pairs.filter(Boolean).map(([name, what]) => h("div", {}, h("dt", {}, name), h("dd", {}, what))));
}

export function empty(title, ...advice) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, advice));
}

export function note(tone, ...content) {
  return h("p", { class: `note ${tone}` }, content);
}
