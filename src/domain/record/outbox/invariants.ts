import type { Clock } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import type { Past } from "../../log/core/past.ts";
import { violationsOf } from "../integrity/rules.ts";
import type { IntegrityCheck } from "../integrity/service.ts";
import { outboxOverdueMs, unmirroredListedMax } from "./limits.ts";
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
      return violationsOf(await rows.overdue(store, environmentId, before, integrityRowsMax));
    },
  };
  if (!mirrored) return [overdue];
  /** The first of the events that the mirror has yet to send, as far as they are overdue. */
  async function unmirrored(environmentId: string, most: number) {
    const place = await rows.mirrorProgressOf(store, environmentId);
    if (!place || place.head <= (place.position ?? 0)) return { events: [], head: 0 };
    const range = { after: place.position ?? 0, last: place.head };
    const before = clock.now() - outboxOverdueMs;
    const events = (await mirrored!.between(environmentId, range, most)).filter(({ at }) => at < before);
    return { events, head: place.head };
  }
  const behind: IntegrityCheck = {
    name: "outbox.unmirrored",
    about: "Events that the mirror has not sent to the bus after a minute.",
    async run(environmentId) {
      const { events, head } = await unmirrored(environmentId, 1);
      const [first] = events;
      if (!first) return { count: 0, oldest: null };
      return {
        count: Math.min(integrityRowsMax, head - first.position + 1),
        oldest: { id: first.id, at: first.at },
      };
    },
    async rows(environmentId) {
      const { events } = await unmirrored(environmentId, unmirroredListedMax);
      return (
        violationsOf(events.map(({ id, at, position, name }) => ({ id, at, position, event: name }))).rows ??
        []
      );
    },
  };
  return [overdue, behind];
}
