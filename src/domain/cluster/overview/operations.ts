import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { type Call, type Operation, unary } from "../../../kit/operation.ts";
import type { Rates } from "../../record/flow/service.ts";
import { Health } from "../nodes/wire.ts";
import type { Overview, ReadOverview } from "./service.ts";

const count = Type.Integer();
const instant = Type.String({ format: "date-time" });
const counts = Type.Record(Type.String(), count);

const Rate = Type.Object({
  events: count,
  runs_started: count,
  runs_completed: count,
  runs_failed: count,
  runs_cancelled: count,
});

const Body = Type.Object({
  version: Type.String(),
  uptime_seconds: count,
  at: instant,
  runs: Type.Object({
    active: count,
    active_capped: Type.Boolean(),
    by_status: counts,
    oldest_waiting_ms: Type.Optional(count),
  }),
  last_minute: Rate,
  last_hour: Rate,
  last_day: Rate,
  functions: counts,
  workers: Type.Object({ connected: count }),
  integrity: Type.Optional(Type.Object({ balanced: Type.Boolean(), checked_at: instant })),
  cluster: Health,
});

const rateJson = ({ events, started, completed, failed, cancelled }: Rates["lastHour"]) => ({
  events,
  runs_started: started,
  runs_completed: completed,
  runs_failed: failed,
  runs_cancelled: cancelled,
});

const overviewJson = ({ active, oldestWaitingMs, rates, integrity, ...overview }: Overview) => ({
  version: overview.version,
  uptime_seconds: Math.floor(overview.uptimeMs / 1_000),
  at: rfc3339(overview.at),
  runs: {
    active: active.count,
    active_capped: active.isCut,
    by_status: Object.fromEntries(active.byStatus),
    ...(oldestWaitingMs !== undefined && { oldest_waiting_ms: oldestWaitingMs }),
  },
  last_minute: rateJson(rates.lastMinute),
  last_hour: rateJson(rates.lastHour),
  last_day: rateJson(rates.lastDay),
  functions: Object.fromEntries(overview.functions),
  workers: { connected: overview.workers },
  ...(integrity && { integrity: { balanced: integrity.balanced, checked_at: rfc3339(integrity.at) } }),
  cluster: overview.cluster,
});

export const overviewOperations = (
  read: ReadOverview,
  /** Whether the caller operates the installation, or an org of it. */
  seesDetails: (call: Call) => Promise<boolean>,
): Operation[] => [
  unary({
    name: "overview.get",
    action: "runs:read",
    reads: true,
    summary:
      "How many runs the environment has under way, what happened in it of late, and how the cluster is; single nodes are shown to admins only.",
    input: Type.Object({}),
    output: Body,
    rest: "GET /api/v1/overview",
    handle: async (_input, call) => overviewJson(await read(call.environmentId, await seesDetails(call))),
  }),
];
