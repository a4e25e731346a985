// What stands around every page? Where one is, how the mesh is, whether what is shown is still true, and the way elsewhere.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { command, renewTimes, state } from "./parts.js";
import { renew } from "./renew.js";
import { link } from "./router.js";
import { relative, timeOfDay } from "./say.js";

const TICK_MS = 1_000;

export class Shell {
  #pages;
  #calls;
  #nav = h("ul", {});
  #link = h("p", { class: "link-state" });
  #banner = h("div", { class: "banner", role: "status", hidden: true });
  #told = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
  #who = h("p", { class: "who" });
  #menu;
  #overview = null;
  #here = null;
  main = h("main", { id: "main", tabindex: "-1" });
  root;

  // calls: { help, refresh, leave, again }
  constructor(pages, calls) {
    this.#pages = pages;
    this.#calls = calls;
    this.#menu = h("button", {
      type: "button", class: "button quiet menu", "aria-expanded": "false", "aria-controls": "pages", on: { click: () => this.#unfold() },
    }, icon("menu"), h("span", { class: "unseen" }, "Menu"));
    this.root = h(
      "div",
      { class: "shell" },
      h("button", { type: "button", class: "skip", on: { click: () => this.main.focus() } }, "Skip to the page"),
      h("header", {},
        this.#menu,
        h("p", { class: "brand" }, "claudemesh"),
        this.#who,
        this.#link,
        h("div", { class: "tools" },
          tool("refresh", "Refresh (r)", calls.refresh), tool("help", "Keyboard and help (?)", calls.help), tool("leave", "Log out", calls.leave))),
      h("nav", { id: "pages", "aria-label": "Pages" }, this.#nav),
      h("div", { class: "column" }, this.#banner, this.main),
      this.#told,
    );
    this.#drawNav();
  }

  tick() {
    renewTimes(this.root);
  }

  static get tickMs() {
    return TICK_MS;
  }

  be(page) {
    this.#here = page;
    this.root.classList.remove("unfolded");
    this.#menu.setAttribute("aria-expanded", "false");
    this.#drawNav();
  }

  know(overview) {
    this.#overview = overview;
    this.#who.replaceChildren(h("strong", {}, overview.mesh), h("span", { class: "faint" }, ` as ${overview.member}`));
    const words = overview.connected ? "connected" : overview.link;
    const fresh = h("p", { class: "link-state" }, state(overview.connected ? "connected" : "retrying", undefined, `broker ${words}`));
    renew(this.#link, fresh);
    this.#drawNav();
  }

  // What is shown may be old: since when, and what is done about it.
  stale(since, why) {
    this.root.classList.add("stale");
    const fresh = h("div", { class: "banner", role: "status" },
      h("p", {}, h("strong", {}, "Disconnected. "), `${why} `,
        since ? ["What you see is from ", h("time", { "data-at": since }, relative(since)), ` (${timeOfDay(since)}). `] : null,
        "It is tried again by itself. If the daemon was started again, its address may be new: ", command("claudemesh dashboard")),
      h("button", { type: "button", class: "button", on: { click: this.#calls.again } }, "Try now"));
    renew(this.#banner, fresh);
  }

  fresh() {
    if (!this.root.classList.contains("stale")) return;
    this.root.classList.remove("stale");
    this.#banner.hidden = true;
    this.#banner.replaceChildren();
    this.tell("Connected again. What you see is up to date.");
  }

  tell(words) {
    this.#told.textContent = words;
  }

  #unfold() {
    const is = this.root.classList.toggle("unfolded");
    this.#menu.setAttribute("aria-expanded", String(is));
  }

  #drawNav() {
    const items = this.#pages.map((page, i) => {
      const number = this.#overview ? page.badge?.(this.#overview) : 0;
      return h("li", { "data-key": page.name },
        h("a", { href: link(page.name), "aria-current": page.name === this.#here ? "page" : null, title: `${page.title} (${i + 1})` },
          icon(page.name), h("span", { class: "label" }, page.title),
          number ? h("span", { class: "badge", "data-key": "badge" }, number > 99 ? "99+" : number, h("span", { class: "unseen" }, " need attention")) : null));
    });
    renew(this.#nav, h("ul", {}, items));
  }
}

function tool(name, words, click) {
  return h("button", { type: "button", class: "button quiet", "aria-label": words, title: words, on: { click } }, icon(name));
}
