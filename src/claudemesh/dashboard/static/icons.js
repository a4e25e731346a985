// What do the small pictures look like? Strokes on a field of 16, in the colour of the text beside them.

import { s } from "./dom.js";

const STROKES = {
  overview: "M2 9l6-6 6 6M4 8v6h8V8",
  peers: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM1.5 13.5c0-2.5 1.7-4 4-4s4 1.5 4 4M11 3a2 2 0 0 1 0 4M11.5 9.6c1.9.2 3 1.6 3 3.9",
  traffic: "M1.5 9.5h3l2-6 3 9 2-5h3",
  outbox: "M2 9.5v4h12v-4M8 10V2.5M5 5.5l3-3 3 3",
  dead: "M2.5 4h11v9h-11zM2.5 4.5L8 9l5.5-4.5M6 12l4 0",
  relay: "M2 5h10M9.5 2.5L12 5 9.5 7.5M14 11H4M6.5 8.5L4 11l2.5 2.5",
  work: "M2.5 4.5l1.2 1.2L6 3.4M8 4.5h6M2.5 9l1.2 1.2L6 7.9M8 9h6M2.5 13.5l1.2 1.2L6 12.4M8 13.5h6",
  trace: "M4 3.5h.01M4 8h.01M4 12.5h.01M7.5 3.5H14M7.5 8H12M7.5 12.5H14M4 5v1.5M4 9.5V11",
  pipeline: "M8 1.8l5.2 2v4c0 3.4-2.4 5.5-5.2 6.6-2.8-1.1-5.2-3.2-5.2-6.600v-4zM5.6 7.800l1.8 1.8 3.2-3.4",
  copy: "M5.5 5.500h7.500v8h-7.500zM3 10.500v-8h7.5",
  menu: "M2 4h12M2 8h12M2 12h12",
  refresh: "M13.5 8a5.5 5.5 0 1 1-1.6-3.900M13.5 2v3h-3",
  help: "M8 14.500a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM6 6.200c.2-1.2 1-1.8 2-1.8 1.2 0 2 .8 2 1.8 0 1.4-2 1.6-2 3.100M8 11.600h.01",
  leave: "M6 2.500H3v11h3M10 5l3 3-3 3M13 8H6.5",
  good: "M8 14.500a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM5.2 8.200l2 2 3.6-4.2",
  warn: "M8 2l6.5 11.500h-13zM8 6.500v3.500M8 11.800h.01",
  bad: "M5.3 1.500h5.400l3.8 3.800v5.400l-3.8 3.800H5.300L1.5 10.700V5.300zM8 4.800v4M8 11.200h.01",
};

export function icon(name) {
  return s("svg", { class: `icon icon-${name}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", focusable: "false" }, s("path", { d: STROKES[name] }));
}
