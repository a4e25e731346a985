// How is the daemon asked? With the bearer of this tab, within a bound, and with errors that say what to do.

const WITHIN_MS = 15_000;

// The daemon answered, and said no.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.code = problem.code ?? `http_${status}`;
    this.title = problem.title ?? "The daemon refused";
    this.retry = problem.retry ?? "no";
  }
}

// No answer came: of a question that does not matter, of an action nobody knows whether it happened.
export class Unheard extends Error {
  constructor(cause) {
    super("no answer came from the daemon", { cause });
  }
}

export class Api {
  #bearer = null; // in memory alone: it is gone with the page, and on no disk
  #onExpired;

  constructor(onExpired) {
    this.#onExpired = onExpired;
  }

  async login(code) {
    const { bearer, ...told } = await this.post("/v1/dashboard/login", { code });
    this.#bearer = bearer;
    return told;
  }

  async logout() {
    try {
      await this.post("/v1/dashboard/logout", {});
    } finally {
      this.#bearer = null;
    }
  }

  get(path, params = {}, signal = null) {
    const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
    return this.#ask(query.size ? `${path}?${query}` : path, {}, signal);
  }

  post(path, body) {
    return this.#ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }

  // The event stream, from where it was left.
  async stream(lastId, signal) {
    return this.#send("/v1/events", { headers: lastId === null ? {} : { "last-event-id": lastId }, signal });
  }

  async #ask(path, asked, signal = null) {
    const bounds = [AbortSignal.timeout(WITHIN_MS), ...(signal ? [signal] : [])];
    const answer = await this.#send(path, { ...asked, signal: AbortSignal.any(bounds) });
    try {
      return await answer.json();
    } catch (error) {
      throw new Unheard(error);
    }
  }

  async #send(path, { headers = {}, ...asked }) {
    const bearer = this.#bearer;
    const shown = bearer === null ? headers : { ...headers, authorization: `Bearer ${bearer}` };
    let answer;
    try {
      answer = await fetch(path, { ...asked, headers: shown, cache: "no-store", credentials: "omit", redirect: "error" });
    } catch (error) {
      throw new Unheard(error);
    }
    if (answer.ok) return answer;
    const refused = new Refused(answer.status, await answer.json().catch(() => ({})));
    if (answer.status === 401 && bearer !== null && bearer === this.#bearer) {
      this.#bearer = null;
      this.#onExpired();
    }
    throw refused;
  }
}
