// What did this daemon promise to send, and how far is each row?

import { h } from "./dom.js";
import { reason, rowActions } from "./outbox-actions.js";
import { bothTimes, card, command, empty, facts, id, state, time } from "./parts.js";
import { link } from "./router.js";
import { count } from "./say.js";
import { pager, table } from "./table.js";

const STATES = { all: "All", open: "Waiting", dead: "Dead" };
const LIMIT = 50;

export const page = { name: "outbox", title: "Outbox", load, draw };

async function load(api, params, signal) {
  const chosen = params.get("id");
  const [list, inspected] = await Promise.all([
    api.get("/v1/dashboard/outbox", { state: stateOf(params), limit: LIMIT, before: params.get("before") }, signal),
    chosen ? api.get(`/v1/outbox/${encodeURIComponent(chosen)}`, {}, signal).catch((error) => error) : null,
  ]);
  return { list, inspected };
}

function draw({ list, inspected }, tools) {
  const { params } = tools.place;
  const current = stateOf(params);
  const here = (more) => link("outbox", { state: current, before: params.get("before"), ...more });
  return [
    h("p", { class: "lead" }, "Every send is a row here before anybody is told that it is queued. Newest first."),
    h("nav", { class: "tabs", "aria-label": "State" }, Object.entries(STATES).map(([name, words]) =>
      h("a", { href: link("outbox", { state: name }), "aria-current": name === current ? "true" : null }, words))),
    inspected ? detail(inspected, here({}), tools) : null,
    list.rows.length
      ? table("Rows of the outbox", [
        { name: "Message", cell: (row) => id(row.client_message_id, { href: here({ id: row.id }), what: "message id" }) },
        { name: "To", wide: true, cell: (row) => h("span", { class: "name" }, row.to) },
        { name: "State", cell: (row) => state(row.status) },
        { name: "Tries", number: true, cell: (row) => count(row.attempts) },
        { name: "Queued", cell: (row) => time(row.enqueued_at) },
        { name: "Accepted", cell: (row) => time(row.accepted_at) },
        { name: "Why", wide: true, cell: (row) => reason(row) },
      ], list.rows, { key: (row) => row.id, about: (row) => ({ "aria-selected": row.id === params.get("id") ? "true" : null }) })
      : nothing(current),
    list.rows.length ? pager(params.get("before"), list.next_before && link("outbox", { state: current, before: list.next_before }), link("outbox", { state: current })) : null,
  ];
}

function detail(inspected, close, tools) {
  if (inspected instanceof Error) {
    return card("This row", h("p", {}, inspected.message, ". ", h("a", { href: close }, "Back to the list")));
  }
  const { row, ancestors, successor } = inspected;
  return h("section", { class: "card detail", "data-key": `detail-${row.id}`, "aria-label": "One row" },
    h("div", { class: "head" },
      h("h2", {}, "To ", h("span", { class: "name" }, row.to)), state(row.status),
      h("a", { class: "button quiet", href: close, "aria-label": "Close this row" }, "Close")),
    facts([
      ["Row", id(row.id)],
      ["Message id", id(row.client_message_id)],
      ["Queued", bothTimes(row.enqueued_at)],
      ["Accepted", bothTimes(row.accepted_at, "not yet")],
      row.status === "pending" && ["Next try", bothTimes(row.next_attempt_at)],
      ["Tries", count(row.attempts)],
      ["Why", reason(row)],
      row.broker_message_id && ["Broker's id", id(row.broker_message_id)],
      row.aborted_at && ["Given up", [bothTimes(row.aborted_at), ` by ${row.aborted_by}`]],
      ["Fingerprint", h("code", {}, row.fingerprint_prefix)],
    ]),
    chain(ancestors, row, successor),
    h("div", { class: "buttons" },
      h("a", { class: "button", href: link("trace", { id: row.id }) }, "Trace it"), rowActions(row, tools)));
}

// Oldest first: what was requeued, this row, and what took its place.
function chain(ancestors, row, successor) {
  if (!ancestors.length && !successor) return null;
  const to = (other) => id(other, { href: link("outbox", { id: other }), what: "row" });
  return h("div", { class: "chain" }, h("h3", {}, "Chain"),
    h("ol", {}, [...ancestors].reverse().map((other) => h("li", {}, to(other))),
      h("li", { "aria-current": "true" }, h("strong", {}, "this row")), successor ? h("li", {}, to(successor)) : null));
}

function nothing(current) {
  if (current === "open") return empty("Nothing waits.", "Every send was answered.");
  if (current === "dead") return empty("No dead rows.", "A send that the broker refuses for good, or that grew too old, would be here.");
  return empty("Nothing was sent yet.", "Try ", command("claudemesh send NAME hello"), ". Each send is a row here before it is acknowledged.");
}

function stateOf(params) {
  return params.get("state") in STATES ? params.get("state") : "all";
}
