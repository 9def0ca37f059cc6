import type { StreamEventView } from "./streams.ts";

/**
 * What events up to a version said last of each field. Only the entity's own program knows its real state:
 * this is what can be told of any entity. `events` are newest first.
 */
export function lastSaid(events: readonly StreamEventView[], version: number): Record<string, unknown> {
  const said: Record<string, unknown> = Object.create(null);
  for (const { at, data } of events.toReversed())
    if (at <= version && typeof data === "object" && data !== null && !Array.isArray(data))
      Object.assign(said, data);
  return said;
}
