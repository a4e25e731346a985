// How do figures look over time? Plain SVG with axes, a readout by pointer or arrow keys, and a table beside it.

import { h, s } from "./dom.js";
import { hourOfDay } from "./say.js";
import { table } from "./table.js";

const HEIGHT = 190;
const MARGIN = { top: 10, right: 8, bottom: 24, left: 52 };
const TICKS = 4;
const LETTER = 7; // how wide one is, about
const BETWEEN = 34;

const picked = new Map(); // by chart: the point that its reader looks at

// series: [{ name, values, say, colour?, isBar? }], one value for each of `times`; null is no figure.
export function chart(key, { title, times, series, width, say, when = hourOfDay }) {
  const plot = frame(width, times, series);
  const last = times.length - 1;
  const figure = h(
    "figure",
    { class: "card chart", "data-key": key },
    h("figcaption", {}, h("h2", {}, title), legend(series)),
    h("div", {
      class: "plot", role: "slider", tabindex: "0", "aria-label": `${title}: arrow keys move through time`,
      "aria-valuemin": 0, "aria-valuemax": Math.max(last, 0), on: { pointermove, pointerleave, keydown, blur },
    }, s(
      "svg",
      { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true", focusable: "false" },
      axes(plot, times, say, when),
      series.map((one, i) => (one.isBar ? bars : line)(plot, times, one, i, series)),
      s("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    )),
    h("p", { class: "readout", "aria-hidden": "true" }),
    h("details", {}, h("summary", {}, "As a table"), asTable(title, times, series, when)),
  );
  look(figure, picked.get(key) ?? null);
  return figure;

  // Shows the figures of one moment in a figure: this one, or the one whose place it took.
  function look(shown, index) {
    if (index === null) picked.delete(key);
    else picked.set(key, index);
    const at = Math.min(index ?? last, last);
    const words = at < 0 ? "nothing yet" : describe(when(times[at]), series, at);
    shown.querySelector(".readout").textContent = index === null && at >= 0 ? `latest, ${words}` : words;
    const slider = shown.querySelector(".plot");
    slider.setAttribute("aria-valuenow", Math.max(at, 0));
    slider.setAttribute("aria-valuetext", words);
    const cursor = shown.querySelector(".cursor");
    cursor.classList.toggle("away", index === null);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, at < 0 ? 0 : plot.x(at));
  }

  function pointermove({ currentTarget: slider, clientX }) {
    const box = slider.getBoundingClientRect();
    look(slider.closest("figure"), plot.index(((clientX - box.left) / box.width) * width));
  }

  function pointerleave(event) {
    if (document.activeElement !== event.currentTarget) blur(event);
  }

  function blur({ currentTarget: slider }) {
    look(slider.closest("figure"), null);
  }

  function keydown(event) {
    const at = picked.get(key) ?? last;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last };
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    look(event.currentTarget.closest("figure"), Math.max(0, Math.min(last, moves[event.key])));
  }
}

function frame(width, times, series) {
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const known = series.flatMap((one) => one.values).filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...known));
  const step = inner.width / Math.max(times.length, 1);
  const x = (i) => MARGIN.left + (i + 0.5) * step;
  return {
    inner, top, step, x,
    y: (value) => MARGIN.top + inner.height * (1 - value / top),
    index: (at) => Math.max(0, Math.min(times.length - 1, Math.round((at - x(0)) / step))),
  };
}

// The next round number above, so that the axis has round ticks.
function ceiling(most) {
  if (most <= 0) return TICKS;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 4, 8, 10].map((one) => one * size).find((one) => one >= most);
}

function axes(plot, times, say, when) {
  const right = MARGIN.left + plot.inner.width;
  const lines = Array.from({ length: TICKS + 1 }, (_, i) => (plot.top * i) / TICKS);
  const room = BETWEEN + LETTER * (times.length ? when(times[0]).length : 0);
  const every = Math.max(1, Math.ceil(room / plot.step));
  return [
    lines.map((value) => [
      s("line", { class: value ? "grid" : "axis", x1: MARGIN.left, x2: right, y1: plot.y(value), y2: plot.y(value) }),
      Number.isInteger(value) || plot.top < TICKS
        ? s("text", { x: MARGIN.left - 8, y: plot.y(value) + 4, "text-anchor": "end" }, say(value))
        : null,
    ]),
    times.map((at, i) =>
      (times.length - 1 - i) % every === 0
        ? s("text", { x: plot.x(i), y: HEIGHT - 6, "text-anchor": i === times.length - 1 ? "end" : "middle" }, when(at))
        : null),
  ];
}

function line(plot, _times, one, i) {
  const runs = [[]];
  one.values.forEach((value, at) => {
    if (value === null) runs.push([]);
    else runs.at(-1).push([plot.x(at), plot.y(value)]);
  });
  return runs.filter((run) => run.length).map((run) =>
    run.length === 1
      ? s("circle", { class: `c${one.colour ?? i}`, cx: run[0][0], cy: run[0][1], r: 2.5 })
      : s("polyline", { class: `s${one.colour ?? i}`, points: run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") }));
}

function bars(plot, times, one, i, series) {
  const all = series.filter((other) => other.isBar);
  const each = Math.max(1, Math.min(24, plot.step * 0.75) / all.length);
  return times.map((_, at) => {
    const value = one.values[at] ?? 0;
    if (!value) return null;
    const left = plot.x(at) + each * (all.indexOf(one) - all.length / 2);
    return s("rect", {
      class: `c${one.colour ?? i}`, x: left.toFixed(1), y: plot.y(value).toFixed(1),
      width: each.toFixed(1), height: (plot.y(0) - plot.y(value)).toFixed(1), rx: 1,
    });
  });
}

function legend(series) {
  return h("p", { class: "legend" }, series.map((one, i) =>
    h("span", {}, s("svg", { width: 10, height: 10, "aria-hidden": "true" }, s("rect", { class: `c${one.colour ?? i}`, width: 10, height: 10, rx: 2 })), one.name)));
}

function describe(moment, series, i) {
  return `${moment}: ${series.map((one) => `${one.name} ${one.say(one.values[i])}`).join(", ")}`;
}

function asTable(title, times, series, when) {
  const columns = [
    { name: "Time", cell: (i) => when(times[i]) },
    ...series.map((one) => ({ name: one.name, number: true, cell: (i) => one.say(one.values[i]) })),
  ];
  return table(title, columns, times.map((_, i) => i).reverse());
}
