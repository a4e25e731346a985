// What happens at the daemon, while it happens? Its event stream, read by `fetch` since only that can show a bearer.
// It comes back by itself where it left off, and rests while nobody looks.

import { Refused } from "./api.js";
import { Backoff } from "./backoff.js";
import { EventReader } from "./sse.js";

const SILENT_MS = 40_000; // the daemon says something every 15 s
const LOST_PLACE = new Set(["cursor_expired", "cursor_ahead", "invalid_request"]); // begin anew, and look at everything again

// tell: { state(word), event({ type, data }), anew() }; open(lastId, signal) -> Response
export class Stream {
  #tell;
  #open;
  #backoff = new Backoff();
  #lastId = null;
  #wake = null;
  #cut = null;
  #ended = false;
  lastHeard = null;
  state = "connecting";

  constructor(open, tell) {
    this.#open = open;
    this.#tell = tell;
  }

  async run() {
    while (!this.#ended) {
      if (document.hidden) {
        this.#be("paused");
        await this.#until();
        continue;
      }
      try {
        await this.#follow();
      } catch (error) {
        if (this.#ended) return;
        if (error instanceof Refused) this.#judge(error);
      }
      if (this.#ended || document.hidden) continue;
      this.#be("reconnecting");
      await this.#until(this.#backoff.next());
    }
  }

  // Something changed (the tab is looked at again, the reader is impatient): try now.
  wake() {
    if (document.hidden) this.#cut?.abort();
    this.#wake?.();
  }

  end() {
    this.#ended = true;
    this.#cut?.abort();
    this.#wake?.();
  }

  async #follow() {
    const cut = (this.#cut = new AbortController());
    const reader = new EventReader();
    reader.lastId = this.#lastId;
    try {
      const answer = await this.#open(this.#lastId, cut.signal);
      const pieces = answer.body.getReader();
      for (let isGreeting = true; ; isGreeting = false) {
        const { done, value } = await this.#within(pieces.read());
        if (done) return;
        this.#heard();
        const events = this.#take(reader, value);
        // Every stream begins with a greeting, also one that breaks right after it: what comes then says that it is well.
        if (events || !isGreeting) this.#backoff.reset();
      }
    } finally {
      cut.abort(); // or what nobody reads would hold one of the few connections that a browser has for the daemon
    }
  }

  // Tells what is in a piece, and how many events that were.
  #take(reader, piece) {
    try {
      const events = reader.read(piece);
      for (const event of events) this.#tell.event(event);
      return events.length;
    } finally {
      this.#lastId = reader.lastId; // also of an event that nobody could take: it would come again, for ever
    }
  }

  #heard() {
    this.lastHeard = Date.now();
    if (this.state !== "live") {
      const isReturn = this.state !== "connecting";
      this.#be("live");
      if (isReturn) this.#tell.anew();
    }
  }

  #judge(error) {
    if (error.status === 401) this.end(); // `api` has said so already
    if (LOST_PLACE.has(error.code)) {
      this.#lastId = null;
      this.#tell.anew();
    }
  }

  async #within(piece) {
    let timer;
    const silence = new Promise((_, reject) => {
      timer = setTimeout(() => {
        this.#cut.abort();
        reject(new Error("silent"));
      }, SILENT_MS);
    });
    try {
      return await Promise.race([piece, silence]);
    } finally {
      clearTimeout(timer);
    }
  }

  #until(ms = null) {
    return new Promise((resolve) => {
      const timer = ms === null ? null : setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #be(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell.state(state);
  }
}
