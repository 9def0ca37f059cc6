import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { failedRoundsMax, type Loop, type LoopFacts, type LoopOptions, loop } from "../kit/loop.ts";
import type { Metrics } from "../kit/metrics.ts";
import { watchLoop } from "../kit/watch.ts";
import type { NodeFacts } from "../nodes/nodes.ts";

/** Every background loop of one server. Its parts add them; the server starts and stops them all at once. */
export class Loops {
  readonly #host;
  readonly #metrics: Metrics;
  readonly #loops = new Map<string, Loop>();

  constructor({ clock, log, metrics }: { clock: Clock; log: Log; metrics: Metrics }) {
    const onError = (name: string, error: unknown) => log.warn("loop.failed", { loop: name, error });
    this.#host = { clock, onError };
    this.#metrics = metrics;
  }

  add(all: readonly LoopOptions[]): void {
    for (const options of all) {
      const made = loop(this.#host, options);
      watchLoop(this.#metrics, made);
      this.#loops.set(options.name, made);
    }
  }

  start(): void {
    for (const one of this.#loops.values()) one.start();
  }

  retryFailed(): void {
    for (const one of this.#loops.values()) one.retry();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#loops.values()].map((one) => one.stop()));
  }

  /** One round beside the plan, for tests. */
  async tick(name: string): Promise<void> {
    const found = this.#loops.get(name);
    if (!found) throw new Error(`unknown loop ${name} (one of ${[...this.#loops.keys()].join(", ")})`);
    await found.tick();
  }

  facts(): LoopFacts[] {
    return [...this.#loops.values()].map(({ facts: { name, about, everyMs, duty } }) => ({
      name,
      about,
      everyMs,
      ...(duty !== undefined && { duty }),
    }));
  }

  /** What this node tells the others of them. */
  progress(): NodeFacts["loops"] {
    return [...this.#loops].map(([name, one]) => ({
      name,
      progress_at: one.progressAt() ?? null,
      failures: one.failing()?.rounds ?? 0,
      ...(one.failing() && { error: one.failing()!.error }),
    }));
  }

  /** The loops that do none of their work, and why. */
  troubles(): string[] {
    return [...this.#loops.values()].flatMap((one) => {
      const failing = one.failing();
      return failing && failing.rounds >= failedRoundsMax ? `loop ${one.name} fails: ${failing.error}` : [];
    });
  }
}
