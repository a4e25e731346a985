// What may an operator do with a row of the outbox? Send it anew under a fresh id, or give it up: each asked about first.

import { h } from "./dom.js";
import { facts, id, time } from "./parts.js";
import { link } from "./router.js";

const WORDS = {
  max_age_exceeded: "it was too old to be sent without the risk of a second message",
  attempts_exhausted: "the broker failed on it again and again while others passed",
  outcome_unknown: "nobody knows whether it arrived",
  unknown_destination: "there is no such member",
  destination_not_found: "there is no such member, topic or queue",
  not_subscribed: "only subscribers post to a topic",
};

export function reason(row) {
  if (!row.last_error) return h("span", { class: "faint" }, row.status === "aborted" ? `given up by ${row.aborted_by}` : "–");
  const words = WORDS[row.last_error];
  return [h("span", { class: "reason" }, row.last_error), words ? h("div", { class: "faint" }, words) : null];
}

// Both, for a row that can be given up.
export function rowActions(row, tools) {
  if (!["dead", "pending"].includes(row.status)) return null;
  const which = row.client_message_id;
  return [
    h("button", { type: "button", class: "button main", "aria-label": `Requeue the message to ${row.to}, ${which}`, on: { click: () => tools.decide(requeue(row, tools.api)) } }, "Requeue"),
    h("button", { type: "button", class: "button danger", "aria-label": `Drop the message to ${row.to}, ${which}`, on: { click: () => tools.decide(drop(row, tools.api)) } }, "Drop"),
  ];
}

function about(row) {
  return facts([
    ["To", h("span", { class: "name" }, row.to)],
    ["Message id", id(row.client_message_id)],
    ["Queued", time(row.enqueued_at)],
    ["Why", reason(row)],
  ]);
}

function requeue(row, api) {
  const run = (force) => (key) => api.post("/v1/dashboard/outbox/requeue", { id: row.id, key, force });
  return {
    title: "Send this message anew?",
    what: [
      about(row),
      h("p", {}, "The message goes out again, as it is, under a fresh id. This row is closed, and its id stays used."),
      row.attempts > 0 ? h("p", {}, "It was tried before, so the broker is asked first: if it has the message after all, nothing is sent anew.") : null,
    ],
    verb: "Requeue",
    intent: `requeue ${row.id}`,
    run: run(false),
    forced: { warning: "Forced, it is sent anew although the first may have arrived: its reader may get it twice.", verb: "Requeue by force", run: run(true) },
    done,
  };
}

function drop(row, api) {
  const run = (force) => (key) => api.post("/v1/dashboard/outbox/drop", { id: row.id, key, force });
  return {
    title: "Give this message up?",
    what: [about(row), h("p", {}, "It is not sent any more, and nothing takes its place. This cannot be undone.")],
    verb: "Drop",
    tone: "danger",
    intent: `drop ${row.id}`,
    run: run(false),
    forced: { warning: "Forced, it is given up here although it may have arrived.", verb: "Drop by force", run: run(true) },
    done,
  };
}

function done(answer) {
  if (answer.status === "done") return "The broker had the message all along: the row is done, and nothing was sent anew.";
  if (answer.superseded_by) {
    return ["It is queued again under ", id(answer.client_message_id, { href: link("outbox", { id: answer.superseded_by }), what: "message id" }), "."];
  }
  return "The row is given up.";
}
