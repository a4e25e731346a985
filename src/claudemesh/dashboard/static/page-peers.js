// Who is in the mesh, and will what I send now be seen?

import { h } from "./dom.js";
import { command, empty, id, note, state, time } from "./parts.js";
import { count, many } from "./say.js";
import { table } from "./table.js";

// What becomes of a message that is sent now.
export const REACH = {
  now: ["now", "Now", "its daemon is connected"],
  on_return: ["on_return", "On its return", "its connection dropped, its lease still stands"],
  waits: ["waits", "It waits", "kept at the broker until its daemon comes"],
};

export const page = { name: "peers", title: "Peers", load, draw };

async function load(api, _params, signal) {
  return (await api.get("/v1/peers", { all: 1 }, signal)).peers;
}

function draw(peers, { overview }) {
  const others = peers.filter((peer) => peer.pubkey !== overview.member_pubkey);
  return [
    h("p", { class: "lead" }, "Who is in the mesh, and what becomes of a message that you send now."),
    overview.connected ? null : note("warn", "The broker is away, so nobody can say who is there. These are the members that were known last."),
    table("Members of the mesh", [
      { name: "Member", cell: (peer) => who(peer, overview) },
      { name: "Sent now, it is seen", wide: true, cell: reach },
      { name: "Lease", cell: lease },
      { name: "Waiting", number: true, cell: (peer) => count(peer.waiting) },
      { name: "Unread", number: true, cell: (peer) => count(peer.unread) },
      { name: "Last read", cell: (peer) => time(peer.last_read_at, "never") },
      { name: "Sessions", wide: true, cell: sessions },
    ], peers, { key: (peer) => peer.pubkey }),
    others.length ? null : empty("You are alone here.", "Invite somebody with ", command("claudemesh mesh invite"), " and have them join with the text that it prints."),
  ];
}

function who(peer, overview) {
  return [
    h("span", { class: "name" }, peer.name),
    peer.pubkey === overview.member_pubkey ? h("span", { class: "faint" }, " (you)") : null,
    h("div", { class: "faint" }, peer.role, " ", id(peer.pubkey, { what: "public key" })),
    peer.about ? h("div", { class: "about" }, peer.about) : null,
  ];
}

function reach(peer) {
  const [tone, words, why] = REACH[peer.reach] ?? ["over", "Unknown", "the broker cannot be asked"];
  return [state(tone, undefined, words), h("div", { class: "faint" }, why)];
}

function lease({ lease_left_ms: left, transport }) {
  if (left === null || left === undefined) return h("span", { class: "faint" }, transport === "away" ? "none" : "–");
  return [h("span", {}, left > 0 ? `${count(Math.ceil(left / 1000))} s left` : "over"), h("div", { class: "faint" }, transport === "online" ? "renewed while connected" : "in grace")];
}

function sessions(peer) {
  if (!peer.sessions?.length) return h("span", { class: "faint" }, "none");
  return h("details", { "data-key": `sessions-${peer.pubkey}` },
    h("summary", {}, many(peer.sessions.length, "session")),
    h("ul", { class: "plain" }, peer.sessions.map((one) =>
      h("li", { "data-key": one.session_pubkey },
        h("span", { class: "name" }, one.display_name || "unnamed"),
        one.transport ? [" ", state(one.transport)] : null,
        h("div", { class: "faint" }, [one.role, one.cwd].filter(Boolean).join(" in ") || "says nothing of itself", one.since ? [", here ", time(one.since)] : null, " ", id(one.session_pubkey, { what: "session key" }))))));
}
