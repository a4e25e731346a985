// How is the relay, what waits in it, and which writes need a decision?

import { conflict } from "./conflict.js";
import { h } from "./dom.js";
import { bothTimes, card, command, empty, facts, figures, id, note, state, time, value } from "./parts.js";
import { envelopeActions } from "./relay-actions.js";
import { link } from "./router.js";
import { count, span } from "./say.js";
import { pager, table } from "./table.js";

const STATES = { conflict: "Conflicts", queued: "Queued", sending: "Sending", dead: "Dead", acked: "Acknowledged", cancelled: "Cancelled", all: "All" };
const LIMIT = 50;

export const page = {
  name: "relay", title: "Relay & conflicts", load, draw, badge: ({ relay }) => relay.conflicts + relay.dead,
};

async function load(api, params, signal) {
  const current = stateOf(params);
  const chosen = params.get("id");
  const [list, envelope] = await Promise.all([
    api.get("/v1/dashboard/relay/envelopes", { state: current === "all" ? null : current, limit: LIMIT, after: params.get("after") }, signal),
    chosen ? api.get("/v1/dashboard/relay/envelope", { id: chosen }, signal).catch((error) => error) : null,
  ]);
  return { list, envelope };
}

function draw({ list, envelope }, tools) {
  const { params } = tools.place;
  const { relay } = tools.overview;
  if (relay.state === "none") {
    return [empty("No relay has run here.", "A relay keeps writes to a State Hub over an outage. Start one with ", command("statehub-edge --upstream URL"), ".")];
  }
  const current = stateOf(params);
  const here = (more) => link("relay", { state: current, after: params.get("after"), ...more });
  return [
    h("p", { class: "lead" }, "Writes that wait for their upstream, and those on which both sides have changed the same row."),
    status(relay),
    h("nav", { class: "tabs", "aria-label": "State" }, Object.entries(STATES).map(([name, words]) =>
      h("a", { href: link("relay", { state: name }), "aria-current": name === current ? "true" : null }, words,
        name === "conflict" && relay.conflicts ? h("span", { class: "badge" }, relay.conflicts) : null,
        name === "dead" && relay.dead ? h("span", { class: "badge" }, relay.dead) : null))),
    envelope ? detail(envelope, here({}), tools) : null,
    list.items.length
      ? table("Envelopes", [
        { name: "Write", wide: true, cell: (one) => h("a", { href: here({ id: one.id }) }, h("code", {}, one.request)) },
        { name: "State", cell: (one) => state(one.state) },
        { name: "From", cell: (one) => one.source?.agent ?? h("span", { class: "faint" }, "–") },
        { name: "Tries", number: true, cell: (one) => count(one.attempts) },
        { name: "Queued", cell: (one) => time(one.created_at) },
        { name: "Changed", cell: (one) => time(one.updated_at) },
        { name: "Why", wide: true, cell: why },
      ], list.items, { key: (one) => one.id, about: (one) => ({ "aria-selected": one.id === params.get("id") ? "true" : null }) })
      : empty(...nothing(current)),
    list.items.length ? pager(params.get("after"), list.next_after && link("relay", { state: current, after: list.next_after }), link("relay", { state: current })) : null,
  ];
}

function status(relay) {
  const reach = { true: state("online", "good", "upstream reachable"), false: state("unreachable", "bad", "upstream not reachable"), null: state("unknown", "over", "upstream not asked") };
  const refused = relay.concerns.includes("refused") && state("refused", "bad", "upstream refuses the relay");
  return card(null,
    h("div", { class: "head" },
      h("h2", {}, { running: "The relay runs", stopped: "The relay is stopped", unusable: "The relay cannot be used" }[relay.state]),
      relay.state === "running" ? refused || reach[String(relay.upstream_reachable)] : state(relay.state, relay.state === "stopped" ? "wait" : "bad")),
    relay.state === "unusable" ? note("bad", relay.detail ?? "Its outbox is damaged or it does not answer.") : null,
    relay.state === "stopped" ? note("warn", "What is queued waits until it runs: ", command("statehub-edge")) : null,
    figures([
      relay.upstream && ["Upstream", h("code", {}, relay.upstream)],
      ["Waiting", count(relay.pending)],
      relay.blocked ? ["Blocked behind others", count(relay.blocked)] : null,
      ["Oldest waits", relay.pending ? span((relay.oldest_pending_age_s ?? 0) * 1000) : "–"],
      ["Conflicts", count(relay.conflicts)],
      ["Dead", count(relay.dead)],
    ]));
}

function detail(envelope, close, tools) {
  if (envelope instanceof Error) {
    return card("This write", h("p", {}, envelope.message, ". ", h("a", { href: close }, "Back to the list")));
  }
  return h("section", { class: "card detail", "data-key": `detail-${envelope.id}`, "aria-label": "One write" },
    h("div", { class: "head" },
      h("h2", {}, h("code", {}, envelope.request)), state(envelope.state),
      h("a", { class: "button quiet", href: close, "aria-label": "Close this write" }, "Close")),
    envelope.state === "conflict" ? conflict(envelope) : null,
    h("div", { class: "buttons" }, envelopeActions(envelope, tools)),
    facts([
      ["Envelope", id(envelope.id)],
      ["Idempotency key", id(envelope.idempotency_key, { what: "key" })],
      ["From", Object.entries(envelope.source ?? {}).map(([name, what]) => `${name} ${what}`).join(", ") || "not said"],
      ["Queued", bothTimes(envelope.created_at)],
      ["Changed", bothTimes(envelope.updated_at)],
      envelope.acked_at && ["Acknowledged", bothTimes(envelope.acked_at)],
      ["Tries", count(envelope.attempts)],
      ["Why", why(envelope)],
      envelope.superseded_by && ["Superseded by", id(envelope.superseded_by, { href: link("relay", { state: "all", id: envelope.superseded_by }) })],
    ]),
    envelope.state === "conflict" ? null : h("details", {}, h("summary", {}, "What it writes"), value(envelope.mine)),
    h("details", {}, h("summary", {}, "What happened to it"), happened(envelope.happened ?? [])));
}

function happened(entries) {
  if (!entries.length) return h("p", { class: "faint" }, "Nothing was written down.");
  return h("ol", { class: "happened" }, entries.map((entry) => {
    const { at, ...rest } = entry;
    return h("li", {}, bothTimes(at), " ", Object.entries(rest).filter(([, what]) => what !== null && what !== "").map(([name, what]) =>
      h("span", { class: "pair" }, h("span", { class: "faint" }, `${name} `), typeof what === "string" ? what : JSON.stringify(what))));
  }));
}

function why(envelope) {
  if (envelope.last_error) return h("span", { class: "reason" }, envelope.last_error);
  return h("span", { class: "faint" }, envelope.cancelled_by ? `by ${envelope.cancelled_by}` : "–");
}

function nothing(current) {
  if (current === "conflict") return ["No conflicts.", "If the same row is changed here and at the hub during an outage, both values are kept and shown here for you to decide."];
  return [`Nothing is ${STATES[current].toLowerCase()}.`.replace("is all", "waits or waited here"), "Writes appear here when the upstream cannot be reached."];
}

function stateOf(params) {
  return params.get("state") in STATES ? params.get("state") : "conflict";
}
