import { rfc3339 } from "../../../kit/clock.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { ErrorGroupRow } from "./rows.ts";

export const toGroup = (row: ErrorGroupRow) => ({
  ...{ id: row.id, functionId: row.function_id, code: row.code, message: row.message, frame: row.frame },
  ...{ count: BigInt(row.count), sampleRunId: row.sample_run_id },
  ...{ firstSeenAt: timestampOf(row.first_seen_at), lastSeenAt: timestampOf(row.last_seen_at) },
});

export const groupJson = (row: ErrorGroupRow) => ({
  ...{ id: row.id, function_id: row.function_id, code: row.code, message: row.message, frame: row.frame },
  ...{ count: row.count, sample_run_id: row.sample_run_id },
  ...{ first_seen_at: rfc3339(row.first_seen_at), last_seen_at: rfc3339(row.last_seen_at) },
});
