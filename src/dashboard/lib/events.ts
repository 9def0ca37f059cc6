import type { Static } from "@sinclair/typebox";
import type { EventRecord } from "../../domain/engine/emit/wire.ts";
import { rest } from "./api.ts";
import { cutsOf, instantOf } from "./format.ts";

/** An event as the pages show it. */
export type EventView = ReturnType<typeof eventOf>;

type EventData = Static<typeof EventRecord>;

const eventOf = (event: EventData) => ({
  ...{ id: event.id, name: event.name, data: event.data, source: event.source, version: event.version },
  ...{ sequence: event.sequence, at: instantOf(event.timestamp), metadata: event.metadata },
  ...{ entityId: event.entity_id ?? "", runId: event.run_id ?? "", schemaBreach: event.schema_breach ?? "" },
  cuts: cutsOf(event.cut_values),
});

export async function listEvents(asked: Record<string, string>, signal?: AbortSignal) {
  const page = await rest<{
    events: EventData[];
    next_cursor?: string;
    has_next: boolean;
    approx_total: number;
    approx_total_capped: boolean;
  }>(`/api/v1/events?${new URLSearchParams(asked)}`, { signal });
  return {
    events: page.events.map(eventOf),
    nextCursor: page.has_next ? (page.next_cursor ?? "") : "",
    ...{ total: page.approx_total, isCapped: page.approx_total_capped },
  };
}

/** Without `maxValueBytes` its values are whole. */
export async function getEvent(id: string, signal?: AbortSignal, maxValueBytes = 0): Promise<EventView> {
  const path = `/api/v1/events/${encodeURIComponent(id)}?max_value_bytes=${maxValueBytes}`;
  return eventOf(await rest<EventData>(path, { signal }));
}
