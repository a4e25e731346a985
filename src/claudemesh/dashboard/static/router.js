// Which page, and what of it? All of it is in the address after #, so that going back, forward and a copied link work.

export function place(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { page: path || "overview", params: new URLSearchParams(query) };
}

// link("outbox", { state: "dead" }) -> "#/outbox?state=dead"; what is empty is left out
export function link(page, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

// The code of a login link is all after #, and never a place: those begin with a slash.
export function takeCode() {
  const code = location.hash.slice(1);
  if (!code || code.startsWith("/")) return null;
  history.replaceState(null, "", `${location.pathname}#/`); // at once: not in the address, and not in the history
  return code;
}
