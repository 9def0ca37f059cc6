import type { Instant } from "../../../../kit/clock.ts";

/** The head of a log as it was at an instant. */
export interface LogHead {
  head: number;
  at: Instant;
}

/**
 * Until when the log of each environment was compared with its waits, as this node saw it in any pass: one that took too
 * long to be waited for counts for the next look. Waits that are fresh are not compared yet.
 */
export class ComparedUntil {
  readonly #until = new Map<string, Instant>();
  /** The head that the passes of a log come to next, while they do not come to its end. */
  readonly #targets = new Map<string, LogHead>();

  of(environmentId: string): Instant | undefined {
    return this.#until.get(environmentId);
  }

  /** A pass that saw `head` has compared all up to `position`, and what came of it is committed. */
  reached(environmentId: string, seen: LogHead, position: number): void {
    const target = this.#targets.get(environmentId);
    if (position >= seen.head) {
      this.#until.set(environmentId, seen.at);
      this.#targets.delete(environmentId);
    } else if (!target || position >= target.head) {
      if (target) this.#until.set(environmentId, target.at);
      this.#targets.set(environmentId, seen);
    }
  }

  keepOnly(environmentIds: ReadonlySet<string>): void {
    for (const map of [this.#until, this.#targets])
      for (const id of map.keys()) if (!environmentIds.has(id)) map.delete(id);
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
