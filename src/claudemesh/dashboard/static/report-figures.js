// What does a report measure? Its series as charts where time is in them, as tables else.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { inside } from "./page-traffic.js";
import { count, latency, span } from "./say.js";
import { table } from "./table.js";

const ROWS_MAX = 20;
const NAMES_MAX = 5; // as many as have a colour
const hours = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });

export function figures(source, width) {
  const size = inside(width);
  const key = (name) => `${source.name}-${name}`;
  const drawn = {
    traffic: (rows) => byHour(key("traffic"), "Messages accepted, by hour", rows, "kind", "messages", size),
    latency: (rows) => percentiles(key("latency"), "Accepted to delivered", rows, size),
    dead_letters: (rows) => ranking("Dead letters, by reason", rows, "reason", "dead_letters"),
    endings: (rows) => ranking("How sessions ended", rows, "because", "sessions"),
    members: (rows) => members(rows),
    presence: (rows) => byDay(key("presence"), "Sessions, by day", rows, ["sessions", "peak", "flaps"], size),
    events: (rows) => byHour(key("events"), "Peers that came and left, by hour", rows, "type", "events", size),
    runs: (rows) => plain("Runs of the ledger", rows, ["run_id", "steps", "success", "failure", "aborted", "pending", "leased", "expiries"]),
    lead_times: (rows) => plain("Lead times", rows, ["span", "steps", "p50_ms", "p90_ms", "p99_ms", "max_ms"]),
    requeued: (rows) => ranking("Lease expiries, by step", rows, "step_id", "expiries"),
    outages: (rows) => plain("Outages of the upstream", rows, ["began_at", "away_ms", "replay_ms", "envelopes", "acked", "conflict", "dead", "cancelled", "coalesced"]),
    envelopes: (rows) => ranking("Writes that waited, by class and state", rows.map((row) => ({ ...row, what: `${row.route_class}, ${row.status}` })), "what", "envelopes"),
    writes: (rows) => byHour(key("writes"), "Writes, by hour", rows, "kind", "writes", size),
  };
  return Object.entries(drawn).filter(([name]) => source[name]?.length).map(([name, draw]) => draw(source[name]));
}

function byHour(key, title, rows, by, what, width) {
  const times = [...new Set(rows.map((row) => row.hour_at))].sort((one, other) => one - other);
  const sums = new Map();
  for (const row of rows) {
    const of = sums.get(row[by]) ?? new Map();
    of.set(row.hour_at, (of.get(row.hour_at) ?? 0) + row[what]);
    sums.set(row[by], of);
  }
  const series = [...sums].slice(0, NAMES_MAX).map(([name, values]) => ({ name: String(name), values: times.map((at) => values.get(at) ?? 0), say: count }));
  return chart(key, { title, times, series, width, say: count, when: (at) => hours.format(at) });
}

function percentiles(key, title, rows, width) {
  return [...new Set(rows.map((row) => row.mesh))].map((mesh, i) => {
    const own = rows.filter((row) => row.mesh === mesh).sort((one, other) => one.day.localeCompare(other.day));
    const series = ["p50", "p90", "p99"].map((name) => ({ name, values: own.map((row) => row[`${name}_ms`] ?? null), say: latency }));
    return chart(`${key}-${i}`, { title: `${title}: ${mesh}`, times: own.map(dayOf), series, width, say: latency, when: (at) => days.format(at) });
  });
}

function byDay(key, title, rows, names, width) {
  return [...new Set(rows.map((row) => row.mesh))].map((mesh, i) => {
    const own = rows.filter((row) => row.mesh === mesh).sort((one, other) => one.day.localeCompare(other.day));
    const series = names.map((name) => ({ name, values: own.map((row) => row[name] ?? null), say: count }));
    return chart(`${key}-${i}`, { title: `${title}: ${mesh}`, times: own.map(dayOf), series, width, say: count, when: (at) => days.format(at) });
  });
}

function dayOf(row) {
  return Date.parse(`${row.day}T00:00:00Z`);
}

function ranking(title, rows, by, what) {
  const sums = new Map();
  for (const row of rows) sums.set(row[by] ?? "not said", (sums.get(row[by] ?? "not said") ?? 0) + row[what]);
  const most = [...sums].sort((one, other) => other[1] - one[1]).slice(0, ROWS_MAX);
  return listed(title, [{ name: "What", wide: true, cell: ([name]) => name }, { name: "How many", number: true, cell: ([, many]) => count(many) }], most, sums.size);
}

function members(rows) {
  const latest = [...rows].sort((one, other) => other.last_at - one.last_at).slice(0, ROWS_MAX);
  return listed("Members seen", [
    { name: "Member", wide: true, cell: (row) => row.name },
    { name: "Sent", number: true, cell: (row) => count(row.sent) },
    { name: "Received", number: true, cell: (row) => count(row.received) },
    { name: "Last", cell: (row) => hours.format(row.last_at) },
  ], latest, rows.length);
}

function plain(title, rows, names) {
  const columns = names.map((name) => ({ name: name.replace(/_(ms|at)$/, "").replaceAll("_", " "), number: rows.every((row) => typeof row[name] === "number" || row[name] === null), cell: (row) => say(name, row[name]) }));
  return listed(title, columns, rows.slice(0, ROWS_MAX), rows.length);
}

function say(name, what) {
  if (what === null || what === undefined) return name === "run_id" ? "all" : "–";
  if (name.endsWith("_ms")) return span(what);
  if (name.endsWith("_at")) return hours.format(what);
  return typeof what === "number" ? count(what) : String(what).replaceAll("_", " ");
}

function listed(title, columns, rows, total) {
  return h("section", { class: "card" }, h("h3", {}, title), rows.length < total ? h("p", { class: "faint" }, `${rows.length} of ${count(total)}`) : null, table(title, columns, rows));
}
