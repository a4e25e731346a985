// How does a page change under its reader's hands? In place: what stays the same stays the same node, so that focus,
// selection, scroll and what was opened are kept.

const READERS_OWN = { DETAILS: ["open"], DIALOG: ["open"], INPUT: ["value", "checked"], SELECT: [] };

export function renew(standing, fresh) {
  if (!isSame(standing, fresh)) {
    standing.replaceWith(fresh);
    return;
  }
  if (standing.nodeType === Node.TEXT_NODE) {
    if (standing.data !== fresh.data) standing.data = fresh.data;
    return;
  }
  renewAttributes(standing, fresh);
  standing.handlers = fresh.handlers;
  renewChildren(standing, [...fresh.childNodes]);
}

export function renewChildren(parent, fresh) {
  const keyed = new Map([...parent.childNodes].filter(keyOf).map((one) => [keyOf(one), one]));
  fresh.forEach((wanted, i) => {
    let standing = parent.childNodes[i];
    const known = keyed.get(keyOf(wanted));
    if (known && known !== standing && known.parentNode === parent) {
      parent.insertBefore(known, standing ?? null);
      standing = known;
    } else if (standing && !isSame(standing, wanted)) {
      parent.insertBefore(wanted, standing); // what stood here may be wanted further down
      return;
    }
    if (standing) renew(standing, wanted);
    else parent.append(wanted);
  });
  while (parent.childNodes.length > fresh.length) parent.lastChild.remove();
}

function isSame(standing, fresh) {
  return standing.nodeName === fresh.nodeName && keyOf(standing) === keyOf(fresh);
}

function keyOf(one) {
  return one.dataset?.key;
}

function renewAttributes(standing, fresh) {
  const own = READERS_OWN[standing.tagName] ?? [];
  for (const { name } of [...standing.attributes]) {
    if (!fresh.hasAttribute(name) && !own.includes(name)) standing.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (standing.getAttribute(name) !== value && !own.includes(name)) standing.setAttribute(name, value);
  }
}
