// What was given up, why, and what shall become of it?

import { h } from "./dom.js";
import { reason, rowActions } from "./outbox-actions.js";
import { empty, id, time } from "./parts.js";
import { link } from "./router.js";
import { count } from "./say.js";
import { pager, table } from "./table.js";

const LIMIT = 50;

export const page = { name: "dead", title: "Dead letters", load, draw, badge: ({ outbox }) => outbox.dead };

function load(api, params, signal) {
  return api.get("/v1/dashboard/outbox", { state: "dead", limit: LIMIT, before: params.get("before") }, signal);
}

function draw({ rows, next_before: next }, tools) {
  const before = tools.place.params.get("before");
  return [
    h("p", { class: "lead" }, "Messages that will not be sent by themselves any more. Nothing is lost: each can be sent anew, or given up for good."),
    rows.length
      ? table("Dead letters", [
        { name: "Message", cell: (row) => id(row.client_message_id, { href: link("outbox", { state: "dead", id: row.id }), what: "message id" }) },
        { name: "To", wide: true, cell: (row) => h("span", { class: "name" }, row.to) },
        { name: "Why", wide: true, cell: (row) => reason(row) },
        { name: "Tries", number: true, cell: (row) => count(row.attempts) },
        { name: "Queued", cell: (row) => time(row.enqueued_at) },
        { name: "What now", cell: (row) => h("div", { class: "buttons" }, rowActions(row, tools)) },
      ], rows, { key: (row) => row.id })
      : empty("No dead letters.", before ? "Not on this page." : "Nothing to do here. A send that the broker refuses for good, or that grew too old, would be here with its reason."),
    rows.length ? pager(before, next && link("dead", { before: next }), link("dead")) : null,
  ];
}
