// What work waits, who holds it, and until when?

import { Refused } from "./api.js";
import { h } from "./dom.js";
import { bothTimes, card, command, empty, facts, id, note, state, time, value } from "./parts.js";
import { link } from "./router.js";
import { count } from "./say.js";
import { pager, table } from "./table.js";

const STATES = { all: "All", PENDING: "Pending", LEASED: "Leased", COMMITTED: "Committed" };
const LIMIT = 50;

export const page = { name: "work", title: "Work", load, draw };

async function load(api, params, signal) {
  const chosen = params.get("step");
  const status = stateOf(params);
  const [queues, ledger, step] = await Promise.all([
    api.get("/v1/queue/list", {}, signal).then((answer) => answer.queues, refusal),
    api.get("/v1/dashboard/ledger", { status: status === "all" ? null : status, limit: LIMIT, before: params.get("before") }, signal).catch(refusal),
    chosen ? api.get("/v1/dashboard/ledger/step", { id: chosen }, signal).catch(refusal) : null,
  ]);
  return { queues, ledger, step };
}

// One that says no is shown in its place, and the others beside it.
function refusal(error) {
  if (error instanceof Refused && error.status !== 401) return error;
  throw error;
}

function draw({ queues, ledger, step }, tools) {
  return [
    h("p", { class: "lead" }, "Queues hand each message to one worker at a time; a ledger writes down who claimed which step, and what came of it."),
    h("section", { class: "part", "aria-labelledby": "queues" }, h("h2", { id: "queues" }, "Queues"), drawQueues(queues)),
    h("section", { class: "part", "aria-labelledby": "ledger" }, h("h2", { id: "ledger" }, "Ledger"), drawLedger(ledger, step, tools.place.params)),
  ];
}

function drawQueues(queues) {
  if (queues instanceof Error) return note("warn", queues.code === "broker_unreachable" ? "The broker is away; it alone knows what is in the queues." : queues.message);
  if (!queues.length) return empty("No queues.", "Make one with ", command("claudemesh queue create NAME"), ".");
  return table("Queues of the mesh", [
    { name: "Queue", wide: true, cell: (queue) => h("span", { class: "name" }, queue.name) },
    { name: "Ready", number: true, cell: (queue) => count(queue.ready) },
    { name: "With a worker", number: true, cell: (queue) => count(queue.leased) },
    { name: "Made", cell: (queue) => time(queue.created_at) },
  ], queues, { key: (queue) => queue.name });
}

function drawLedger(ledger, step, params) {
  if (ledger instanceof Error) return note("bad", `${ledger.message} (${ledger.code})`);
  if (ledger.state === "none") return empty("No ledger here.", "It is made by the first post: ", command("claudemesh ledger post --run-id RUN --source USER --json FILE"));
  if (ledger.state === "unusable") return note("bad", `The ledger cannot be read: ${ledger.detail ?? "no reason was given"}. `, command("claudemesh ledger verify"));
  const current = stateOf(params);
  const here = (more) => link("work", { status: current, before: params.get("before"), ...more });
  return [
    h("nav", { class: "tabs", "aria-label": "Status" }, Object.entries(STATES).map(([name, words]) =>
      h("a", { href: link("work", { status: name }), "aria-current": name === current ? "true" : null }, words, " ",
        h("span", { class: "faint" }, name === "all" ? "" : count(ledger.counts[name]))))),
    ledger.counts.expired ? note("warn", `${count(ledger.counts.expired)} of the leases have run out: their workers may be gone. `, command("claudemesh ledger requeue --run-id RUN")) : null,
    step ? detail(step, here({})) : null,
    ledger.steps.length
      ? table("Steps of the ledger", [
        { name: "Step", wide: true, cell: (one) => [h("a", { href: here({ step: one.step_id }) }, one.intent || "no intent"), h("div", { class: "faint" }, "run ", h("span", { class: "name" }, one.run_id), `, job ${one.job_ordinal}, step ${one.ordinal}`)] },
        { name: "State", cell: stepState },
        { name: "Holder", cell: (one) => one.lease_owner ?? h("span", { class: "faint" }, "–") },
        { name: "Lease ends", cell: (one) => time(one.status === "LEASED" ? one.lease_expires_at : null) },
        { name: "Token", number: true, cell: (one) => count(one.fencing_token) },
        { name: "Posted", cell: (one) => time(one.posted_at) },
        { name: "Receipt", cell: (one) => (one.outcome ? [state(one.outcome, undefined, one.outcome.toLowerCase()), " ", time(one.completed_at)] : h("span", { class: "faint" }, "–")) },
      ], ledger.steps, { key: (one) => one.step_id, about: (one) => ({ "aria-selected": one.step_id === params.get("step") ? "true" : null }) })
      : empty("No such steps.", "Choose another state above."),
    ledger.steps.length ? pager(params.get("before"), ledger.next_before && link("work", { status: current, before: ledger.next_before }), link("work", { status: current })) : null,
  ];
}

function stepState(one) {
  return one.is_expired ? state("expired", "bad", "lease ran out") : state(one.status, undefined, one.status.toLowerCase());
}

function detail(shown, close) {
  if (shown instanceof Error) return card("This step", h("p", {}, shown.message, ". ", h("a", { href: close }, "Back to the list")));
  const { step, payload, receipt } = shown;
  return h("section", { class: "card detail", "data-key": `detail-${step.step_id}`, "aria-label": "One step" },
    h("div", { class: "head" }, h("h2", {}, step.intent || "Step"), stepState(step), h("a", { class: "button quiet", href: close, "aria-label": "Close this step" }, "Close")),
    facts([
      ["Step", id(step.step_id)],
      ["Run", h("span", { class: "name" }, step.run_id)],
      ["Message", id(step.message_id)],
      ["Holder", step.lease_owner ?? "nobody"],
      ["Fencing token", count(step.fencing_token)],
      step.lease_expires_at && ["Lease ends", bothTimes(step.lease_expires_at)],
      ["Posted", bothTimes(step.posted_at)],
      receipt && ["Receipt", [state(receipt.outcome, undefined, receipt.outcome.toLowerCase()), " by ", receipt.worker_id, ", ", bothTimes(receipt.created_at)]],
    ]),
    h("h3", {}, "What is to be done"), value(payload),
    receipt ? [h("h3", {}, "What came of it"), value(receipt.receipt)] : null);
}

function stateOf(params) {
  return params.get("status") in STATES ? params.get("status") : "all";
}
