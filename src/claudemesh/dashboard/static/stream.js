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
    this.#cut = new AbortController();
    const reader = new EventReader();
    reader.lastId = this.#lastId;
    const answer = await this.#open(this.#lastId, this.#cut.signal);
    const pieces = answer.body.getReader();
    for (;;) {
      const { done, value } = await this.#within(pieces.read());
      if (done) return;
      this.#heard();
      for (const event of reader.read(value)) this.#tell.event(event);
      this.#lastId = reader.lastId;
    }
  }

  #heard() {
    this.lastHeard = Date.now();
    this.#backoff.reset();
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
