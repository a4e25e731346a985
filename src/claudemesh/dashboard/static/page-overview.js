// Is it well, and what needs a human?

import { Refused } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { REACH } from "./page-peers.js";
import { messages, totals } from "./page-traffic.js";
import { command, note, state } from "./parts.js";
import { link } from "./router.js";
import { count, many, span } from "./say.js";

const VERDICTS_MS = 60_000; // a report is large, and changes seldom

export const page = { name: "overview", title: "Overview", load, draw };

const pipelines = { at: 0, found: null };

async function load(api, _params, signal) {
  const [peers, traffic, ledger, pipeline] = await Promise.all([
    api.get("/v1/peers", { all: 1 }, signal).then((answer) => answer.peers, refusal),
    api.get("/v1/dashboard/traffic", { span: "hour" }, signal).catch(refusal),
    api.get("/v1/dashboard/ledger", { limit: 1 }, signal).catch(refusal),
    verdicts(api, signal),
  ]);
  return { peers, traffic, ledger, pipeline };
}

async function verdicts(api, signal) {
  if (Date.now() - pipelines.at > VERDICTS_MS) {
    pipelines.found = await api.get("/v1/dashboard/pipeline", {}, signal).catch(refusal);
    pipelines.at = Date.now();
  }
  return pipelines.found;
}

// What does not answer is left out, and the others are shown.
function refusal(error) {
  if (error instanceof Refused && error.status !== 401) return error;
  throw error;
}

function draw({ peers, traffic, ledger, pipeline }, { overview, width }) {
  const known = (what) => (what instanceof Error ? null : what);
  const asked = needs(overview, known(ledger), known(pipeline));
  return [
    health(overview, asked),
    asked.length ? h("section", { class: "part", "aria-labelledby": "needs" }, h("h2", { id: "needs" }, "Needs you"), h("ul", { class: "needs" }, asked.map(need))) : null,
    tiles(overview, known(peers), known(traffic), known(ledger), known(pipeline)),
    traffic instanceof Error ? note("warn", `Traffic: ${traffic.message} (${traffic.code})`) : messages(traffic, width),
    known(peers) ? people(peers, overview) : null,
  ];
}

// One line for each thing that does not go away by itself, worst first.
function needs({ connected, link: how, degraded, outbox, relay }, ledger, pipeline) {
  const found = [];
  const add = (tone, title, why, href, verb) => found.push({ tone, title, why, href, verb });
  if (pipeline?.state === "there" && !pipeline.report.ok) add("bad", "A verdict of the pipeline does not hold", "The stores contradict the promise: look at the evidence.", link("pipeline"), "Look at it");
  if (relay.state === "unusable") add("bad", "The relay cannot be used", relay.detail ?? "Its outbox is damaged, or it does not answer.", link("relay"), "Look at it");
  if (relay.conflicts) add("bad", many(relay.conflicts, "conflict"), "The same row was changed here and at the hub; both values are kept.", link("relay", { state: "conflict" }), "Decide");
  if (outbox.dead) add("bad", many(outbox.dead, "dead letter"), "Nothing sends that by itself any more.", link("dead"), "Requeue or drop");
  if (relay.dead) add("bad", many(relay.dead, "dead write", "dead writes"), "The upstream refused them, or nobody knows what became of them.", link("relay", { state: "dead" }), "Decide");
  if (relay.concerns.includes("refused")) add("bad", "The upstream refuses the relay", "It does not take the relay's credential, and nothing is replayed until it does.", link("relay", { state: "queued" }), "What waits");
  if (ledger?.counts?.expired) add("warn", many(ledger.counts.expired, "lease ran out", "leases ran out"), "Their workers may be gone; the steps wait for a requeue.", link("work", { status: "LEASED" }), "Look at them");
  if (!connected) add("warn", `The broker is away: ${how}`, "Sends are kept and go out by themselves when it is back.", link("outbox", { state: "open" }), "What waits");
  if (degraded) add("warn", "The daemon and the broker disagree on what they can do", "Messages wait meanwhile. claudemesh doctor says what to do.", link("outbox", { state: "open" }), "What waits");
  if (relay.state === "running" && relay.concerns.includes("unreachable")) add("warn", "The relay's upstream is away", `${many(relay.pending, "write")} wait, and go out by themselves when it is back.`, link("relay", { state: "queued" }), "What waits");
  if (relay.state === "stopped" && relay.pending) add("warn", `${many(relay.pending, "write")} wait in a relay that is stopped`, "Start it with statehub-edge.", link("relay", { state: "queued" }), "What waits");
  return found;
}

function need({ tone, title, why, href, verb }) {
  return h("li", { class: tone, "data-key": title }, icon(tone), h("div", {}, h("strong", {}, title), h("p", {}, why)), h("a", { class: "button", href }, verb));
}

function health(overview, asked) {
  const isBad = asked.some((one) => one.tone === "bad");
  const [tone, words] = isBad ? ["bad", "Somebody is needed"] : asked.length ? ["warn", "It works, with a remark"] : ["good", "All is well"];
  return h("section", { class: `card health ${tone}`, "aria-label": "Health" },
    icon(tone === "good" ? "good" : tone),
    h("div", {},
      h("p", { class: "verdict-words" }, words),
      h("p", { class: "faint" }, `Daemon of ${overview.member} on mesh ${overview.mesh}, version ${overview.version}, up for ${span(overview.uptime_s * 1000)}; broker ${overview.broker_version ?? "not known"}, ${overview.link}${overview.lag_ms ? `, ${span(overview.lag_ms)} behind` : ""}. ${many(overview.unread, "unread message")}.`)));
}

function tiles(overview, peers, traffic, ledger, pipeline) {
  const { outbox, queues, relay } = overview;
  const there = peers?.filter((peer) => peer.status === "online").length;
  const sums = traffic && totals(traffic.buckets);
  const all = [
    ["Peers here", peers ? `${count(there)} of ${count(peers.length)}` : "–", link("peers")],
    ["Waiting to be sent", count(outbox.pending + outbox.inflight), link("outbox", { state: "open" })],
    ["Dead letters", count(outbox.dead), link("dead"), outbox.dead ? "bad" : ""],
    ["Sent, last hour", sums ? count(sums.sent) : "–", link("traffic")],
    ["Received, last hour", sums ? count(sums.received) : "–", link("traffic")],
    ["Conflicts", count(relay.conflicts), link("relay", { state: "conflict" }), relay.conflicts ? "bad" : ""],
    ["Writes waiting", count(relay.pending), link("relay", { state: "queued" })],
    ["Work ready", queues ? count(queues.ready) : "–", link("work")],
    ["Work in hand", count((queues?.leased ?? 0) + (ledger?.counts?.LEASED ?? 0)), link("work", { status: "LEASED" })],
    ["Verdicts", verdictTile(pipeline), link("pipeline"), pipeline?.state === "there" && !pipeline.report.ok ? "bad" : ""],
  ];
  return h("ul", { class: "tiles" }, all.map(([name, figure, href, tone]) =>
    h("li", { class: `tile ${tone ?? ""}`, "data-key": name }, h("a", { href }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-figure" }, figure)))));
}

function verdictTile(pipeline) {
  if (pipeline?.state !== "there") return "none yet";
  const { verdicts: all } = pipeline.report;
  return `${all.filter((one) => !one.violations).length} of ${all.length} hold`;
}

function people(peers, overview) {
  const others = peers.filter((peer) => peer.pubkey !== overview.member_pubkey);
  return h("section", { class: "card", "aria-labelledby": "people" },
    h("div", { class: "head" }, h("h2", { id: "people" }, "Peers"), h("a", { href: link("peers") }, "All of them")),
    others.length
      ? h("ul", { class: "people" }, others.slice(0, 12).map((peer) => {
        const [tone, words] = REACH[peer.reach] ?? ["over", "unknown"];
        return h("li", { "data-key": peer.pubkey }, h("span", { class: "name" }, peer.name), state(tone, undefined, words));
      }))
      : h("p", {}, "You are alone here. ", command("claudemesh mesh invite")));
}
