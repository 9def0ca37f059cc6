import type { Instant } from "../../../../kit/clock.ts";

/** The head of a log as it was at an instant. */
export interface LogHead {
  head: number;
  at: Instant;
}

/**
 * Until when one log was compared with its waits, as this node saw it in any pass: one that took too long to
 * be waited for counts for the next look. A log that grows as fast as it is read counts to its former end.
 */
export class ComparedLog {
  #until: Instant | undefined;
  /** The head that the passes have to reach next, until they reach the end. */
  #target: LogHead | undefined;

  get until(): Instant | undefined {
    return this.#until;
  }

  /** A pass that saw `head` has compared all up to `position`, and what came of it is committed. */
  reached(seen: LogHead, position: number): void {
    if (position >= seen.head) {
      this.#until = seen.at;
      this.#target = undefined;
    } else if (!this.#target || position >= this.#target.head) {
      if (this.#target) this.#until = this.#target.at;
      this.#target = seen;
    }
  }
}

/** The same of the log of each environment. Waits that are fresh are not compared yet. */
export class ComparedUntil {
  readonly #logs = new Map<string, ComparedLog>();

  of(environmentId: string): Instant | undefined {
    return this.#logs.get(environmentId)?.until;
  }

  reached(environmentId: string, seen: LogHead, position: number): void {
    const log = this.#logs.get(environmentId) ?? new ComparedLog();
    this.#logs.set(environmentId, log);
    log.reached(seen, position);
  }

  keepOnly(environmentIds: ReadonlySet<string>): void {
    for (const id of this.#logs.keys()) if (!environmentIds.has(id)) this.#logs.delete(id);
  }
}

/** The instants of these environments, as far as they are known. */
export function knownOf(
  environmentIds: Iterable<string>,
  until: (environmentId: string) => Instant | undefined,
): ReadonlyMap<string, Instant> {
  const known = new Map<string, Instant>();
  for (const id of environmentIds) {
    const at = until(id);
    if (at !== undefined) known.set(id, at);
  }
  return known;
}
