import { breather } from "../../../kit/breather.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import { type ContentDeps, contentOf, type ExportContent } from "./content.ts";
import {
  exportCollectMs,
  exportCollectPages,
  exportGrowthBytes,
  exportLeaseMs,
  exportLookPages,
  exportPaceMin,
  exportRenewMs,
  exportsAtOnceMax,
} from "./limits.ts";
import { busy, sectionsOf } from "./lines.ts";
import * as rows from "./rows.ts";

/** One export at this node: since when, how much of it its client took, and when the last piece. */
class ExportPlace {
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

export interface ExportAsk extends Omit<ExportContent, "sections"> {
  /** Names of sections; absent or empty means all. */
  include: string | undefined;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

export type Exports = ReturnType<typeof openExports>;

export interface ExportsDeps extends ContentDeps {
  log: Log;
  memory: {
    /** Begins to collect garbage, beside what else is done. */
    collect(): void;
    /** Bytes of this process. */
    resident(): number;
    /** Gives what is free back to the machine, which holds everything else for tens of milliseconds. */
    giveBack(): void;
  };
  /** Names one export among all. */
  newHolder: () => string;
}

export function openExports({ log, newHolder, memory, ...deps }: ExportsDeps) {
  const { store, clock } = deps;
  const places = new ExportPlaces(() => clock.elapsed());

  /** A place of this node and the lease of the org. */
  async function take(orgId: string): Promise<ExportPlace> {
    const own = places.take(orgId, newHolder());
    const now = clock.now();
    const lease = { orgId, holder: own.holder, now, until: now + exportLeaseMs };
    try {
      const taken = await store.write((session) => rows.takeLease(session, lease));
      if (!taken) throw busy("the org is exported already");
    } catch (error) {
      places.leave(orgId, own);
      throw error;
    }
    return own;
  }

  async function release(orgId: string, own: ExportPlace): Promise<void> {
    places.leave(orgId, own);
    await store
      .write((session) => rows.releaseLease(session, orgId, own.holder))
      .catch((error: unknown) => log.warn("export.unreleased", { orgId, error }));
  }

  /** Called between pages: gives the event loop back, and keeps the lease. */
  function keeper(orgId: string, own: ExportPlace): () => Promise<void> {
    const breathe = breather(clock, orgId);
    const residentMax = memory.resident() + exportGrowthBytes;
    let renewedAt = clock.elapsed();
    let pages = 0;
    return async () => {
      if (++pages % exportCollectPages === 0) {
        memory.collect();
        await clock.sleep(exportCollectMs);
      }
      if (pages % exportLookPages === 0 && memory.resident() > residentMax) memory.giveBack();
      own.note(0);
      const now = clock.elapsed();
      if (now - renewedAt >= exportRenewMs) {
        const lease = { orgId, holder: own.holder, until: clock.now() + exportLeaseMs };
        const kept = await store.write((session) => rows.renewLease(session, lease));
        if (!kept || !places.has(orgId, own))
          throw new Fault("aborted", "the export stood still for too long: another one took its place");
        renewedAt = now;
      }
      const breath = breathe();
      if (breath) await breath;
    };
  }

  return {
    /**
     * The lines of an export, in pieces. Throws `invalid_argument` for an unknown section,
     * `resource_exhausted` while another one of the org is under way, or this node exports as many orgs as it
     * may.
     */
    async start({ include, signal, ...ask }: ExportAsk): Promise<AsyncIterableIterator<string>> {
      const content = { ...ask, sections: sectionsOf(include) };
      const own = await take(ask.orgId);
      let isOver = false;
      const end = async () => {
        if (isOver) return;
        isOver = true;
        await release(ask.orgId, own);
      };
      const pieces = contentOf(deps, content, keeper(ask.orgId, own));
      // A generator that was never asked for a piece has no `finally` to run.
      signal.addEventListener("abort", () => void end(), { once: true });
      if (signal.aborted) await end();
      const iterator: AsyncIterableIterator<string> = {
        async next() {
          try {
            if (isOver) throw new Fault("aborted", "the export is over");
            const piece = await pieces.next();
            if (piece.done) await end();
            else own.note(piece.value.length);
            return piece;
          } catch (error) {
            await end();
            throw error;
          }
        },
        async return() {
          await pieces.return(undefined);
          await end();
          return { done: true, value: undefined };
        },
        [Symbol.asyncIterator]: () => iterator,
      };
      return iterator;
    },
  };
}
