import { exportLeaseMs, exportPaceMin, exportsAtOnceMax } from "./limits.ts";
import { busy } from "./lines.ts";

/** One export at this node: since when, how much of it its client took, and when the last piece. */
export class ExportPlace {
  readonly holder: string;
  readonly #elapsed: () => number;
  readonly #startedAt: number;
  #takenAt: number;
  #letters = 0;

  constructor(holder: string, elapsed: () => number) {
    this.holder = holder;
    this.#elapsed = elapsed;
    this.#startedAt = elapsed();
    this.#takenAt = elapsed();
  }

  note(letters: number): void {
    this.#letters += letters;
    this.#takenAt = this.#elapsed();
  }

  /** Whether its client has left it, or reads it too slowly for it to end. */
  isSlow(): boolean {
    const now = this.#elapsed();
    const lastedMs = now - this.#startedAt;
    if (now - this.#takenAt >= exportLeaseMs) return true;
    return lastedMs >= exportLeaseMs && (this.#letters * 1_000) / lastedMs < exportPaceMin;
  }
}

/** What this node exports, by org. */
export class ExportPlaces {
  readonly #elapsed: () => number;
  readonly #places = new Map<string, ExportPlace>();

  constructor(elapsed: () => number) {
    this.#elapsed = elapsed;
  }

  /** Throws `resource_exhausted` while the org has one that is not slow, or as many others are as may be. */
  take(orgId: string, holder: string): ExportPlace {
    const before = this.#places.get(orgId);
    if (before && !before.isSlow()) throw busy("the org is exported already");
    if (!before && this.#places.size >= exportsAtOnceMax) {
      const slow = [...this.#places].find(([, one]) => one.isSlow());
      if (!slow) throw busy("this node exports as many orgs as it may");
      this.#places.delete(slow[0]);
    }
    const place = new ExportPlace(holder, this.#elapsed);
    this.#places.set(orgId, place);
    return place;
  }

  has(orgId: string, place: ExportPlace): boolean {
    return this.#places.get(orgId) === place;
  }

  leave(orgId: string, place: ExportPlace): void {
    if (this.has(orgId, place)) this.#places.delete(orgId);
  }
}
