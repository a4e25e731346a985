// How is a page made? Of elements and text nodes alone: nothing that came from elsewhere is ever read as markup.

import { readable } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const LINKS = /^#/; // to another place of this page, and nowhere else

// h("td", { class: "n", on: { click } }, "text", node, null)
export function h(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

export function s(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

function fill(made, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) put(made, name, value);
  made.handlers = on; // beside the node, so that `renew` can hand a fresh one's to the one that stays
  for (const name of Object.keys(on)) made.addEventListener(name, (event) => made.handlers[name]?.(event));
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false).map(node));
  return made;
}

function put(made, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "href" && !LINKS.test(value)) throw new TypeError("a link leads to this page only");
  if (/^(on|style$|src)/.test(name)) throw new TypeError(`${name} is not for a page of data`);
  made.setAttribute(name, value === true ? "" : readable(value));
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(readable(child));
}
