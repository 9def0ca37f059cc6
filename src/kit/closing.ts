import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";

/** How long one part may take to close, beyond what the settings give it; and all parts together. */
export const closePartMsMax = 3_000;
export const closeMsMax = 10_000;

/** Closes parts in the reverse order of their opening, within a time that no dependency can stretch. */
export type Closing = ReturnType<typeof closing>;

/** Whether `work` was done within `ms`. If it fails later, the error is ignored. */
export async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  const over = new AbortController();
  work.catch(() => {});
  try {
    return await Promise.race([work.then(() => true), clock.sleep(ms, over.signal).then(() => false)]);
  } finally {
    over.abort();
  }
}

export function closing({ clock, log }: { clock: Clock; log: Log }) {
  const parts: { name: string; close: () => Promise<void>; ownMs: number }[] = [];
  return {
    /** `ownMs`: time its own settings give the part, on top of what every part has. */
    push: (name: string, close: () => Promise<void>, ownMs = 0) => void parts.push({ name, close, ownMs }),
    /** Closes every part; throws when one failed or was late. */
    async close() {
      const failures: unknown[] = [];
      const all = parts.splice(0).reverse();
      const deadline = clock.elapsed() + all.reduce((sum, { ownMs }) => sum + ownMs, closeMsMax);
      for (const { name, close, ownMs } of all) {
        // Begun even when the time is up: a part that waits for nobody is still closed properly.
        const leftMs = Math.ceil(deadline - clock.elapsed());
        const ms = Math.max(0, Math.min(ownMs + closePartMsMax, leftMs));
        try {
          if (await within(clock, ms, close())) continue;
          log.warn("server.close_late", { part: name, ms });
          failures.push(new Error(`${name} was not closed within ${ms} ms`));
        } catch (error) {
          failures.push(error);
        }
      }
      if (failures.length > 0) throw new AggregateError(failures, "not everything could be closed");
    },
  };
}

/**
 * Whether this node is leaving: probes say so, connections are asked to go, and requests are still answered.
 */
export interface Draining {
  active: boolean;
}
