import { rfc3339 } from "../../../kit/clock.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { ItemRow, RepairPreview, ShownRepair } from "./views.ts";

const big = (counts: Record<string, number>) =>
  Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, BigInt(count)]));

export const toRepair = ({ row, counts }: ShownRepair) => ({
  ...{ id: row.id, action: row.action, status: row.status, phase: row.phase, reason: row.reason },
  ...{ requestJson: row.request, startedBy: row.started_by, note: row.note },
  counts: big(counts),
  createdAt: timestampOf(row.created_at),
  ...(row.ended_at !== null && { endedAt: timestampOf(row.ended_at) }),
});

export const repairJson = ({ row, counts }: ShownRepair) => ({
  ...{ id: row.id, action: row.action, status: row.status, phase: row.phase, reason: row.reason },
  ...{ request: JSON.parse(row.request) as unknown, started_by: row.started_by, note: row.note, counts },
  created_at: rfc3339(row.created_at),
  ...(row.ended_at !== null && { ended_at: rfc3339(row.ended_at) }),
});

export const toItem = (row: ItemRow) => ({
  ...{ runId: row.run_id, functionId: row.function_id, outcome: row.outcome },
  ...{ error: row.error ?? "", at: timestampOf(row.at) },
});

export const itemJson = (row: ItemRow) => ({
  ...{ run_id: row.run_id, function_id: row.function_id, outcome: row.outcome },
  ...(row.error !== null && { error: row.error }),
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
