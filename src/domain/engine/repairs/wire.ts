import { Type } from "@sinclair/typebox";
import {
  PreviewRepairResponseSchema,
  RepairCountsSchema,
  RepairItemSchema,
  RepairSchema,
} from "../../../gen/svc/v1/repair_pb.ts";
import { inSnakeCase } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { isJsonObject, messageOf } from "../../../kit/wkt.ts";
import { type ReplayRequest, replayAction } from "./replays/rules.ts";
import type { ItemRow, RepairPreview, ShownRepair } from "./views.ts";

/** How far a replay is; undefined for other repairs. */
function placesOf({ action, request, cursor_at }: ShownRepair["row"]): Record<string, number> | undefined {
  if (action !== replayAction) return undefined;
  const { from, to, liveFrom } = JSON.parse(request) as ReplayRequest;
  return {
    ...{ position: cursor_at ?? 0, from_position: from, to_position: to },
    ...(liveFrom !== undefined && { live_from: liveFrom }),
  };
}

export const repairJson = ({ row, counts }: ShownRepair) => ({
  ...{ id: row.id, action: row.action, status: row.status, phase: row.phase, reason: row.reason },
  ...{ request: JSON.parse(row.request) as unknown, started_by: row.started_by, note: row.note, counts },
  created_at: rfc3339(row.created_at),
  ...(row.ended_at !== null && { ended_at: rfc3339(row.ended_at) }),
  ...placesOf(row),
});

export function toRepair(shown: ShownRepair) {
  const { request: _, ...json } = repairJson(shown);
  return messageOf(RepairSchema)({ ...json, request_json: shown.row.request });
}

export const itemJson = (row: ItemRow) => ({
  ...{ run_id: row.run_id, function_id: row.function_id, outcome: row.outcome },
  ...(row.error !== null && { error: row.error }),
  ...(row.event_id !== null && { event_id: row.event_id }),
  at: rfc3339(row.at),
});

export const toItem = (row: ItemRow) => messageOf(RepairItemSchema)(itemJson(row));

export const previewJson = ({ totalCount, isTruncated, byStatus, samples }: RepairPreview) => ({
  ...{ total_count: totalCount, truncated: isTruncated, by_status: byStatus },
  samples: samples.map(({ id, functionId, status, eventName, createdAt }) => ({
    ...{ run_id: id, function_id: functionId, status, event_name: eventName, created_at: rfc3339(createdAt) },
  })),
});

export const toPreview = (preview: RepairPreview) =>
  messageOf(PreviewRepairResponseSchema)(previewJson(preview));

/** Read from JSON itself, as REST is: a message does not tell an empty bound from one that is left out. */
export const jsonWith = (selection: "filter" | "events") => ({
  decode({ [selection]: given, ...body }: Record<string, unknown>) {
    const read = isJsonObject(given) ? inSnakeCase(given) : given;
    return { ...inSnakeCase(body), ...(given !== undefined && { [selection]: read }) };
  },
});

export const RepairOut = shapeOf(RepairSchema, {
  omit: "request_json",
  absent: "ended_at position from_position to_position live_from",
  own: {
    request: Type.Unknown({ description: "What was asked for." }),
    counts: shapeOf(RepairCountsSchema, { absent: "skipped scanned" }),
  },
});

export const repairAnswer = (status: number) => ({ status, json: repairJson });
