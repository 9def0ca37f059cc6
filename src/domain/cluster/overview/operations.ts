import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { type Call, type Operation, unary } from "../../../kit/operation.ts";
import { QuotaShape, quotaJson } from "../../engine/quotas/wire.ts";
import { Rate, rateJson } from "../../record/flow/wire.ts";
import { Health } from "../nodes/wire.ts";
import type { Overview, ReadOverview } from "./service.ts";

const count = Type.Integer();
const instant = Type.String({ format: "date-time" });
const counts = Type.Record(Type.String(), count);

export const OverviewShape = Type.Object({
  version: shape.text("Version of the server."),
  uptime_seconds: described(count, "Seconds since this node began."),
  at: described(instant, "When it was read, RFC 3339."),
  runs: Type.Object(
    {
      active: described(count, "How many runs are not over."),
      active_capped: shape.flag("Whether there are more than were counted."),
      by_status: described(counts, "How many runs have which status."),
      oldest_waiting_ms: Type.Optional(
        described(count, "How long the oldest waiting run has waited, in milliseconds; absent without any."),
      ),
    },
    { description: "Runs that are not over." },
  ),
  last_minute: described(Rate, "What happened in the last minute."),
  last_hour: described(Rate, "What happened in the last hour."),
  last_day: described(Rate, "What happened in the last 24 hours."),
  functions: described(counts, "How many functions have which status."),
  workers: Type.Object(
    { connected: described(count, "How many workers have a recent heartbeat.") },
    { description: "Workers of the environment." },
  ),
  quotas: Type.Array(QuotaShape, { description: "What the environment may use, of what is limited." }),
  integrity: Type.Optional(
    Type.Object(
      {
        balanced: shape.flag("Whether every check counts zero."),
        checked_at: described(instant, "When the checks were made, RFC 3339."),
      },
      { description: "What the last check found; absent where none was made." },
    ),
  ),
  cluster: described(Health, "Nodes, database and bus, as `GET /api/v1/cluster/health` shows them."),
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
  quotas: overview.quotas.map(quotaJson),
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
    output: OverviewShape,
    rest: "GET /api/v1/overview",
    handle: async (_input, call) => overviewJson(await read(call.environmentId, await seesDetails(call))),
  }),
];
