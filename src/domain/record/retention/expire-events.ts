import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics } from "../../../store/store.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import * as rows from "./rows.ts";
import { cutoff } from "./rules.ts";
import type { ExpireTurn } from "./turns.ts";

/** The lowest position of an environment's log that a reader still needs; undefined when none does. */
export type FloorGuard = (environmentId: string) => Promise<number | undefined>;

/**
 * Deletes events that are older than their environment keeps them, below every position that a reader still
 * needs.
 */
export function openEventExpiry(
  deps: Basics<"store" | "clock"> & { floorGuards: readonly FloorGuard[]; forgetBytes: ForgetBytes },
): ExpireTurn {
  const { store, clock, floorGuards, forgetBytes } = deps;
  const size = new SliceSize(clock);
  return async (write, environmentId, keptMs, slices) => {
    const before = cutoff(keptMs, clock.now());
    if (before === undefined) return { gone: 0, slices: 0, isMore: false };
    let below = await rows.positionAt(store, environmentId, before);
    for (const guard of floorGuards) below = Math.min(below, (await guard(environmentId)) ?? below);
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const limit = size.rows;
      const found = await rows.expirable(store, environmentId, { below, limit });
      if (found.last === null) break;
      const last = found.needed === null ? found.last : found.needed - 1;
      // When nothing is left below the horizon, the floor is the horizon itself.
      const isLast = found.needed === null && found.count < limit;
      const floor = found.needed ?? (isLast ? below : last + 1);
      await write((session) => rows.raiseFloor(session, environmentId, floor));
      gone += await size.delete(write, (session) =>
        rows.deleteEvents(session, environmentId, { last, limit }, (which) =>
          forgetBytes(session, environmentId, which),
        ),
      );
      if (found.needed !== null || isLast) break;
      await size.rest();
    }
    return { gone, slices: used + 1, isMore: used === slices };
  };
}
