import type { Static } from "@sinclair/typebox";
import type { CheckShape, SchemaShape, UpcastShape } from "../../domain/log/schemas/operations.ts";
import { rest } from "./api.ts";
import { instantOf } from "./format.ts";
import { offsetPage, type RowsPage } from "./pages.ts";
import { queryOf } from "./router.ts";

/** One version of an event's schema, without its text. */
export type SchemaHeadView = ReturnType<typeof headOf>;

export interface SchemaView extends SchemaHeadView {
  schema: unknown;
}

type SchemaData = Static<typeof SchemaShape>;

const headOf = (data: SchemaData) => ({
  ...{ event: data.event_name, version: data.version, description: data.description },
  createdAt: instantOf(data.created_at),
});

export async function listSchemas(
  cursor: string,
  signal: AbortSignal,
  event?: string,
): Promise<RowsPage<SchemaHeadView>> {
  const asked = queryOf({ limit: "200", offset: cursor || "0", event_name: event });
  const path = `/api/v1/events/schemas${asked}`;
  const page = await rest<{ schemas: SchemaData[]; total_count: number }>(path, { signal });
  return offsetPage(cursor, page.schemas.map(headOf), page.total_count);
}

const pathOf = (event: string) => `/api/v1/events/schemas/${encodeURIComponent(event)}`;
const versionPath = (event: string, version: number) => `${pathOf(event)}/${version}`;

/** Of the latest version without one. */
export async function getSchema(event: string, version?: number, signal?: AbortSignal): Promise<SchemaView> {
  const path = version === undefined ? pathOf(event) : versionPath(event, version);
  const data = await rest<SchemaData>(path, { signal });
  return { ...headOf(data), schema: data.schema };
}

export const deleteSchema = (event: string, version: number): Promise<void> =>
  rest(versionPath(event, version), { method: "DELETE" });

export const registerSchema = (body: {
  event_name: string;
  version: number;
  schema_json: string;
  description: string;
}): Promise<unknown> => rest("/api/v1/events/schemas", { body });

/** What one version of a schema would say to recent events. */
export type SchemaCheckData = EnforcementData["schemas"][number];

export type EnforcementData = Static<typeof CheckShape>;

export const checkTraffic = (
  asked: { event_name?: string; traffic_window_hours?: string },
  signal?: AbortSignal,
): Promise<EnforcementData> => rest(`/api/v1/events/enforcement?${new URLSearchParams(asked)}`, { signal });

export const setMode = (mode: string): Promise<unknown> =>
  rest("/api/v1/events/enforcement", { method: "PUT", body: { mode } });

export type UpcastData = Static<typeof UpcastShape>;

export const tryUpcast = (body: {
  eventName: string;
  fromVersion: number;
  toVersion: number;
  data: unknown;
}): Promise<UpcastData> => rest("/api/v1/events/upcast", { body });

export const refusedOf = ({ traffic }: SchemaCheckData): number =>
  traffic.reduce((sum, { count }) => sum + count, 0);
