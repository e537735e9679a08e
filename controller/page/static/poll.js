// Asking again and again: every two seconds, less often when nobody looks, the leader is slow, or nothing answers.

const EVERY_MS = 2000;
const HIDDEN_MS = 30_000;
const MOST_MS = 30_000;
const SLOW_MS = 10_000; // at most, between answers that take long
const PATIENCE_MS = 10_000;

/** An answer that is none of ours; `status` 0: no answer at all. */
export class FetchError extends Error {
  constructor(status, path, text) {
    super(status ? `${path} answers ${status}${text ? `: ${text}` : ""}` : `${path}: ${text}`);
    this.status = status;
    this.text = text;
  }
}

/** The JSON document of a path beside the page; FetchError when there is none. */
export async function get(path) {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  try {
    const response = await fetch(path, { signal: patience, credentials: "same-origin", cache: "no-cache" });
    if (!response.ok) throw new FetchError(response.status, path, (await response.text()).trim().slice(0, 300));
    return await response.json();
  } catch (error) {
    if (error instanceof FetchError) throw error;
    const text = patience.aborted ? `no answer within ${PATIENCE_MS / 1000} s` : error.message;
    throw new FetchError(0, path, text);
  }
}

/**
 * Calls `round` (async) again and again, and `failed(error, failures)` when it throws. `nextAt`: when it is tried next,
 * in milliseconds as of Date.now; `heardAt`: when it last did not throw, or null.
 */
export class Poller {
  constructor(round, failed) {
    this.round = round;
    this.failed = failed;
    this.failures = 0;
    this.heardAt = null;
    this.nextAt = 0;
    this.timer = null;
    this.busy = false;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.now();
    });
    addEventListener("online", () => this.now());
  }

  /** Try at once, unless a round is on its way. */
  async now() {
    if (this.busy) return;
    clearTimeout(this.timer);
    this.busy = true;
    const began = Date.now();
    try {
      await this.round();
      this.failures = 0;
      this.heardAt = Date.now();
    } catch (error) {
      this.failures += 1;
      this.failed(error, this.failures);
    } finally {
      this.busy = false;
      const delay = this.delay(Date.now() - began);
      this.nextAt = Date.now() + delay;
      this.timer = setTimeout(() => this.now(), delay);
    }
  }

  delay(tookMs) {
    if (document.hidden) return HIDDEN_MS;
    if (this.failures) return Math.min(MOST_MS, EVERY_MS * 2 ** Math.min(this.failures - 1, 10));
    return Math.min(SLOW_MS, Math.max(EVERY_MS, 5 * tookMs));
  }
}
