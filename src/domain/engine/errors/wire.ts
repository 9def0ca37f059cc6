import { ErrorGroupSchema } from "../../../gen/svc/v1/error_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { messageOf } from "../../../kit/wkt.ts";
import type { ErrorGroupRow } from "./rows.ts";

export const groupJson = (row: ErrorGroupRow) => ({
  ...{ id: row.id, function_id: row.function_id, code: row.code, message: row.message, frame: row.frame },
  ...{ count: row.count, sample_run_id: row.sample_run_id },
  ...{ first_seen_at: rfc3339(row.first_seen_at), last_seen_at: rfc3339(row.last_seen_at) },
});

export const toGroup = (row: ErrorGroupRow) => messageOf(ErrorGroupSchema)(groupJson(row));
