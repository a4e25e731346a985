// How far did one message come, and what does each step rest on?

import { Refused } from "./api.js";
import { h } from "./dom.js";
import { card, facts, id, note, state, time } from "./parts.js";
import { link } from "./router.js";
import { absolute, count, instant, span } from "./say.js";
import { table } from "./table.js";

const LIFE = ["queued", "accepted", "delivered", "read", "acted"];
const MEANING = {
  queued: "on this daemon's disk",
  accepted: "committed by the broker",
  delivered: "stored in the reader's inbox",
  read: "marked as read",
  acted: "answered, or receipted",
  dead: "given up",
  aborted: "given up by an operator",
};

export const page = { name: "trace", title: "Trace", load, draw };

async function load(api, params, signal) {
  const wanted = params.get("id");
  const [trace, recent] = await Promise.all([
    wanted ? api.get(`/v1/trace/${encodeURIComponent(wanted)}`, {}, signal).catch(unknown) : null,
    wanted ? null : api.get("/v1/dashboard/outbox", { state: "all", limit: 8 }, signal),
  ]);
  return { trace, recent };
}

function unknown(error) {
  if (error instanceof Refused && [400, 403, 404].includes(error.status)) return error;
  throw error;
}

function draw({ trace, recent }, { place }) {
  const wanted = place.params.get("id") ?? "";
  return [
    h("p", { class: "lead" }, "The life of one message, step by step, each with the row that it rests on. Nothing is inferred."),
    form(wanted, place.params.has("find")),
    trace instanceof Error ? note("bad", ...refusal(trace, wanted)) : trace && life(trace),
    recent?.rows.length ? latest(recent.rows) : null,
  ];
}

function refusal(error, wanted) {
  if (error.status === 403) return [`${wanted} cannot be asked for here, since it holds a slash: its row is in the outbox.`];
  return [`No message with the id ${wanted}: `, error.message, ". An own message is found by any of its ids, a received one by the broker's."];
}

function form(wanted, isFocused) {
  const field = h("input", {
    id: "trace-id", type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "off", autofocus: isFocused, placeholder: "message id, row id or the broker's id", value: wanted,
  });
  return h("form", { class: "together", role: "search", "data-key": `trace-${wanted}`, on: { submit } },
    h("label", { for: "trace-id", class: "unseen" }, "Id of a message"), field, h("button", { type: "submit", class: "button main" }, "Trace"));

  function submit(event) {
    event.preventDefault();
    const given = event.currentTarget.querySelector("input").value.trim();
    if (given) location.hash = link("trace", { id: given });
  }
}

function life(trace) {
  const reached = new Set(trace.steps.map((step) => step.state));
  const isOver = reached.has("dead") || reached.has("aborted");
  const stages = trace.direction === "received" ? LIFE.slice(1, 4) : LIFE;
  return [
    card(null,
      h("div", { class: "head" }, h("h2", {}, trace.direction === "sent" ? "A message of yours" : "A message that came here"), state(trace.state)),
      h("ol", { class: "stages", "aria-label": "How far it came" }, [...stages, ...(isOver ? ["dead", "aborted"].filter((one) => reached.has(one)) : [])].map((stage) =>
        h("li", { class: reached.has(stage) ? (stage === "dead" || stage === "aborted" ? "reached bad" : "reached") : "ahead", "data-key": stage },
          h("strong", {}, stage), h("span", { class: "faint" }, MEANING[stage]), h("span", { class: "unseen" }, reached.has(stage) ? ", reached" : ", not yet")))),
      trace.is_current ? null : note("warn", "This is what the daemon itself knows: the broker was not asked, or has not got it yet."),
      facts([
        ["Message id", id(trace.client_message_id)],
        ["Broker's id", id(trace.broker_message_id)],
        trace.direction === "sent" ? ["In the outbox", h("a", { href: link("outbox", { id: trace.client_message_id }) }, "its row and its chain")] : null,
        Object.keys(trace.counts).length > 1 ? ["Readers", Object.entries(trace.counts).map(([word, many]) => h("span", { class: "pair" }, state(word), ` ${count(many)}`))] : null,
      ])),
    card("Timeline", h("ol", { class: "timeline" }, trace.steps.map((step, i) => event(step, trace.steps[i - 1])))),
  ];
}

function event(step, before) {
  const at = instant(step.at);
  const since = before ? instant(before.at) : null;
  const tone = step.state === "dead" || step.state === "aborted" ? "bad" : "good";
  return h("li", { class: tone },
    h("div", { class: "head" }, state(step.state, tone), step.recipient ? h("span", { class: "name" }, step.recipient) : null,
      at !== null && since !== null ? h("span", { class: "after" }, at >= since ? `+ ${span(at - since)}` : "the clocks differ") : null),
    h("div", { class: "evidence" }, step.evidence),
    h("div", { class: "faint" }, at === null ? "no time was kept" : [absolute(at), " (", time(at), ")"]));
}

function latest(rows) {
  return card("Sent last",
    table("The latest sends", [
      { name: "Message", cell: (row) => id(row.client_message_id, { href: link("trace", { id: row.id }), what: "message id" }) },
      { name: "To", wide: true, cell: (row) => h("span", { class: "name" }, row.to) },
      { name: "State", cell: (row) => state(row.status) },
      { name: "Queued", cell: (row) => time(row.enqueued_at) },
    ], rows, { key: (row) => row.id }));
}
