// How much goes through this daemon, and how long does it take?

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { empty, note } from "./parts.js";
import { link } from "./router.js";
import { count, hourOfDay, instant, latency } from "./say.js";

const SPANS = { hour: "Last hour", day: "Last day", week: "Last week" };
const dayAndHour = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });

export const page = { name: "traffic", title: "Traffic", load, draw };

function load(api, params, signal) {
  return api.get("/v1/dashboard/traffic", { span: spanOf(params) }, signal);
}

function draw(traffic, { place, width }) {
  const { buckets } = traffic;
  const sums = totals(buckets);
  const isQuiet = !sums.sent && !sums.accepted && !sums.received && !sums.dead;
  return [
    h("p", { class: "lead" }, "What this daemon sent and received, and how long it took."),
    h("nav", { class: "tabs", "aria-label": "Time span" }, Object.entries(SPANS).map(([span, words]) =>
      h("a", { href: link("traffic", { span }), "aria-current": span === spanOf(place.params) ? "true" : null }, words))),
    traffic.is_cut ? note("warn", "There is more than is looked at: the oldest part of this span is incomplete.") : null,
    tiles(sums, buckets),
    isQuiet ? empty("Nothing in this span.", "Messages show here within seconds of being sent or received.") : null,
    messages(traffic, width),
    delays("send", "Latency of sends: queued here to accepted by the broker", traffic, width),
    delays("receive", "Latency of receipts: accepted by the broker to stored here", traffic, width),
    h("p", { class: "faint" }, "The second is measured by two clocks, the broker's and this machine's."),
  ];
}

export function messages(traffic, width) {
  const one = (name, field, more = {}) => ({ name, values: traffic.buckets.map((bucket) => bucket[field]), say: count, ...more });
  return chart("messages", {
    title: `Messages per ${{ 60: "minute", 900: "quarter of an hour", 7200: "two hours" }[traffic.bucket_s] ?? `${traffic.bucket_s} s`}`,
    times: traffic.buckets.map((bucket) => instant(bucket.at)),
    when: whenOf(traffic),
    say: count,
    width: inside(width),
    series: [
      one("sent", "sent", { colour: 0 }),
      one("accepted", "accepted", { colour: 2 }),
      one("received", "received", { colour: 3 }),
      one("dead", "dead", { colour: "bad", isBar: true }),
    ],
  });
}

export function totals(buckets) {
  const sum = (field) => buckets.reduce((total, bucket) => total + bucket[field], 0);
  return { sent: sum("sent"), accepted: sum("accepted"), received: sum("received"), dead: sum("dead") };
}

// The width of a plot inside a card inside the page.
export function inside(width) {
  return Math.max(260, Math.round(width) - 34);
}

function tiles(sums, buckets) {
  const worst = (field) => buckets.reduce((most, bucket) => (bucket[field] === null ? most : Math.max(most ?? 0, bucket[field])), null);
  const all = [
    ["Sent", count(sums.sent)], ["Accepted", count(sums.accepted)], ["Received", count(sums.received)], ["Dead", count(sums.dead), sums.dead ? "bad" : ""],
    ["Worst p99, sends", latency(worst("send_p99_ms"))], ["Worst p99, receipts", latency(worst("receive_p99_ms"))],
  ];
  return h("dl", { class: "tiles" }, all.map(([name, figure, tone]) => h("div", { class: `tile ${tone ?? ""}` }, h("dt", {}, name), h("dd", {}, figure))));
}

function delays(which, title, traffic, width) {
  const one = (name, part, colour) => ({ name, values: traffic.buckets.map((bucket) => bucket[`${which}_${part}_ms`]), say: latency, colour });
  return chart(`${which}-latency`, {
    title,
    times: traffic.buckets.map((bucket) => instant(bucket.at)),
    when: whenOf(traffic),
    say: latency,
    width: inside(width),
    series: [one("p50", "p50", 0), one("p99", "p99", 1)],
  });
}

function whenOf(traffic) {
  return traffic.span === "hour" ? hourOfDay : (at) => dayAndHour.format(at);
}

function spanOf(params) {
  return params.get("span") in SPANS ? params.get("span") : "hour";
}
