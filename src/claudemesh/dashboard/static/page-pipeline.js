// Do the stores keep the promise? The verdicts of the latest report, and what it measured.

import { h } from "./dom.js";
import { bothTimes, card, command, empty, facts, note, state } from "./parts.js";
import { figures } from "./report-figures.js";
import { count, many } from "./say.js";
import { table } from "./table.js";

const ABOUT = "It copies the stores into a lake, proves the promise on them and measures; it needs the extra claudemesh[spark] and a Java.";

export const page = { name: "pipeline", title: "Pipeline", load, draw };

function load(api, _params, signal) {
  return api.get("/v1/dashboard/pipeline", {}, signal);
}

function draw(pipeline, { width }) {
  if (pipeline.state === "none") {
    return [empty(pipeline.cut ? "There is a cut, and no report of it yet." : "No report yet.", "Make one with ", command(pipeline.command ?? "claudemesh pipeline report"), `. ${ABOUT}`)];
  }
  if (pipeline.state === "unusable") {
    return [note("bad", `The report cannot be read: ${pipeline.detail ?? "no reason was given"}. Make it anew: `, command(pipeline.command ?? "claudemesh pipeline report"))];
  }
  const { report } = pipeline;
  return [
    h("p", { class: "lead" }, "What the stores held at one moment, proven and measured. It changes when a new report is made: ", command(pipeline.command)),
    card(null,
      h("div", { class: "head" }, h("h2", {}, report.ok ? "Every verdict holds" : "Not every verdict holds"), state(report.ok ? "holds" : "broken", undefined, report.ok ? "holds" : "look below")),
      facts([
        ["Cut", count(report.cut)],
        ["Stores as of", bothTimes(report.at)],
        report.made_at && ["Made", bothTimes(report.made_at)],
        pipeline.cut > report.cut ? ["Newer cut", ["cut ", count(pipeline.cut), ", without a report yet"]] : null,
      ])),
    h("section", { class: "part", "aria-labelledby": "verdicts" }, h("h2", { id: "verdicts" }, "Verdicts"), report.verdicts.map(verdict)),
    report.sources.map((source) => h("section", { class: "part", "data-key": `source-${source.name}` }, h("h2", {}, source.name), h("p", { class: "faint" }, `${source.kind}, ${source.store}`), totals(source), figures(source, width))),
  ];
}

function verdict({ name, about, violations, items }) {
  const mark = state(violations ? "broken" : "holds", undefined, violations ? `${count(violations)} found` : "holds");
  if (!violations) return h("div", { class: "card verdict", "data-key": name }, mark, " ", h("strong", {}, name), " ", h("span", { class: "faint" }, about));
  const names = [...new Set(items.flatMap((item) => Object.keys(item)))];
  return h("details", { class: "card verdict broken", "data-key": name, open: true },
    h("summary", {}, mark, " ", h("strong", {}, name), " ", h("span", { class: "faint" }, about)),
    h("p", {}, items.length < violations ? `The first ${items.length} of ${count(violations)}:` : "All of them:"),
    table(name, names.map((one) => ({ name: one, cell: (item) => (typeof item[one] === "object" ? JSON.stringify(item[one]) : item[one] ?? "–") })), items));
}

function totals(source) {
  const rows = Object.entries(source.totals);
  const wrong = rows.filter(([, pair]) => pair.lake !== pair.store).length;
  return h("details", { class: "card", "data-key": "totals" },
    h("summary", {}, many(rows.length, "total"), wrong ? [", ", state("broken", "wait", `${wrong} differ`)] : ", each the store's own count"),
    table(`Totals of ${source.name}`, [
      { name: "Total", cell: ([name]) => name },
      { name: "In the lake", number: true, cell: ([, pair]) => count(pair.lake) },
      { name: "In the store", number: true, cell: ([, pair]) => count(pair.store) },
    ], rows));
}
