// How is a list shown? As a table with headers; on a narrow screen each row is a card with the headers in it.

import { h } from "./dom.js";

// columns: [{ name, cell: (row) => node or text, number?, wide? }]
export function table(caption, columns, rows, { key = null, about = null } = {}) {
  const kind = (column) => [column.number && "n", column.wide && "wide"].filter(Boolean).join(" ") || null;
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: kind(one) }, one.name)))),
      h("tbody", {}, rows.map((row) =>
        h("tr", { "data-key": key && key(row), ...(about && about(row)) }, columns.map((one, i) =>
          h(i ? "td" : "th", { scope: i ? null : "row", class: kind(one), "data-name": one.name }, h("div", { class: "cell" }, one.cell(row))))))),
    ),
  );
}

// The pages before this one are in the address: going back is going back.
export function pager(cursor, next, first) {
  if (!cursor && !next) return null;
  return h(
    "nav",
    { class: "pager", "aria-label": "Parts of the list" },
    cursor ? h("a", { class: "button", href: first }, "First page") : null,
    next ? h("a", { class: "button", href: next, rel: "next" }, "Next page") : h("span", { class: "faint" }, "End of the list"),
  );
}
