// Which page stands there, and how is it kept true? Loading, shown, renewed in place, or an error with a way on.

import { Refused } from "./api.js";
import { decide } from "./act.js";
import { Backoff } from "./backoff.js";
import { h } from "./dom.js";
import { renewChildren } from "./renew.js";
import { place } from "./router.js";

const POLL_MS = 5_000; // the event stream does not tell of everything
const MIN_MS = 1_000;
const SOON_MS = 150; // several events of one moment are one reason to look
const APART_MS = 1_000; // and however many there are, nobody reads faster than that
const SLOW_MS = 200; // before that nobody needs to be told that it is loading

export class View {
  #api;
  #pages;
  #shell;
  #page = null;
  #place = null;
  #asking = null; // what is under way is given up when it is not wanted any more
  #data = null;
  #good = null; // when what is shown came
  #looked = -APART_MS; // when a look ended last
  #isOld = false; // something happened since the look began that is under way
  #soon = null;
  #poll = null;
  #backoff = new Backoff();
  #onResize = () => this.#draw();

  constructor(api, pages, shell) {
    this.#api = api;
    this.#pages = pages;
    this.#shell = shell;
    addEventListener("resize", this.#onResize);
  }

  // The address changed: another page, or another part of it.
  async go() {
    const wanted = place();
    const page = this.#pages.find((one) => one.name === wanted.page) ?? this.#pages[0];
    const isOther = page !== this.#page;
    this.#page = page;
    this.#place = wanted;
    if (isOther) {
      this.#data = null;
      document.title = `${page.title} · claudemesh`;
      this.#shell.be(page.name);
      this.#shell.main.replaceChildren();
    }
    const patience = setTimeout(() => this.#loading(), SLOW_MS);
    await this.refresh();
    clearTimeout(patience);
    if (!isOther) return;
    scrollTo(0, 0);
    const main = this.#shell.main;
    (main.querySelector("[autofocus]") ?? main.querySelector("h1"))?.focus({ preventScroll: true });
  }

  // Look again at what is shown, from now on: what is under way is given up.
  async refresh() {
    this.rest();
    this.#asking?.abort();
    this.#isOld = false;
    const asking = (this.#asking = new AbortController());
    const { params } = this.#place;
    let wait = POLL_MS;
    try {
      const [overview, data] = await Promise.all([
        this.#api.get("/v1/dashboard/overview", {}, asking.signal),
        this.#page.load(this.#api, params, asking.signal),
      ]);
      if (asking.signal.aborted) return;
      this.#shell.know(overview);
      this.#data = { overview, data };
      this.#good = Date.now();
      this.#backoff.reset();
      this.#shell.fresh();
      this.#draw();
    } catch (error) {
      if (asking.signal.aborted) return;
      if (error instanceof Refused && error.status === 401) return; // the gate has it
      this.#fail(error);
      wait = Math.max(this.#backoff.next(), MIN_MS);
    }
    this.#asking = null;
    this.#looked = performance.now();
    if (document.hidden) return;
    this.#poll = setTimeout(() => this.refresh(), wait);
    if (this.#isOld) this.soon();
  }

  // Something happened: look again, once for all that happens now. A look that is under way ends first, or none would
  // ever end where something happens all the time.
  soon() {
    if (document.hidden || this.#soon !== null) return;
    if (this.#asking !== null) {
      this.#isOld = true;
      return;
    }
    const wait = Math.max(SOON_MS, this.#looked + APART_MS - performance.now());
    this.#soon = setTimeout(() => this.refresh(), wait);
  }

  // Nobody looks: what was to be asked by itself is not asked.
  rest() {
    clearTimeout(this.#poll);
    clearTimeout(this.#soon);
    this.#soon = null;
  }

  end() {
    this.rest();
    this.#asking?.abort();
    removeEventListener("resize", this.#onResize);
  }

  #draw() {
    if (this.#data === null) return;
    const main = this.#shell.main;
    const tools = {
      place: this.#place,
      overview: this.#data.overview,
      width: main.clientWidth,
      api: this.#api,
      refresh: () => this.refresh(),
      decide: async (wanted) => (await decide(wanted)) && this.refresh(),
    };
    const drawn = this.#page.draw(this.#data.data, tools);
    main.removeAttribute("aria-busy");
    renewChildren(main, [h("h1", { tabindex: "-1" }, this.#page.title), ...drawn.flat(Infinity).filter(Boolean)]);
  }

  #loading() {
    const main = this.#shell.main;
    main.setAttribute("aria-busy", "true");
    if (this.#data !== null) return; // what stands there stays until the next is here
    renewChildren(main, [
      h("h1", { tabindex: "-1" }, this.#page.title),
      h("div", { class: "loading", role: "status" }, h("span", { class: "unseen" }, "Loading…"), h("div", { class: "bone" }), h("div", { class: "bone" }), h("div", { class: "bone" })),
    ]);
  }

  #fail(error) {
    const isOurs = !(error instanceof Refused);
    if (isOurs && error.name === "TypeError") console.error(error); // a fault of this page, and not of the daemon
    if (this.#data !== null && isOurs) {
      this.#shell.stale(this.#good, "The daemon does not answer.");
      return;
    }
    this.#shell.main.removeAttribute("aria-busy");
    renewChildren(this.#shell.main, [
      h("h1", { tabindex: "-1" }, this.#page.title),
      h("div", { class: "failed", role: "alert" },
        h("h2", {}, isOurs ? "The daemon does not answer" : error.title),
        h("p", {}, isOurs ? "Is it running? claudemesh daemon status tells. This page tries again by itself." : `${error.message} (${error.code})`),
        h("button", { type: "button", class: "button main", on: { click: () => this.refresh() } }, "Try again")),
    ]);
  }
}
