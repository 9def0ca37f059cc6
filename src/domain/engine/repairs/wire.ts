import { Type } from "@sinclair/typebox";
import {
  PreviewRepairResponseSchema,
  RepairItemSchema,
  RepairSchema,
} from "../../../gen/svc/v1/repair_pb.ts";
import { snakeCase } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { isJsonObject, messageOf, withNumbers } from "../../../kit/wkt.ts";
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

const inSnakeCase = (fields: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [snakeCase(name), value]));

/** Read from JSON itself, as REST is: a message does not tell an empty bound from one that is left out. */
export const jsonWith = (selection: "filter" | "events", numbers: readonly string[] = []) => ({
  decode({ [selection]: given, ...body }: Record<string, unknown>) {
    const read = isJsonObject(given) ? inSnakeCase(withNumbers(given, numbers)) : given;
    return { ...inSnakeCase(body), ...(given !== undefined && { [selection]: read }) };
  },
});

const Counts = Type.Object(
  {
    pending: shape.count("How many are not begun."),
    done: shape.count("How many are done."),
    over: shape.count("Ended or went on by themselves before their turn."),
    refused: shape.count("Kept from who started the repair by a deny policy."),
    failed: shape.count("Could not be done; each item says why."),
    undone: shape.count("Not begun when the repair was stopped."),
    skipped: maybe.count("Of a replay: events that the function has a run of."),
    scanned: maybe.count("Of a replay: events that it has passed, whether they match or not."),
  },
  { description: "What became of the runs." },
);

export const RepairOut = Type.Object({
  id: shape.text("Id of the repair (`rep_…`)."),
  action: shape.text("What is done with each run; `replay` starts runs on events."),
  status: shape.text("running, paused, stopping, stopped or completed."),
  phase: shape.text("select while runs are selected, then work."),
  reason: shape.text("Why, as who started it said."),
  request: Type.Unknown({ description: "What was asked for." }),
  started_by: shape.text("Id of the key or user who started it."),
  note: shape.text("Why it waits or stopped."),
  counts: Counts,
  created_at: shape.time("When it was started."),
  ended_at: maybe.time("When it was over."),
  position: maybe.count("Of a replay: the last position that it has passed."),
  from_position: maybe.count("Of a replay: the first position of its window."),
  to_position: maybe.count("Of a replay: the last position of its window."),
  live_from: maybe.count(
    "Of a replay that goes live: the first position that the function's triggers start.",
  ),
});

export const repairAnswer = (status: number) => ({ status, json: repairJson });
