// How does an operator decide? In a dialog that names what will happen, under a key that is made once for each intent:
// pressed twice, or asked again because no answer came, it still happens once.

import { Refused, Unheard } from "./api.js";
import { h } from "./dom.js";
import { command, note } from "./parts.js";

const keys = new Map(); // of intents whose outcome is not known yet

const ADVICE = {
  transition_refused: "It is no longer in a state that allows this. Close, and look at what it is now.",
  state_error: "It is no longer in a state that allows this. Close, and look at what it is now.",
  not_found: "It is gone: somebody may have decided already. Close, and look again.",
  idempotency_key_reused: "This key stands for another decision. Close, and begin anew.",
  broker_unreachable: "Wait until the daemon is connected again, and try again.",
  rate_limited: "The daemon is asked too often. Try again in a moment.",
};

// wanted: { title, what: nodes, verb, tone?, intent: text, run: (key) => Promise, done: (answer) => nodes,
//           forced?: { warning, verb, run: (key) => Promise } }
// Resolves when the dialog is closed, with whether anything may have changed.
export function decide(wanted) {
  const outcome = h("div", { class: "outcome", role: "status" });
  const cancel = h("button", { type: "button", class: "button", on: { click: () => dialog.close() } }, "Cancel");
  const confirm = h("button", { type: "button", class: `button ${wanted.tone ?? "main"}`, on: { click: () => attempt(wanted.intent, wanted.run) } }, wanted.verb);
  const buttons = h("div", { class: "buttons" }, cancel, confirm);
  const dialog = h(
    "dialog",
    { class: "decision", "aria-labelledby": "decision-title" },
    h("h2", { id: "decision-title" }, wanted.title),
    h("div", { class: "what" }, wanted.what),
    outcome,
    buttons,
  );
  let changed = false;
  document.body.append(dialog);
  dialog.showModal();
  cancel.focus(); // Enter alone decides nothing
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(changed);
    });
  });

  async function attempt(intent, run) {
    if (confirm.disabled) return;
    const key = keys.get(intent) ?? crypto.randomUUID();
    keys.set(intent, key);
    busy(true);
    try {
      const answer = await run(key);
      keys.delete(intent);
      changed = true;
      settle(note("good", answer.replayed ? "This was done before, under the same key; it was not done again. " : "Done. ", wanted.done(answer)));
    } catch (error) {
      busy(false);
      changed ||= error instanceof Unheard;
      if (error instanceof Refused) refused(intent, error);
      else if (error instanceof Unheard) unheard();
      else throw error;
    }
  }

  function refused(intent, error) {
    if (error.retry === "no") keys.delete(intent); // it is settled: another try is another intent
    const advice = error.status === 401 ? ["The login has ended. Run ", command("claudemesh dashboard"), " and open its link."] : ADVICE[error.code];
    outcome.replaceChildren(note("bad", h("strong", {}, `Refused: ${error.code}. `), `${error.message}. `, advice ?? "Nothing was changed."));
    confirm.textContent = "Try again";
    if (error.code === "broker_unreachable" && wanted.forced) offerForce();
  }

  function unheard() {
    outcome.replaceChildren(note("bad", "No answer came, so nobody knows whether it happened. Trying again asks under the same key: it happens once."));
    confirm.textContent = "Try again";
  }

  function offerForce() {
    const { warning, verb, run } = wanted.forced;
    outcome.append(note("warn", warning));
    const force = h("button", { type: "button", class: "button danger", on: { click: () => attempt(`${wanted.intent} by force`, run) } }, verb);
    buttons.querySelector(".danger.forced")?.remove();
    force.classList.add("forced");
    buttons.append(force);
  }

  function settle(told) {
    outcome.replaceChildren(told);
    const close = h("button", { type: "button", class: "button main", on: { click: () => dialog.close() } }, "Close");
    buttons.replaceChildren(close);
    close.focus();
  }

  function busy(is) {
    for (const one of buttons.querySelectorAll("button")) one.disabled = is && one !== cancel;
    if (is) outcome.replaceChildren(note("plain", "Asking the daemon…"));
  }
}
