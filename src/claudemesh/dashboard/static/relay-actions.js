// What may an operator decide about a write that waits? Each decision is asked about first, in words of what follows.

import { h } from "./dom.js";
import { facts, state, time } from "./parts.js";

const CHOICES = {
  "keep-mine": {
    verb: "Keep mine", title: "Write mine over theirs?", tone: "main", states: ["conflict"],
    what: "The write is sent again on top of what the hub holds now. If the row changes once more before that, it is a conflict again: nothing newer is overwritten.",
    done: "The write is queued again, on top of theirs.",
  },
  "keep-theirs": {
    verb: "Keep theirs", title: "Give mine up?", tone: "danger", states: ["conflict"],
    what: "The write is cancelled, and what the hub holds stays as it is. This cannot be undone.",
    done: "The write is cancelled; theirs stands.",
  },
  retry: {
    verb: "Try again", title: "Let this write try again?", tone: "", states: ["conflict", "dead"],
    what: "One in conflict is sent as it is, and shows what stands at the hub. A dead one is queued anew under a fresh key, behind what waits for the same row.",
    done: "The write is queued again.",
  },
  cancel: {
    verb: "Cancel it", title: "Cancel this write?", tone: "danger", states: ["queued", "dead"],
    what: "It is not sent any more. What it would have changed stays as it is. This cannot be undone.",
    done: "The write is cancelled.",
  },
};

export function envelopeActions(envelope, tools) {
  return Object.entries(CHOICES)
    .filter(([, choice]) => choice.states.includes(envelope.state))
    .map(([decision, choice]) =>
      h("button", { type: "button", class: `button ${choice.tone}`, on: { click: () => tools.decide(wanted(envelope, decision, choice, tools.api)) } }, choice.verb));
}

function wanted(envelope, decision, choice, api) {
  return {
    title: choice.title,
    what: [
      facts([["Write", h("code", {}, envelope.request)], ["State", state(envelope.state)], ["Queued", time(envelope.created_at)]]),
      h("p", {}, choice.what),
    ],
    verb: choice.verb,
    tone: choice.tone || "main",
    intent: `${decision} ${envelope.id} ${envelope.updated_at}`, // decided anew, if it comes to a conflict anew
    run: (key) => api.post("/v1/dashboard/relay/decide", { id: envelope.id, key, decision }),
    done: () => choice.done,
  };
}
