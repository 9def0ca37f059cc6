/** Milliseconds since 1970, as the database sees them. */
export type Instant = number;

export interface Clock {
  /**
   * Wall time corrected by the offset to the database clock: all nodes share that time. Never runs backwards.
   */
  now(): Instant;
  /** Milliseconds that only ever grow; for durations, never for facts. */
  elapsed(): number;
  /** Resolves after `ms`, or at once when the signal aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after `ms` unless cancelled by the returned function. */
  after(ms: number, callback: () => void): () => void;
}

export interface SystemClock extends Clock {
  /** Milliseconds to add to this machine's time to get the database's. */
  setOffset(ms: number): void;
  offset(): number;
  /** This machine's time, uncorrected and never held back. */
  local(): number;
  /** What this machine's wall clock says: it may be set, and goes on while the machine is suspended. */
  wall(): number;
}

/** Node's timers fire at once for delays above this. */
const timerMsMax = 2 ** 31 - 1;

/** `aheadMs`: as if this machine's clock had been set wrong by so much, for tests. */
export function systemClock(aheadMs = 0): SystemClock {
  const startedAt = Date.now() - performance.now() + aheadMs;
  let offsetMs = 0;
  let corrected = false;
  let last = 0;
  const local = () => startedAt + performance.now();
  const clock: SystemClock = {
    now() {
      const at = Math.floor(local() + offsetMs);
      if (at > last) last = at;
      return last;
    },
    elapsed: () => performance.now(),
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const done = () => {
          cancel();
          signal?.removeEventListener("abort", done);
          resolve();
        };
        const cancel = clock.after(ms, done);
        signal?.addEventListener("abort", done, { once: true });
      }),
    after(ms, callback) {
      const timer = setTimeout(callback, Math.min(Math.max(0, ms), timerMsMax));
      return () => clearTimeout(timer);
    },
    setOffset(ms) {
      // The first correction may go back: no fact was stamped before it, and a clock an hour ahead would
      // stand still for one.
      if (!corrected) last = 0;
      corrected = true;
      offsetMs = ms;
    },
    offset: () => offsetMs,
    local,
    wall: () => Date.now() + aheadMs,
  };
  return clock;
}

export interface TestClock extends Clock {
  /** Moves time forward and fires what has become due, in order of due time. */
  advance(ms: number): Promise<void>;
}

export function testClock(startAt: Instant = 1_700_000_000_000): TestClock {
  let at = startAt;
  let order = 0;
  const waiting = new Map<number, { due: Instant; callback: () => void }>();
  const clock: TestClock = {
    now: () => at,
    elapsed: () => at - startAt,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const cancel = clock.after(ms, resolve);
        const stop = () => {
          cancel();
          resolve();
        };
        signal?.addEventListener("abort", stop, { once: true });
      }),
    after(ms, callback) {
      const id = ++order;
      waiting.set(id, { due: at + Math.max(0, ms), callback });
      return () => void waiting.delete(id);
    },
    async advance(ms) {
      const until = at + ms;
      for (;;) {
        const next = [...waiting].filter(([, w]) => w.due <= until).sort((a, b) => a[1].due - b[1].due)[0];
        if (!next) break;
        waiting.delete(next[0]);
        at = Math.max(at, next[1].due);
        next[1].callback();
        await Promise.resolve();
      }
      at = until;
    },
  };
  return clock;
}

/** RFC 3339 with millisecond precision, UTC. */
export const rfc3339 = (at: Instant): string => new Date(at).toISOString();

const rfc3339Form =
  /^(\d{4})-(\d{2})-(\d{2})[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$/;

/** The instant of an RFC 3339 text, or undefined when it is not one. */
export function parseRfc3339(text: string): Instant | undefined {
  const [, year, month, day] = rfc3339Form.exec(text) ?? [];
  if (year === undefined) return undefined;
  // `Date.parse` takes 30 February for 2 March.
  if (Number(day) > new Date(Date.UTC(2000 + (Number(year) % 400), Number(month), 0)).getUTCDate())
    return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}

/** What is due and held by another node stays due: its loop comes back after this, and does not spin. */
const againMsMin = 20;

/**
 * A tick of work that falls due: one read where nothing is due, which is so at most ticks of most nodes.
 * `nextAt` is when the first of it is due; the answer says in how many milliseconds.
 */
export async function whenDue(
  clock: Pick<Clock, "now">,
  { nextAt, move }: { nextAt: () => Promise<Instant | undefined>; move: () => Promise<unknown> },
): Promise<{ againInMs?: number }> {
  let next = await nextAt();
  if (next !== undefined && next <= clock.now()) {
    await move();
    next = await nextAt();
  }
  return next === undefined ? {} : { againInMs: Math.max(againMsMin, next - clock.now()) };
}
