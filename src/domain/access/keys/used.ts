import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";

const usedSliceMax = 500;

/**
 * Collects when keys were last used, and writes it in slices: a write for each request would cost more than
 * the request.
 */
export class KeyUse {
  readonly #store: Store;
  readonly #clock: Pick<Clock, "now">;
  #usedAt = new Map<string, Instant>();

  constructor(deps: { store: Store; clock: Pick<Clock, "now"> }) {
    this.#store = deps.store;
    this.#clock = deps.clock;
  }

  note(keyId: string): void {
    this.#usedAt.set(keyId, this.#clock.now());
  }

  async write(): Promise<void> {
    if (this.#usedAt.size === 0) return;
    const noted = this.#usedAt;
    this.#usedAt = new Map();
    // Sorted: two nodes that write the same keys would otherwise wait for each other's rows.
    const sorted = [...noted].sort(([a], [b]) => (a < b ? -1 : 1));
    try {
      for (let from = 0; from < sorted.length; from += usedSliceMax) {
        const slice = sorted.slice(from, from + usedSliceMax);
        await this.#store.write((session) => rows.updateLastUsed(session, slice));
      }
    } catch (error) {
      for (const [id, at] of noted) if (!this.#usedAt.has(id)) this.#usedAt.set(id, at);
      throw error;
    }
  }
}
