import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { isJsonObject, timestampOf, withNumbers } from "../../../kit/wkt.ts";
import { type ReplayRequest, replayAction } from "./replays/rules.ts";
import type { RepairCounts } from "./rules.ts";
import type { ItemRow, RepairPreview, ShownRepair } from "./views.ts";

const big = (counts: Record<string, number> | RepairCounts) =>
  Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, BigInt(count)]));

/** How far a replay is; undefined for other repairs. */
function placesOf({ action, request, cursor_at }: ShownRepair["row"]): Record<string, number> | undefined {
  if (action !== replayAction) return undefined;
  const { from, to, liveFrom } = JSON.parse(request) as ReplayRequest;
  return {
    ...{ position: cursor_at ?? 0, from_position: from, to_position: to },
    ...(liveFrom !== undefined && { live_from: liveFrom }),
  };
}

export const toRepair = ({ row, counts }: ShownRepair) => ({
  ...{ id: row.id, action: row.action, status: row.status, phase: row.phase, reason: row.reason },
  ...{ requestJson: row.request, startedBy: row.started_by, note: row.note },
  counts: big(counts),
  createdAt: timestampOf(row.created_at),
  ...(row.ended_at !== null && { endedAt: timestampOf(row.ended_at) }),
  ...placesOut(placesOf(row)),
});

const placesOut = (places: Record<string, number> = {}) => ({
  ...{ position: BigInt(places.position ?? 0), liveFrom: BigInt(places.live_from ?? 0) },
  ...{ fromPosition: BigInt(places.from_position ?? 0), toPosition: BigInt(places.to_position ?? 0) },
});

export const repairJson = ({ row, counts }: ShownRepair) => ({
  ...{ id: row.id, action: row.action, status: row.status, phase: row.phase, reason: row.reason },
  ...{ request: JSON.parse(row.request) as unknown, started_by: row.started_by, note: row.note, counts },
  created_at: rfc3339(row.created_at),
  ...(row.ended_at !== null && { ended_at: rfc3339(row.ended_at) }),
  ...placesOf(row),
});

export const toItem = (row: ItemRow) => ({
  ...{ runId: row.run_id, functionId: row.function_id, outcome: row.outcome },
  ...{ error: row.error ?? "", at: timestampOf(row.at) },
  eventId: row.event_id ?? "",
});

export const itemJson = (row: ItemRow) => ({
  ...{ run_id: row.run_id, function_id: row.function_id, outcome: row.outcome },
  ...(row.error !== null && { error: row.error }),
  ...(row.event_id !== null && { event_id: row.event_id }),
  at: rfc3339(row.at),
});

export const toPreview = ({ totalCount, isTruncated, byStatus, samples }: RepairPreview) => ({
  ...{ totalCount: BigInt(totalCount), truncated: isTruncated, byStatus: big(byStatus) },
  samples: samples.map(({ id, functionId, status, eventName, createdAt }) => ({
    ...{ runId: id, functionId, status, eventName, createdAt: timestampOf(createdAt) },
  })),
});

export const previewJson = ({ totalCount, isTruncated, byStatus, samples }: RepairPreview) => ({
  ...{ total_count: totalCount, truncated: isTruncated, by_status: byStatus },
  samples: samples.map(({ id, functionId, status, eventName, createdAt }) => ({
    ...{ run_id: id, function_id: functionId, status, event_name: eventName, created_at: rfc3339(createdAt) },
  })),
});

const inSnakeCase = (fields: Record<string, unknown>) =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value,
    ]),
  );

/** Read from JSON itself, as REST is: a message does not tell an empty bound from one that is left out. */
export const jsonWith = (selection: "filter" | "events", numbers: readonly string[] = []) => ({
  decode({ [selection]: given, ...body }: Record<string, unknown>) {
    const read = isJsonObject(given) ? inSnakeCase(withNumbers(given, numbers)) : given;
    return { ...inSnakeCase(body), ...(given !== undefined && { [selection]: read }) };
  },
});

const said = (description: string) => Type.String({ description });
const count = (description: string) => Type.Integer({ description });

const Counts = Type.Object(
  {
    pending: count("How many are not begun."),
    done: count("How many are done."),
    over: count("Ended or went on by themselves before their turn."),
    refused: count("Kept from who started the repair by a deny policy."),
    failed: count("Could not be done; each item says why."),
    undone: count("Not begun when the repair was stopped."),
    skipped: Type.Optional(count("Of a replay: events that the function has a run of.")),
    scanned: Type.Optional(count("Of a replay: events that it has passed, whether they match or not.")),
  },
  { description: "What became of the runs." },
);

export const RepairOut = Type.Object({
  id: said("Id of the repair (`rep_…`)."),
  action: said("What is done with each run; `replay` starts runs on events."),
  status: said("running, paused, stopping, stopped or completed."),
  phase: said("select while runs are selected, then work."),
  reason: said("Why, as who started it said."),
  request: Type.Unknown({ description: "What was asked for." }),
  started_by: said("Id of the key or user who started it."),
  note: said("Why it waits or stopped."),
  counts: Counts,
  created_at: Type.String({ format: "date-time", description: "When it was started." }),
  ended_at: Type.Optional(Type.String({ format: "date-time", description: "When it was over." })),
  position: Type.Optional(count("Of a replay: the last position that it has passed.")),
  from_position: Type.Optional(count("Of a replay: the first position of its window.")),
  to_position: Type.Optional(count("Of a replay: the last position of its window.")),
  live_from: Type.Optional(
    count("Of a replay that goes live: the first position that the function's triggers start."),
  ),
});

export const repairAnswer = (status: number) => ({
  status,
  encode: (repair: ShownRepair) => ({ status, body: repairJson(repair) }),
});
