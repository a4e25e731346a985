// What happens in which order? A code is traded for a bearer, the pages are shown and kept true, and it ends at a gate.

import { Api, Refused } from "./api.js";
import { gate } from "./gate.js";
import { Keys } from "./keys.js";
import { page as dead } from "./page-dead.js";
import { page as outbox } from "./page-outbox.js";
import { page as overview } from "./page-overview.js";
import { page as peers } from "./page-peers.js";
import { page as pipeline } from "./page-pipeline.js";
import { page as relay } from "./page-relay.js";
import { page as trace } from "./page-trace.js";
import { page as traffic } from "./page-traffic.js";
import { page as work } from "./page-work.js";
import { link, takeCode } from "./router.js";
import { Shell } from "./shell.js";
import { Stream } from "./stream.js";
import { View } from "./view.js";

const PAGES = [overview, peers, traffic, outbox, dead, relay, work, trace, pipeline];

const api = new Api(() => shut("expired"));
const keys = new Keys(PAGES, { refresh: () => running?.again(), trace: () => running?.trace() });
let running = null; // what is there while logged in

addEventListener("hashchange", () => {
  const code = takeCode(); // a fresh link, opened in this very tab
  if (code !== null) enter(code);
  else running?.view.go();
});
addEventListener("keydown", (event) => running && keys.press(event));
document.addEventListener("visibilitychange", () => running?.look());

const code = takeCode();
if (code === null) shut("none");
else enter(code);

async function enter(given) {
  try {
    const { idle_s: idle } = await api.login(given);
    open(idle);
  } catch (error) {
    shut(error instanceof Refused ? "refused" : "unheard", () => enter(given));
  }
}

function shut(reason, retry = null) {
  running?.end();
  running = null;
  document.title = "claudemesh";
  for (const one of document.querySelectorAll("dialog")) one.close();
  document.body.replaceChildren(gate(reason, { enter, retry: reason === "unheard" ? retry : null }));
  document.querySelector("h1").focus();
}

async function leave() {
  running?.end();
  running = null;
  await api.logout().catch(() => null); // not reached: it ends by itself, and this tab has forgotten it
  shut("left");
}

function open(idle) {
  running?.end();
  const again = () => {
    stream.wake();
    view.refresh();
  };
  const shell = new Shell(PAGES, { help: () => keys.help(), refresh: again, again, leave });
  const view = new View(api, PAGES, shell);
  const stream = new Stream((lastId, signal) => api.stream(lastId, signal), {
    event: () => view.soon(),
    anew: () => view.soon(),
    state: (word) => word === "reconnecting" && view.soon(), // which tells whether it is only the stream
  });
  const ticking = setInterval(() => shell.tick(), Shell.tickMs);
  // A hidden tab asks nothing but this: whoever comes back to it is still logged in, until the login's own end.
  const staying = setInterval(() => document.hidden && api.get("/v1/dashboard/overview").catch(() => null), (idle * 1000) / 3);
  running = {
    view,
    again,
    trace: () => {
      location.hash = link("trace", { find: "1" }); // which gives its field the focus
      document.getElementById("trace-id")?.focus();
    },
    look: () => {
      stream.wake();
      if (document.hidden) view.rest();
      else view.refresh();
    },
    end: () => {
      clearInterval(ticking);
      clearInterval(staying);
      stream.end();
      view.end();
    },
  };
  document.body.replaceChildren(shell.root);
  view.go();
  stream.run();
}
