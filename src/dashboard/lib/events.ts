import { rest } from "./api.ts";
import { instantOf } from "./format.ts";

/** An event as the pages show it. */
export interface EventView {
  id: string;
  name: string;
  data: unknown;
  source: string;
  version: number;
  sequence: string;
  at: number | undefined;
  metadata: unknown;
  entityId: string;
  runId: string;
  schemaBreach: string;
}

interface EventData {
  id: string;
  name: string;
  data: unknown;
  source: string;
  version: number;
  sequence: string;
  timestamp: string;
  metadata?: unknown;
  entity_id?: string;
  run_id?: string;
  schema_breach?: string;
}

const eventOf = (event: EventData): EventView => ({
  ...{ id: event.id, name: event.name, data: event.data, source: event.source, version: event.version },
  ...{ sequence: event.sequence, at: instantOf(event.timestamp), metadata: event.metadata },
  ...{ entityId: event.entity_id ?? "", runId: event.run_id ?? "", schemaBreach: event.schema_breach ?? "" },
});

export interface EventPageData {
  events: EventView[];
  nextCursor: string;
  total: number;
  isCapped: boolean;
}

export async function listEvents(
  asked: Record<string, string>,
  signal?: AbortSignal,
): Promise<EventPageData> {
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

export const getEvent = async (id: string, signal?: AbortSignal): Promise<EventView> =>
  eventOf(await rest<EventData>(`/api/v1/events/${encodeURIComponent(id)}`, { signal }));
