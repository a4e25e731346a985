// Where do both sides differ? Field by field, what the write wants beside what stands at the hub.

import { h } from "./dom.js";
import { note, value } from "./parts.js";

const EXPECTATION = /^expected_/; // what the write took the row to be, and not what it wants it to be

export function conflict({ mine, theirs, expectation }) {
  if (theirs === null || theirs === undefined) {
    return note("warn", "What stands at the hub is not known yet. Let it try again: that asks once more, and shows it.");
  }
  if (!isObject(mine) || !isObject(theirs)) {
    return h("div", { class: "sides" }, h("section", {}, h("h3", {}, "Mine: what waits here"), value(mine)), h("section", {}, h("h3", {}, "Theirs: what the hub holds"), value(theirs)));
  }
  const wanted = Object.keys(mine).filter((name) => !EXPECTATION.test(name));
  const differing = wanted.filter((name) => !isEqual(mine[name], theirs[name]));
  const same = wanted.filter((name) => !differing.includes(name));
  const others = Object.keys(theirs).filter((name) => !wanted.includes(name));
  return h("div", { class: "conflict" },
    h("table", { class: "sides" },
      h("caption", { class: "unseen" }, "Both values, field by field"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Field"), h("th", { scope: "col" }, "Mine ", h("span", { class: "faint" }, "waits here")), h("th", { scope: "col" }, "Theirs ", h("span", { class: "faint" }, "stands at the hub")))),
      h("tbody", {},
        differing.map((name) => row(name, show(mine[name]), show(theirs[name]), "differs")),
        same.map((name) => row(name, show(mine[name]), show(theirs[name]), "same")),
        others.map((name) => row(name, h("span", { class: "faint" }, "not touched"), show(theirs[name]), "untouched")))),
    expected(expectation));
}

function row(name, ours, their, kind) {
  return h("tr", { class: kind, "data-key": name },
    h("th", { scope: "row" }, name, kind === "differs" ? h("span", { class: "mark" }, " differs") : null), h("td", { "data-name": "Mine" }, ours), h("td", { "data-name": "Theirs" }, their));
}

function expected(expectation = {}) {
  const said = Object.entries(expectation).filter(([, what]) => what !== null);
  if (!said.length) return null;
  return h("p", { class: "faint" }, "The write took the row to be: ", said.map(([name, what]) => `${name} ${what}`).join(", "), ".");
}

function show(what) {
  if (what === undefined) return h("span", { class: "faint" }, "not there");
  return value(typeof what === "string" ? what : JSON.stringify(what));
}

function isObject(what) {
  return typeof what === "object" && what !== null && !Array.isArray(what);
}

function isEqual(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
