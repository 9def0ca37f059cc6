import { type Static, Type } from "@sinclair/typebox";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { laneFacts } from "../functions/rules.ts";
import type { LaneRow, LeaseRow } from "./rows.ts";
import type { CapacityBucket, Credit, QueuedRun, Stat, WorkerSession } from "./service.ts";

const text = Type.String();
const count = Type.Integer();
const instant = Type.String({ format: "date-time" });

export const LaneSchema = Type.Object({
  lane_id: described(text, "Id of the concurrency lane; absent for runs without one."),
  environment_id: text,
  function_id: text,
  scope: described(text, "What shares the lane: `function`, or `key` for one value of its key."),
  scalar_type: described(text, "Type of the key's value."),
  limit: described(count, "How many runs the lane holds at once."),
  active_reserved: described(count, "How many runs the lane holds now."),
  config_version: described(count, "Version of the function that set the limit."),
  created_at: instant,
  last_used_at: instant,
});

export const LeaseSchema = Type.Object({
  lease_id: described(text, "Id of the lease: its run and execution."),
  run_id: text,
  execution_seq: count,
  environment_id: text,
  function_id: text,
  lease_token_hash: described(text, "SHA-256 of the lease token, in hex."),
  activated_at: described(instant, "When the worker was handed the run, RFC 3339."),
  expires_at: instant,
  lane_id: described(Type.Optional(text), "Id of the concurrency lane; absent for runs without one."),
});

export const QueuedSchema = Type.Object({
  run_id: text,
  execution_seq: count,
  queue_seq: described(count, "Place in the run's queue among these rows, from 1."),
  environment_id: text,
  function_id: text,
  execution_mode: text,
  blocking_reason: described(
    text,
    "Why it waits: `function_paused`, `concurrency_limit`, `no_worker` or `awaiting_worker`.",
  ),
  eligible_at: described(instant, "When it may be handed out, RFC 3339."),
  first_enqueued_at: described(instant, "When the run was created, RFC 3339."),
  created_at: instant,
  lane_id: described(Type.Optional(text), "Id of the concurrency lane; absent for runs without one."),
  function_version: count,
  timeout_ms: described(Type.Optional(count), "Milliseconds that the run may take in all."),
});

export const BucketSchema = Type.Object({
  environment_id: text,
  function_id: text,
  created_at: instant,
  lane_id: described(Type.Optional(text), "Id of the concurrency lane; absent for runs without one."),
  last_dispatched_at: described(
    Type.Optional(instant),
    "When a run of the queue was handed out last, RFC 3339.",
  ),
});

export const SessionSchema = Type.Object({
  session_id: described(text, "Id of the worker's session at a node."),
  worker_id: text,
  environment_id: text,
  engine_node_id: described(text, "The node that the worker is connected to."),
  heartbeat_expiry: described(instant, "When the session ends without another heartbeat, RFC 3339."),
  draining: Type.Boolean(),
  created_at: instant,
  labels: Type.Record(text, text, { description: "What the worker says of itself." }),
  protocol_caps: Type.Array(text, { description: "How the worker is connected." }),
});

export const CreditSchema = Type.Object({
  credit_id: described(text, "Id of the place: its session and its number."),
  session_id: described(text, "Id of the worker's session at a node."),
  worker_id: text,
  environment_id: text,
  engine_node_id: described(text, "The node that the worker is connected to."),
  slot_ordinal: described(count, "Number of the place at its worker, from 0."),
  claimed: shape.flag("Whether a run has the place."),
  claimed_run_id: described(text, "The run that has the place; empty when none has."),
  claimed_execution_seq: described(count, "Execution of the run that has the place."),
  created_at: instant,
  expires_at: instant,
});

export const StatSchema = Type.Object({
  environment_id: text,
  function_id: text,
  active_leases: described(count, "Runs that workers hold."),
  lane_limit: described(count, "How many runs the function may have at once; 0 for no limit."),
  queued: described(count, "Runs that wait."),
  reservations: described(count, "Places that are kept for runs which are about to be written."),
  oldest_queue_age_seconds: described(
    count,
    "Seconds that the oldest waiting run has waited; 0 without any.",
  ),
});

export const toLane = (row: LaneRow): Static<typeof LaneSchema> => {
  const { scope, scalarType } = laneFacts(row.id);
  return {
    lane_id: row.id,
    environment_id: row.environment_id,
    function_id: row.function_id,
    scope,
    scalar_type: scalarType,
    limit: row.lane_limit ?? 0,
    active_reserved: row.leased,
    config_version: row.version ?? 0,
    created_at: rfc3339(row.created_at),
    last_used_at: rfc3339(row.last_used_at),
  };
};

const leaseId = ({ run_id, execution_seq }: Pick<LeaseRow, "run_id" | "execution_seq">): string =>
  `lease_${run_id.slice("run_".length)}_${execution_seq}`;

export const toLease = (row: LeaseRow): Static<typeof LeaseSchema> => ({
  lease_id: leaseId(row),
  run_id: row.run_id,
  execution_seq: row.execution_seq,
  environment_id: row.environment_id,
  function_id: "",
  lease_token_hash: row.lease_hash,
  activated_at: rfc3339(row.claimed_at),
  expires_at: rfc3339(row.wake_at),
  ...(row.lane_id !== null && { lane_id: row.lane_id }),
});

/** Why a run is not claimed; `awaiting_worker` when nothing but a free worker is missing. */
function blockedBy({ function_status, lane_limit, leased, unserved }: QueuedRun): string {
  if (function_status === "paused") return "function_paused";
  if (unserved) return "no_worker";
  return lane_limit !== null && (leased ?? 0) >= lane_limit ? "concurrency_limit" : "awaiting_worker";
}

/** `queue_seq` is the place in the run's queue among the rows of this answer, from 1. */
export function toQueue(rows: readonly QueuedRun[]): Static<typeof QueuedSchema>[] {
  const places = new Map<string, number>();
  return rows.map((row) => {
    const queue = row.lane_id ?? `${row.environment_id}\n${row.function_id}`;
    const place = (places.get(queue) ?? 0) + 1;
    places.set(queue, place);
    return {
      run_id: row.run_id,
      execution_seq: row.execution_seq,
      queue_seq: place,
      environment_id: row.environment_id,
      function_id: row.function_id,
      execution_mode: row.mode,
      blocking_reason: blockedBy(row),
      eligible_at: rfc3339(row.wake_at),
      first_enqueued_at: rfc3339(row.created_at),
      created_at: rfc3339(row.created_at),
      ...(row.lane_id !== null && { lane_id: row.lane_id }),
      function_version: row.function_version,
      ...(row.timeout_at !== null && { timeout_ms: row.timeout_at - row.created_at }),
    };
  });
}

export const toBucket = (one: CapacityBucket): Static<typeof BucketSchema> => ({
  environment_id: one.environmentId,
  function_id: one.functionId,
  created_at: rfc3339(one.createdAt),
  ...(one.laneId !== undefined && { lane_id: one.laneId }),
  ...(one.lastDispatchedAt !== undefined && { last_dispatched_at: rfc3339(one.lastDispatchedAt) }),
});

const whereOf = (session: WorkerSession) => ({
  session_id: session.id,
  worker_id: session.workerId,
  environment_id: session.environmentId,
  engine_node_id: session.nodeId,
});

export const toSession = (session: WorkerSession): Static<typeof SessionSchema> => ({
  ...whereOf(session),
  heartbeat_expiry: rfc3339(session.expiresAt),
  draining: session.draining,
  created_at: rfc3339(session.createdAt),
  labels: session.labels,
  protocol_caps: [session.transport],
});

export const toCredit = ({ session, ordinal, job }: Credit): Static<typeof CreditSchema> => ({
  credit_id: `${session.id.replace("sess_", "credit_")}_${ordinal}`,
  ...whereOf(session),
  slot_ordinal: ordinal,
  claimed: job !== undefined,
  claimed_run_id: job?.run_id ?? "",
  claimed_execution_seq: job?.execution_seq ?? 0,
  created_at: rfc3339(job?.claimed_at ?? session.createdAt),
  expires_at: rfc3339(job?.wake_at ?? session.expiresAt),
});

export const toStat = (row: Stat, now: Instant): Static<typeof StatSchema> => ({
  environment_id: row.environment_id,
  function_id: row.function_id,
  active_leases: row.leased,
  lane_limit: row.lane_limit ?? 0,
  queued: row.queued,
  reservations: row.reserved,
  oldest_queue_age_seconds:
    row.oldest_at === null ? 0 : Math.max(0, Math.floor((now - row.oldest_at) / 1_000)),
});
