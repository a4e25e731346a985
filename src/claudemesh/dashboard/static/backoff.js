// How long until the next try? Twice as long as the last, half of it by chance, so that many tabs do not come at once.

export const FIRST_MS = 500;
export const LONGEST_MS = 20_000;

export class Backoff {
  #tries = 0;

  next(chance = Math.random()) {
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.#tries);
    this.#tries += 1;
    return Math.round(most / 2 + (most / 2) * chance);
  }

  reset() {
    this.#tries = 0;
  }
}
