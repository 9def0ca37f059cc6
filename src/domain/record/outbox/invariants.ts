import type { Clock } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import type { Past } from "../../log/log/past.ts";
import type { IntegrityCheck } from "../integrity/service.ts";
import { outboxOverdueMs } from "./limits.ts";
import * as rows from "./rows.ts";

/**
 * Entries that have been due for more than a minute; with a mirror also events that it has not sent in that
 * time.
 */
export function outboxChecks({
  store,
  clock,
  mirrored,
}: {
  store: Store;
  clock: Pick<Clock, "now">;
  /** Undefined while the mirror is off. */
  mirrored: Pick<Past, "between"> | undefined;
}): IntegrityCheck[] {
  const overdue: IntegrityCheck = {
    name: "outbox.overdue",
    about:
      "Outbox entries that have been due for more than a minute: the bus is away, or no node leads `outbox`.",
    async run(environmentId) {
      const before = clock.now() - outboxOverdueMs;
      const found = await rows.overdue(store, environmentId, before, integrityRowsMax);
      const oldest = found.toSorted((one, other) => one.due_at - other.due_at).at(0);
      return { count: found.length, oldest: oldest ? { id: oldest.id, at: oldest.due_at } : null };
    },
  };
  if (!mirrored) return [overdue];
  const behind: IntegrityCheck = {
    name: "outbox.unmirrored",
    about: "Events that the mirror has not sent to the bus after a minute.",
    async run(environmentId) {
      const place = await rows.mirrorProgressOf(store, environmentId);
      if (!place || place.head <= (place.position ?? 0)) return { count: 0, oldest: null };
      const range = { after: place.position ?? 0, last: place.head };
      const [first] = await mirrored.between(environmentId, range, 1);
      if (!first || first.at >= clock.now() - outboxOverdueMs) return { count: 0, oldest: null };
      return {
        count: Math.min(integrityRowsMax, place.head - first.position + 1),
        oldest: { id: first.id, at: first.at },
      };
    },
  };
  return [overdue, behind];
}
