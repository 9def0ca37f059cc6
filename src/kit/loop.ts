import type { Clock, Instant } from "./clock.ts";

export interface LoopOptions {
  /** Shown in health, logs and metrics: `runs.wake`. */
  name: string;
  /** What it does, in one sentence for operators. */
  about: string;
  /** What one node does for all: the duty that it belongs to. */
  duty?: string;
  everyMs: number;
  /** Asks this loop for ticks; shared with the parts that know when there is work. */
  waker?: Waker;
  /**
   * Planned ticks take at most this share of the time: after a long tick the loop rests longer. `wake`,
   * `wakeIn` and `tick` end that rest.
   */
  shareMax?: number;
  /**
   * One round of work; may say when it wants to be called again. Throwing is survived, counted and logged.
   * `isAsked`: by `Loop.tick`, and not by the plan.
   */
  tick: (isAsked?: boolean) => Promise<{ againInMs?: number } | void>;
}

export type LoopFacts = Pick<LoopOptions, "name" | "about" | "everyMs" | "duty">;

export type Loop = ReturnType<typeof loop>;

/**
 * Asks a loop for ticks. It is made before the loop, because the services that ask are made before the loop's
 * tick; `loop` takes it over. Asks before that do nothing: every loop ticks when it starts.
 */
export class Waker {
  #loop: Loop | undefined;

  /** As `Loop.wake`. */
  readonly wake = (): void => this.#loop?.wake();

  /** As `Loop.wakeIn`. */
  readonly wakeIn = (ms: number): void => this.#loop?.wakeIn(ms);

  take(loop: Loop): void {
    if (this.#loop) throw new Error(`a waker of ${this.#loop.name} cannot be of ${loop.name} too`);
    this.#loop = loop;
  }
}

export interface LoopHost {
  clock: Clock;
  onError: (loop: string, error: unknown) => void;
}

/** A failed dependency is tried again after this, growing to `retryMsMax`. */
const retryMsMin = 100;
const retryMsMax = 5_000;

/** So many failed rounds in a row take half a minute: what fails then does not pass by itself. */
export const failedRoundsMax = 10;
const errorCharsMax = 200;

/** An error in a few words that any caller may read: values that it quotes are left out. */
function wordsOf(error: unknown): string {
  const {
    message = String(error),
    code,
    cause,
  } = (error ?? {}) as { message?: string; code?: unknown; cause?: unknown };
  const codeText = [code, (cause as { code?: unknown } | undefined)?.code].find(
    (one) => typeof one === "string",
  );
  const [line = ""] = message.split("\n");
  const words = line
    .replace(/"[^"]*"|'[^']*'|`[^`]*`/g, "…")
    .slice(0, errorCharsMax)
    .toWellFormed();
  return codeText === undefined || words.includes(String(codeText)) ? words : `${codeText} ${words}`;
}

/** Background work as a tick a test can call, under a supervisor that never gives up. */
export function loop(host: LoopHost, options: LoopOptions) {
  let running = false;
  let ticking: Promise<void> | undefined;
  let wanted = false;
  /** Ticks beside the plan that are under way. */
  let beside = 0;
  let cancelTimer: (() => void) | undefined;
  /** Of `clock.elapsed()`: when the next tick is planned, and by when one was asked for during a tick. */
  let plannedAt = Number.POSITIVE_INFINITY;
  let wishedAt = Number.POSITIVE_INFINITY;
  let progressAt: Instant | undefined;
  let failures = 0;
  let failuresInRow = 0;
  let lastError: unknown;

  const plan = (ms: number) => {
    cancelTimer?.();
    plannedAt = host.clock.elapsed() + ms;
    cancelTimer = running ? host.clock.after(ms, run) : undefined;
  };

  const round = async () => {
    let pauseMs = options.everyMs;
    const beganAt = host.clock.elapsed();
    try {
      const wish = await options.tick(false);
      progressAt = host.clock.now();
      failuresInRow = 0;
      if (wish?.againInMs !== undefined) pauseMs = Math.min(pauseMs, wish.againInMs);
      if (options.shareMax) pauseMs = Math.max(pauseMs, (host.clock.elapsed() - beganAt) / options.shareMax);
    } catch (error) {
      failures++;
      lastError = error;
      pauseMs = Math.min(retryMsMax, retryMsMin * 2 ** Math.min(failuresInRow++, 10));
      host.onError(options.name, error);
    }
    ticking = undefined;
    // A wake during a failing streak waits for the retry, or a dead dependency would make this a busy loop.
    const again = wanted && failuresInRow === 0;
    wanted = false;
    if (failuresInRow === 0) pauseMs = Math.min(pauseMs, Math.max(0, wishedAt - host.clock.elapsed()));
    wishedAt = Number.POSITIVE_INFINITY;
    if (running) again ? run() : plan(pauseMs);
  };

  function run(): void {
    cancelTimer?.();
    cancelTimer = undefined;
    if (!running) return;
    if (ticking || beside > 0) {
      wanted = true;
      return;
    }
    ticking = round();
  }

  const made = {
    name: options.name,
    facts: options,
    /** Asks for a tick now; several asks during one tick make one more. */
    wake() {
      if (failuresInRow > 0) return;
      run();
    },
    /** Asks for a tick in `ms` at the latest. */
    wakeIn(ms: number) {
      if (failuresInRow > 0) return;
      const at = host.clock.elapsed() + Math.max(0, ms);
      if (ticking) wishedAt = Math.min(wishedAt, at);
      else if (running && at < plannedAt) plan(ms);
    },
    /**
     * What failed is tried again now: what it depends on is back. Does nothing for a loop that did not fail.
     */
    retry() {
      if (failuresInRow > 0 && !ticking) run();
    },
    /**
     * A tick now, beside the plan, after the one under way and before the next: what was due at the call is
     * done when it resolves, as far as one tick of this loop goes. Rejects with what the tick throws.
     */
    async tick() {
      beside++;
      try {
        while (ticking) await ticking;
        await options.tick(true);
      } finally {
        if (--beside === 0 && wanted) {
          wanted = false;
          run();
        }
      }
    },
    /** When the last tick ended without an error; undefined before the first. */
    progressAt: () => progressAt,
    failures: () => failures,
    /** The rounds in a row that failed until now, and what the last one said; undefined after a good one. */
    failing: () => (failuresInRow > 0 ? { rounds: failuresInRow, error: wordsOf(lastError) } : undefined),
    start() {
      if (running) return;
      running = true;
      plan(0);
    },
    async stop() {
      running = false;
      cancelTimer?.();
      await ticking;
    },
  };
  options.waker?.take(made);
  return made;
}
