// What can be done without a mouse? Everything by Tab; the frequent by one key, unless its owner switched that off.

import { h } from "./dom.js";
import { link } from "./router.js";

const OFF = "claudemesh.keys-off"; // a preference, and no secret

export class Keys {
  #pages;
  #calls;

  // calls: { refresh, trace }
  constructor(pages, calls) {
    this.#pages = pages;
    this.#calls = calls;
  }

  press(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "?") this.help();
    else if (isOff()) return;
    else if (/^[1-9]$/.test(event.key) && this.#pages[event.key - 1]) location.hash = link(this.#pages[event.key - 1].name);
    else if (event.key === "r") this.#calls.refresh();
    else if (event.key === "/") this.#calls.trace();
    else return;
    event.preventDefault();
  }

  help() {
    const rows = [
      ...this.#pages.map((page, i) => [String(i + 1), page.title]),
      ["r", "Look again now"],
      ["/", "Trace a message by its id"],
      ["?", "This sheet"],
      ["Esc", "Close a dialog, or leave a field"],
      ["← →", "In a chart: the moment before, the moment after"],
    ];
    const off = h("input", { type: "checkbox", id: "keys-off", on: { change: ({ currentTarget }) => setOff(currentTarget.checked) } });
    off.checked = isOff();
    const close = h("button", { type: "button", class: "button main", on: { click: () => sheet.close() } }, "Close");
    const sheet = h("dialog", { class: "help", "aria-labelledby": "help-title" },
      h("h2", { id: "help-title" }, "Keyboard"),
      h("dl", { class: "keys" }, rows.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
      h("p", {}, off, " ", h("label", { for: "keys-off" }, "Switch single keys off (but ?)")),
      h("p", { class: "faint" }, "The login is in this tab's memory only: a reload or a closed tab ends it. Times are in your zone; point at one for the whole of it."),
      h("div", { class: "buttons" }, close));
    sheet.addEventListener("close", () => sheet.remove());
    document.body.append(sheet);
    sheet.showModal();
  }
}

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;
}

function isOff() {
  return localStorage.getItem(OFF) === "yes";
}

function setOff(is) {
  if (is) localStorage.setItem(OFF, "yes");
  else localStorage.removeItem(OFF);
}
